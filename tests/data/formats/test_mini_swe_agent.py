"""mini-swe-agent: fenced commands, observations in user turns, its harness's complaints."""

HEAD = [{"role": "system", "content": "sys"}, {"role": "user", "content": "```bash\nexample\n```"}]
ACT = {"role": "assistant", "content": "THOUGHT\n\n```mswea_bash_command\ncat <<E\n x\nE\n```\n"}
SEEN = {"role": "user", "content": "<returncode>0</returncode>\n<output>\nx\n</output>"}


def test_bare_list_of_the_first_versions(read):
    got = read(
        [*HEAD, ACT, SEEN, ACT, {"role": "user", "content": ""}], "astropy__astropy-1.traj.json"
    )
    assert got.report.format == "mini-swe-agent"
    assert got.messages[1].role == "user"
    assert got.messages[1].genuine
    call = got.messages[2].calls[0]
    assert (call.name, call.arguments) == ("mswea_bash_command", "cat <<E\n x\nE")
    assert got.messages[2].text == "THOUGHT"
    assert [m.role for m in got.messages[3:]] == ["tool", "assistant", "tool"]
    assert got.report.calls_without_result == 0
    assert got.trajectories[0].task == "astropy/astropy"


def test_two_commands_are_no_call_and_the_complaint_is_injected(read):
    twice = {"role": "assistant", "content": ACT["content"] * 2}
    complaint = {"role": "user", "content": "Please always provide EXACTLY ONE action"}
    got = read([*HEAD, ACT, SEEN, twice, complaint, ACT, {"role": "exit", "content": "diff"}])
    assert got.messages[4].calls == ()
    assert got.messages[4].text == twice["content"]
    assert (got.messages[5].role, got.messages[5].genuine) == ("user", False)
    assert (got.messages[7].role, got.messages[7].text) == ("tool", "diff")


def test_newer_files_with_raw_copies(read):
    """Quirks 5 and 25: `extra` repeats the raw answer; `info` holds the submission."""
    run = {
        "trajectory_format": "mini-swe-agent-1.1",
        "info": {"submission": "diff --git", "model_stats": {"instance_cost": 1}},
        "messages": [
            *HEAD,
            ACT | {"extra": {"response": {"text": ACT["content"]}, "actions": ["cat"]}},
            SEEN | {"extra": {"raw_output": "x", "returncode": 0}},
        ],
    }
    got = read(run)
    assert len(got.messages) == 4
    assert got.messages[3].role == "tool"
    assert got.report.drops.dropped["gold"] == len("diff --git")


def test_responses_models_store_turns_without_role(read):
    turn = {
        "object": "response",
        "id": "resp_1",
        "output": [
            {"type": "reasoning", "encrypted_content": "blob", "summary": [{"text": "why"}]},
            {"type": "message", "content": [{"type": "output_text", "text": "I run it."}]},
            {"type": "function_call", "call_id": "c", "name": "bash", "arguments": '{"c":"ls"}'},
            {"type": "web_search_call", "id": "w"},
        ],
    }
    result = {"type": "function_call_output", "call_id": "c", "output": "a.py"}
    run = {"trajectory_format": "mini-swe-agent-2", "messages": [*HEAD, turn, result]}
    got = read(run)
    assert got.messages[2].text == "I run it."
    assert got.messages[2].calls[0].arguments == '{"c":"ls"}'
    assert (got.messages[3].role, got.messages[3].text, got.messages[3].name) == (
        "tool", "a.py", "bash"
    )  # fmt: skip
    assert got.report.drops.dropped["signature"] == len("blob")
    assert got.report.drops.notes["response item of type 'web_search_call' left out"] == 1

"""Anthropic blocks: results in user turns, signed thinking, injected text."""


def test_results_come_out_of_user_turns(read):
    """Quirk 4 and case 4: a turn with text and a result gives both, the result first."""
    row = {
        "system": [{"type": "text", "text": "sys", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hidden", "signature": "SIG" * 100},
                    {"type": "redacted_thinking", "data": "blob"},
                    {"type": "text", "text": "I "},
                    {"type": "text", "text": "look."},
                    {"type": "tool_use", "id": "t1", "name": "Read", "input": {"p": "a", "n": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "also fix X"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "is_error": True,
                        "content": [
                            {"type": "text", "text": "out"},
                            {"type": "image", "source": {"data": "AAAA", "type": "base64"}},
                        ],
                    },
                    {"type": "text", "text": "<system-reminder>\nbe brief\n</system-reminder>"},
                ],
            },
            {"role": "assistant", "content": []},
        ],
    }
    got = read(row)
    assert got.report.format == "anthropic-messages"
    assert [m.role for m in got.messages] == [
        "system", "user", "assistant", "tool", "user", "user"
    ]  # fmt: skip
    said, result, text, reminder = got.messages[2:]
    assert said.text == "I look."
    assert said.calls[0].arguments == '{"p": "a", "n": 1}'
    assert (result.text, result.call_id, result.name, result.is_error) == (
        "out", "t1", "Read", True
    )  # fmt: skip
    assert (text.text, text.genuine, reminder.genuine) == ("also fix X", True, False)
    dropped = got.report.drops.dropped
    assert dropped["reasoning"] == len("hidden")
    assert dropped["signature"] == 300 + len("blob")
    assert dropped["image"] == len("image" + "AAAA" + "base64")


def test_blocks_in_chat_rows_are_never_lost(read):
    """Rows of one file may differ: the first has plain text, the second has blocks."""
    plain = {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}
    use = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "r"}
    blocks = {
        "messages": [
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [result]},
        ]
    }
    got = read([plain, blocks], "rows.jsonl")
    assert [t.format for t in got.trajectories] == ["openai-chat", "anthropic-messages"]
    assert (got.report.calls, got.report.results, got.report.calls_without_result) == (1, 1, 0)


def test_unknown_blocks_and_orphans_are_reported(read):
    """Quirk 11: unanswered call, orphan result; never paired by position."""
    row = {
        "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f"}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "b", "content": None},
                    {"type": "new_thing", "payload": "zzz"},
                    None,
                ],
            },
            {"role": "narrator", "content": "once"},
        ]
    }
    got = read(row)
    assert (got.report.calls_without_result, got.report.results_without_call) == (1, 1)
    assert got.report.drops.notes["content part of type 'new_thing' left out"] == 1
    assert got.report.drops.dropped["unreadable"] > 0

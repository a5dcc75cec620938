"""SWE-agent histories: copies, demonstrations, actions in text."""

import pytest

from sumone.data.formats.fields import repository_of

TICKS = "Let me look.\n\n```\nopen a.py 12\n```"


def history(*items: dict[str, object]) -> dict[str, object]:
    head = [
        {"role": "system", "content": "sys", "agent": "main"},
        {"role": "user", "content": "issue", "agent": "main"},
    ]
    return {"history": [*head, *({"agent": "main", **item} for item in items)], "environment": "e"}


def test_actions_and_observations_in_text(read):
    """Quirks 3 and 4: the last fence is the action; its first word is the tool."""
    run = history(
        {"role": "assistant", "content": TICKS, "thought": "Let me look.\n\n", "action": "open"},
        {"role": "user", "content": "[File: a.py]\n\x00\x1b[0m"},
        {"role": "assistant", "content": "first\n```py\nx = 1\n```\nthen\n```\nsubmit\n```\n"},
    )
    got = read(run, "pydicom__pydicom-1458.traj")
    call = got.messages[2].calls[0]
    assert (got.messages[2].text, call.name, call.arguments, call.id) == (
        "Let me look.", "open", "a.py 12", ""
    )  # fmt: skip
    assert got.messages[3].role == "tool"
    assert got.messages[3].name == "open"
    assert got.messages[3].text == "[File: a.py]\n\x00\x1b[0m"
    assert got.messages[4].text == "first\n```py\nx = 1\n```\nthen"
    assert got.messages[4].calls[0].name == "submit"
    assert got.report.calls_without_result == 1
    assert got.trajectories[0].task == "pydicom/pydicom"
    assert got.report.drops.dropped["copy"] == len("Let me look.\n\n" + "open")


def test_xml_command_rendering(read):
    run = history(
        {"role": "assistant", "content": "t\n<command>\ncreate a.py\n</command>"},
        {"role": "user", "content": "ok"},
        {"role": "assistant", "content": "I forgot the command"},
        {"role": "user", "content": "Your output was not formatted correctly"},
    )
    got = read(run)
    assert got.messages[2].calls[0].arguments == "a.py"
    assert got.messages[2].text == "t"
    assert [m.role for m in got.messages[3:]] == ["tool", "assistant", "user"]
    assert [m.genuine for m in got.messages if m.role == "user"] == [True, False]


def test_steps_are_copies_where_there_is_a_history(read):
    """Quirks 5, 17 and 18."""
    run = history({"role": "assistant", "content": TICKS}, {"role": "user", "content": "seen"})
    copies = run["history"]
    step = {"response": TICKS, "observation": "seen", "action": "open a.py", "messages": copies}
    run |= {"trajectory": [step, step], "info": {"submission": "diff"}, "replay_config": "{}"}
    got = read(run)
    assert len(got.messages) == 4
    assert got.report.drops.dropped["gold"] == len("diff")
    assert got.report.drops.dropped["copy"] > 2 * len(TICKS)
    alone = read({"trajectory": [step, step, None], "environment": "x"})
    assert [m.role for m in alone.messages] == ["assistant", "tool"] * 2
    assert alone.messages[1].text == "seen"
    empty = read({"history": [], "trajectory": [step]})
    assert len(empty.messages) == 2


def test_native_calls_and_list_content(read):
    """Quirks 1, 2 and 24: `tool_call_ids` is a list."""
    call = {"id": "c", "index": 1, "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    run = history(
        {"role": "assistant", "content": "go", "tool_calls": [call], "thought": "go"},
        {"role": "tool", "content": [{"type": "text", "text": "a\r\nb"}], "tool_call_ids": ["c"]},
        {"role": "user", "content": [{"type": "text", "text": "warning"}]},
    )
    got = read(run)
    assert got.messages[3].text == "a\r\nb"
    assert got.messages[3].call_id == "c"
    assert got.report.calls_without_result == 0
    assert not got.messages[4].genuine


def test_demonstrations_are_pinned_and_not_genuine(read):
    """Quirk 16."""
    run = history({"role": "user", "content": "DEMO " + TICKS, "is_demo": True})
    got = read(run)
    assert [(m.pinned, m.genuine) for m in got.messages] == [
        (False, True), (False, True), (True, False)
    ]  # fmt: skip
    assert got.messages[2].text.startswith("DEMO")


@pytest.mark.parametrize(
    ("instance", "repository"),
    [
        ("pandas-dev__pandas.95280573.pr_53652", "pandas-dev/pandas"),
        ("getmoto__moto.694ce1f4.combine_file__0a1b", "getmoto/moto"),
        ("marshmallow-code__marshmallow-1867", "marshmallow-code/marshmallow"),
        ("scikit-learn__scikit-learn-10297", "scikit-learn/scikit-learn"),
        ("python-hyper__h11.bed0dd4a.func_basic__x", "python-hyper/h11"),
        ("BabyEncryption", "BabyEncryption"),
        ("", ""),
    ],
)
def test_repository_of_an_instance(instance, repository):
    assert repository_of(instance) == repository

"""OpenSeeker and WebDancer: everything is in the text."""

import json

import pytest

PROMPT = 'Use <tool_call>\n{"name": "x", "arguments": {...}}\n</tool_call>\n\nUser: who?'
CALL = '{"name": "search", "arguments": {"query": ["a  b", "</tool_call>"], "n": 1.0}}'


def row(*turns: str, **extra: object) -> dict[str, object]:
    roles = ["user", *["assistant", "user"] * len(turns)]
    messages = [{"role": r, "content": t} for r, t in zip(roles, [PROMPT, *turns], strict=False)]
    return {"question": "who?", "answer": "me", "trajectory": messages, **extra}


def test_calls_and_results_in_text(read):
    """Quirks 3, 4 and 24: arguments keep the source's own JSON, results pair by order."""
    turn = (
        f"<think>hm <tool_call>{{}}</tool_call></think>\n<tool_calls_begin>\n<tool_call>\n{CALL}\n"
    )
    turn += '</tool_call>\n<tool_call>{"arguments": {"url": "u"}, "name": "visit"}</tool_call>\n'
    turn += "</tool_calls_end>"
    seen = "<tool_response>\nr1\n</tool_response>\n<tool_response>\nr2 </tool_response> x\n"
    seen += "</tool_response>"
    got = read(
        row(
            turn,
            seen,
            "<answer>me</answer>",
            **{"number of tool calls": 2, "trajectory correctness": "Correct"},
        )
    )
    assert got.report.format == "openseeker"
    said, first, second = got.messages[1:4]
    assert said.text == "<think>hm <tool_call>{}</tool_call></think>"
    assert [call.name for call in said.calls] == ["search", "visit"]
    assert said.calls[0].arguments == '{"query": ["a  b", "</tool_call>"], "n": 1.0}'
    assert {call.id for call in said.calls} == {""}
    assert (first.role, first.name, first.text) == ("tool", "search", "r1")
    assert (second.name, second.text) == ("visit", "r2 </tool_response> x")
    assert got.messages[0].text == PROMPT
    assert got.messages[4].text == "<answer>me</answer>"
    assert got.trajectories[0].task == "who?"
    assert got.trajectories[0].domain == "search"
    assert got.report.drops.dropped["gold"] == len("me")
    assert got.report.calls_without_result == got.report.results_without_call == 0


@pytest.mark.parametrize(
    "body",
    [
        '{"name": "search", "arguments": {"query": ["a"}}',
        '{"name": "search", "arguments": {...}}',
        '{"name": 7, "arguments": {}}',
        '{"name": "a", "name": "b"}',
        '{"arguments": {}}',
        '["search"]',
        "",
        '{"name": "search"} and more',
    ],
)
def test_malformed_calls_stay_text(read, body):
    turn = f"<think>t</think>\n<tool_call>{body}</tool_call>"
    got = read(row(turn, "<tool_response>error</tool_response>"))
    assert got.messages[1].text == turn
    assert got.messages[1].calls == ()
    assert got.report.drops.notes["malformed call kept as text"] == 1
    assert (got.messages[2].role, got.report.results_without_call) == ("tool", 1)


def test_counts_that_differ_and_text_of_the_harness(read):
    """Calls and responses differ in number; a warning stands before the response."""
    turn = f"<tool_call>{CALL}</tool_call>"
    got = read(row(turn, "Too many tools.\n<tool_response>a</tool_response><tool_response>b", turn))
    roles = [(m.role, m.text, m.genuine) for m in got.messages[2:5]]
    assert roles == [
        ("tool", "a", True), ("tool", "b", True), ("user", "Too many tools.\n", False)
    ]  # fmt: skip
    assert got.report.results_without_call == 1
    assert got.report.calls_without_result == 1
    got = read(row(turn, "no tags at all"))
    assert (got.messages[2].role, got.messages[2].genuine) == ("user", False)


def test_string_arguments_and_missing_arguments(read):
    """Quirk 2: a string in a string is taken as it reads."""
    inner = json.dumps({"q": "a\nb"})
    turn = "<tool_call>" + json.dumps({"name": "f", "arguments": inner}) + "</tool_call>"
    got = read(row(turn + '<tool_call>{"name": "g"}</tool_call>'))
    assert [call.arguments for call in got.messages[1].calls] == [inner, ""]


def test_webdancer_rows(read):
    """Quirks 3 and 24: the `tool_calls` column is an empty list, `answer` a list of lists."""
    run = {
        "type": "chatml",
        "messages": row(f"<tool_call>{CALL}</tool_call>", "<tool_response>a</tool_response>")[
            "trajectory"
        ],
        "functions": [{"name_for_model": "search"}],
        "tool_calls": [],
        "answer": [["gold"]],
    }
    got = read([run], "rows.jsonl")
    assert got.report.format == "openseeker"
    assert got.trajectories[0].task == "who?"
    assert got.report.drops.dropped["tools"] == len("search")
    assert got.report.drops.dropped["gold"] == len("gold")


def test_trajectory_as_a_json_string(read):
    run = row("<answer>x</answer>")
    run["trajectory"] = json.dumps(run["trajectory"])
    assert len(read([run], "rows.jsonl").messages) == 2

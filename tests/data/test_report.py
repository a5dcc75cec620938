"""The read report: both sides of the conservation are counted independently."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sumone.data import REASONS, Report, render_report, show
from sumone.data.report import Drops, message_characters, string_characters
from sumone.types import Message, ToolCall, Trajectory

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def _recursive_count(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_recursive_count, value.values()))
    return sum(map(_recursive_count, value)) if isinstance(value, list) else 0


@given(JSON)
def test_string_characters_counts_values_not_keys(value):
    assert string_characters(value) == _recursive_count(value)


def test_deep_values_do_not_overflow_the_stack():
    value: object = "x"
    for _ in range(50_000):
        value = [value]
    assert string_characters(value) == 1


@given(JSON)
def test_arguments_from_an_object_count_like_the_object(value):
    text = json.dumps(value, ensure_ascii=False)
    call = ToolCall(id="never counted", name="f", arguments=text, from_object=True)
    message = Message(role="assistant", text="ab", calls=(call,))
    assert message_characters([message]) == 3 + string_characters(value)


def test_pairs_are_counted():
    call = ToolCall(id="1", name="f")
    messages = (
        Message(role="tool", call_id="9"),
        Message(role="assistant", calls=(call, ToolCall(id="2", name="g"))),
        Message(role="tool", call_id="1"),
        Message(role="tool", call_id="1"),
        Message(role="assistant", calls=(ToolCall(name="h"), ToolCall(name="i"))),
        Message(role="tool"),
    )
    report = Report()
    report.give_out(Trajectory(id="t", format="f", source="s", messages=messages))
    assert (report.calls, report.results) == (4, 4)
    assert report.calls_without_result == 2
    assert report.results_without_call == 1
    assert report.repeated_results == 1


def test_a_wrong_adapter_shows():
    report = Report()
    report.take_in({"text": "abc"})
    assert not report.conserved
    assert "DOES NOT ADD UP" in render_report(report)
    report.drops.drop("metadata", ["ab", {"key": "c"}])
    assert report.conserved


def test_reasons_are_a_closed_vocabulary():
    drops = Drops()
    with pytest.raises(KeyError):
        drops.drop("whatever", "x")
    drops.drop("id", None)
    assert drops.dropped == {}
    assert all(REASONS.values())


def test_show_tells_what_was_read(tmp_path):
    path = tmp_path / "run.jsonl"
    row = {
        "messages": [
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "robot", "content": "\ud83d"},
        ]
    }
    path.write_text(json.dumps(row) + "\nnull\n")
    text = render_report(show(path))
    assert str(path) in text
    assert "openai-chat" in text
    assert "messages     2" in text
    assert "calls        1" in text
    assert "1 calls without result" in text
    assert "skipped line 2: a JSON null where an object is needed" in text
    assert "message with role 'robot' left out (1x)" in text
    assert "dropped" in text
    assert "DOES NOT" not in text
    text.encode()

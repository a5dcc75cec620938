"""Rendering: pure, complete, with the places where blocks may end."""

from hypothesis import given
from hypothesis import strategies as st

from sumone.render import Boundary, render, render_text
from sumone.types import Message, ToolCall

text = st.text(max_size=30)
call = st.builds(ToolCall, id=st.sampled_from(["", "x"]), name=st.just("f"), arguments=text)
message = st.one_of(
    st.builds(Message, role=st.just("user"), text=text),
    st.builds(Message, role=st.just("assistant"), text=text, calls=st.lists(call).map(tuple)),
    st.builds(Message, role=st.just("tool"), text=text, call_id=st.sampled_from(["", "x"])),
)


@given(st.lists(message, max_size=8))
def test_everything_is_rendered_and_parts_start_lines(messages: list[Message]) -> None:
    rendered = render(messages)
    for item in messages:
        assert item.text in rendered.text
        assert all(c.arguments in rendered.text for c in item.calls)
    offsets = [offset for offset, _ in rendered.parts]
    assert offsets == sorted(set(offsets))
    assert all(offset == 0 or rendered.text[offset - 1] == "\n" for offset in offsets)
    assert all(rendered.text[offset] == "[" for offset in offsets)
    assert rendered.text == "" or rendered.text.endswith("\n")


def test_headings_and_ranks() -> None:
    one = ToolCall(id="c1", name="read", arguments='{"page": 3}')
    two = ToolCall(id="c2", name="look", arguments="{}")
    messages = [
        Message(role="assistant", text="Checking.", calls=(one,)),
        Message(role="tool", call_id="c1", name="read", text="page 3"),
        Message(role="assistant", calls=(one, two)),
        Message(role="tool", call_id="c2", name="look", text="nothing", is_error=True),
        Message(role="user", text="old facts", memory=True),
    ]
    rendered = render(messages)
    assert rendered.text == (
        "[assistant]\nChecking.\n[call read #c1]\n"
        '{"page": 3}\n[result read #c1]\npage 3\n[call read #c1]\n{"page": 3}\n'
        "[call look #c2]\n{}\n[result look #c2 error]\nnothing\n[memory]\nold facts\n"
    )
    assert [rank for _, rank in rendered.parts] == [
        Boundary.ROLE, Boundary.CALL, Boundary.CALL, Boundary.ROLE, Boundary.CALL,
        Boundary.CALL, Boundary.ROLE,
    ]  # fmt: skip
    assert "#" not in render_text(messages[:2])

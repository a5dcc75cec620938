"""Split and rejoin: nothing is lost, nothing new is broken, the tail never changes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sumone.compaction import is_memory, memory_message, pairing, rejoin, split
from sumone.config import CompactionSettings
from sumone.tokens import ByteEstimate
from sumone.types import CompactionInstance, Message, ToolCall

TOKENS = ByteEstimate()


def system(text: str = "You are an agent.") -> Message:
    return Message(role="system", text=text)


def user(text: str, genuine: bool = True) -> Message:
    return Message(role="user", text=text, genuine=genuine)


def call(*ids: str, text: str = "") -> Message:
    calls = tuple(ToolCall(id=i, name="read", arguments="{}") for i in ids)
    return Message(role="assistant", text=text, calls=calls)


def result(call_id: str, text: str = "ok") -> Message:
    return Message(role="tool", call_id=call_id, name="read", text=text)


def cut(messages: list[Message], recent: int = 20, keep_user: int = 0) -> CompactionInstance | None:
    settings_ = CompactionSettings(recent_tokens=recent, keep_user_tokens=keep_user)
    return split(messages, settings_, TOKENS)


def must_cut(messages: list[Message], recent: int = 20, keep_user: int = 0) -> CompactionInstance:
    instance = cut(messages, recent, keep_user)
    assert instance is not None
    return instance


ID = st.sampled_from(["", "a", "b", "c", "d", "e"])
message = st.one_of(
    st.builds(user, st.sampled_from(["do it", "", "also x"]), st.booleans()),
    st.builds(system, st.sampled_from(["mid system"])),
    st.builds(lambda t: Message(role="assistant", text=t), st.sampled_from(["", "thinking"])),
    st.lists(ID, min_size=1, max_size=3).map(lambda ids: call(*ids)),
    st.builds(result, ID, st.sampled_from(["ok", "long " * 30])),
    st.builds(memory_message, st.just("old facts")),
    st.builds(lambda: Message(role="user", text="demonstration", pinned=True, genuine=False)),
)
conversation = st.tuples(
    st.lists(st.just(system()), max_size=1),
    st.lists(st.just(user("the task")), max_size=1),
    st.lists(message, max_size=25),
).map(lambda parts: [*parts[0], *parts[1], *parts[2]])


def violations(messages: list[Message]) -> dict[str, int]:
    """What is wrong with a message list, counted by kind."""
    pairs = pairing(messages)
    later_systems = sum(m.role == "system" for m in messages[1:])
    genuine = any(
        m.role == "user" and m.genuine and not is_memory(m) and m.text.strip() for m in messages
    )
    return {
        "orphan results": len(pairs.orphan_results),
        "unanswered calls": len(pairs.unanswered_calls),
        "repeated results": len(pairs.repeated_results),
        "later system messages": later_systems,
        "no system first": int(bool(messages) and messages[0].role != "system"),
        "no genuine user": int(not genuine),
        "ends with assistant": int(bool(messages) and messages[-1].role == "assistant"),
    }


@given(conversation, st.integers(0, 120), st.integers(0, 40))
@settings(max_examples=600, deadline=None)
def test_rejoin_adds_no_violation(messages: list[Message], recent: int, keep: int) -> None:
    instance = cut(messages, recent, keep)
    if instance is None:
        return
    after = rejoin(instance, "the summary")
    before, now = violations(messages), violations(after)
    assert {k: v for k, v in now.items() if v > before[k]} == {}
    # Everything is somewhere, once; context is verbatim and the tail unchanged.
    parts = [*instance.preamble, *instance.memory, *instance.history, *instance.recent]
    key = repr
    assert sorted(map(key, parts)) == sorted(map(key, messages))
    assert instance.recent and tuple(messages[-len(instance.recent) :]) == instance.recent
    assert sum(map(is_memory, after)) == 1
    assert not any(is_memory(m) for m in instance.context)
    # A call and its results are never separated.
    for unit in pairing(messages).units:
        partners = [m for m in (messages[i] for i in unit) if m.calls or m.role == "tool"]
        sides = {id(m) for m in instance.history} & {id(m) for m in partners}
        assert len(sides) in (0, len({id(m) for m in partners})) or len(unit) == 1
    # History keeps its order.
    positions = [next(i for i, m in enumerate(messages) if m is h) for h in instance.history]
    assert positions == sorted(positions)


def test_parallel_calls_stay_together() -> None:
    messages = [
        system(),
        user("task"),
        call("old"),
        result("old", "x" * 300),
        call("t1", "t2", "t3"),
        result("t1"),
        user("also fix X"),
        result("t2"),
        result("t3"),
        user("go on"),
    ]
    instance = must_cut(messages, recent=60)
    ids = {c.id for m in instance.recent for c in m.calls}
    assert ids in ({"t1", "t2", "t3"}, set())
    assert [m.call_id for m in instance.recent if m.role == "tool"] == (
        ["t1", "t2", "t3"] if ids else []
    )


def test_reused_ids_pair_with_the_nearest_earlier_call() -> None:
    messages = [call("a"), result("a"), call("a"), result("a"), result("a")]
    pairs = pairing(messages)
    assert [list(unit) for unit in pairs.units] == [[0, 1], [2, 3, 4]]
    assert pairs.repeated_results == (4,)
    assert not pairs.orphan_results and not pairs.unanswered_calls


def test_results_without_ids_pair_only_with_the_nearest_calls_without_ids() -> None:
    messages = [call("", ""), result(""), result(""), result(""), call("x"), result("")]
    pairs = pairing(messages)
    assert pairs.orphan_results == (3, 5)
    assert pairs.unanswered_calls == (4,)
    assert list(pairs.units[0]) == [0, 1, 2]


def test_broken_pairs_in_the_history_are_folded() -> None:
    messages = [system(), user("task"), result("ghost"), call("lost"), user("x" * 90), user("end")]
    instance = must_cut(messages)
    assert [m.call_id for m in instance.history if m.role == "tool"] == ["ghost"]
    assert violations(rejoin(instance, "s"))["orphan results"] == 0


def test_the_old_memory_is_replaced_and_the_rest_stays() -> None:
    first = [system(), user("task"), call("a"), result("a", "alpha " * 40), call("b"), result("b")]
    instance = must_cut(first, recent=5)
    second = [*rejoin(instance, "fact one"), call("c"), result("c", "beta " * 40), user("next")]
    again = must_cut(second, recent=5)
    assert [m.text for m in again.memory] == [memory_message("fact one").text]
    assert again.preamble == tuple(first[:2])
    after = rejoin(again, "fact one, fact two")
    assert [m.text for m in after if is_memory(m)] == [memory_message("fact one, fact two").text]
    assert again.expired == again.memory + again.history


def test_a_memory_is_recognised_without_its_mark() -> None:
    plain = Message(role="user", text=memory_message("old").text)
    assert is_memory(plain) and not is_memory(user("old"))


def test_kept_messages_move_in_order_to_the_end_of_the_preamble() -> None:
    messages = [system(), user("task"), call("a"), user("second wish"), result("a", "x" * 200)]
    messages += [user("third wish"), call("b"), result("b", "y" * 200), user("last")]
    instance = must_cut(messages, recent=5, keep_user=100)
    texts = [m.text for m in instance.preamble]
    assert texts == ["You are an agent.", "task", "second wish", "third wish"]
    chosen = split(
        messages,
        CompactionSettings(recent_tokens=5),
        TOKENS,
        keep=lambda m: m.text == "third wish",
    )
    assert chosen is not None
    assert [m.text for m in chosen.preamble][2:] == ["third wish"]


@pytest.mark.parametrize(
    "messages",
    [[], [system()], [system(), user("task")], [user("only")], [call("a"), result("a")]],
)
def test_nothing_to_compact_is_none(messages: list[Message]) -> None:
    assert cut(messages) is None


def test_nothing_happens_right_after_a_compaction() -> None:
    assert cut([system(), user("task"), call("a"), result("a"), memory_message("m")]) is None


def test_ids_are_content_hashes() -> None:
    messages = [system(), user("task"), call("a"), result("a", "x" * 200), user("end")]
    one, two = must_cut(messages), must_cut(list(messages))
    other = must_cut([*messages[:-1], user("END")])
    assert one.id == two.id != other.id

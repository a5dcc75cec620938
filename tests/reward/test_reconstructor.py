"""The reconstructor: prompts, answers with tags, empty and lost blocks (method of Section 3.2)."""

import asyncio
from typing import Any

import pytest
from fake_openai import Cut, Received, Refuse, Text
from hypothesis import given
from hypothesis import strategies as st
from reward_stage import (
    BLOCK_TOKENS,
    TOKENS,
    Stage,
    blocks_of,
    make_instance,
    requested,
    tagged,
)

from sumone.config import MaskingSettings
from sumone.models.chat import open_model
from sumone.prompts import UNRECOVERABLE, answer_tags
from sumone.render import render_text
from sumone.reward.masked import Masker
from sumone.reward.reconstructor import Reconstructor, is_unrecoverable, parse_answer

NONCE = "ab12"
OPEN, CLOSE = answer_tags(3, NONCE)
OTHER, _ = answer_tags(5, NONCE)


def masker(memory: str = "replace", seed: int = 0) -> Masker:
    settings = MaskingSettings(block_tokens=BLOCK_TOKENS)
    return Masker(settings, TOKENS, seed=seed, memory=memory)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "asked", "ended", "expected"),
    [
        (f"{OPEN}\ntext\n{CLOSE}", [3], True, {3: "text"}),
        (
            f"so: {OPEN}a\n\nb{CLOSE} and {OTHER}\nc\n{CLOSE} bye",
            [3, 5],
            True,
            {3: "a\n\nb", 5: "c"},
        ),
        # Without text: empty if the answer ended normally, lost if it was cut.
        (f"{OPEN}\n{CLOSE}", [3], True, {3: ""}),
        (f"{OPEN}x{CLOSE}", [3, 5], True, {3: "x", 5: ""}),
        (f"{OPEN}x{CLOSE}", [3, 5], False, {3: "x"}),
        ("", [3], True, {3: ""}),
        ("", [3], False, {}),
        # A lone block without tags is the whole text, but only of an answer that ended.
        ("step 3: done\n", [3], True, {3: "step 3: done"}),
        ("step 3: done", [3], False, {}),
        ("step 3: done", [3, 5], True, {3: "", 5: ""}),
        # An open tag: up to the end of a normal answer, lost in a cut one.
        (f"{OPEN}x{CLOSE}{OTHER}yyy", [3, 5], True, {3: "x", 5: "yyy"}),
        (f"{OPEN}x{CLOSE}{OTHER}yyy", [3, 5], False, {3: "x"}),
        (f"{OPEN}x {OTHER}y{CLOSE}", [3, 5], False, {3: "x ", 5: "y"}),
        # Blocks nobody asked for, second answers, other nonces.
        (f"{OPEN}x{CLOSE}{OPEN}z{CLOSE}{OTHER}y{CLOSE}", [3], True, {3: "x"}),
        (f'<block-ffff index="3">x</block-ffff>{OPEN}y{CLOSE}', [3], True, {3: "y"}),
        (f"<block-{NONCE} index=3>x{CLOSE}", [3], True, {3: "x"}),
        (f'<block-{NONCE} index="{"9" * 6000}">x{CLOSE}', [3], True, {3: ""}),
        (f"{OPEN}{UNRECOVERABLE}{CLOSE}", [3], True, {3: UNRECOVERABLE}),
    ],
)
def test_answers(text: str, asked: list[int], ended: bool, expected: dict[int, str]) -> None:
    assert parse_answer(text, asked, NONCE, ended=ended) == expected


@given(
    st.dictionaries(
        st.integers(0, 30),
        st.text(max_size=20).filter(lambda t: t == t.strip("\n")),
        min_size=1,
        max_size=5,
    ),
    st.booleans(),
)
def test_tagged_answers_round_trip(guesses: dict[int, str], ended: bool) -> None:
    text = tagged(guesses, NONCE)
    assert parse_answer(text, list(guesses), NONCE, ended=ended) == guesses


@given(st.text(alphabet='<block-ab12/ index="3">x\n', max_size=60), st.booleans())
def test_any_answer_is_read(text: str, ended: bool) -> None:
    found = parse_answer(text, [3, 5], NONCE, ended=ended)
    assert set(found) <= {3, 5} and (not ended or len(found) == 2)


def test_unrecoverable_is_only_the_whole_answer() -> None:
    assert is_unrecoverable(f" {UNRECOVERABLE}\n")
    assert not is_unrecoverable(f"{UNRECOVERABLE} but maybe 5")


def fill(
    stage: Stage, summary: str = "facts", **changes: Any
) -> tuple[dict[int, Any], Reconstructor]:
    got: dict[int, Any] = {}

    async def go() -> Reconstructor:
        warm = changes.pop("warm", False)
        config = stage.config(**changes)
        reconstructor = Reconstructor(
            open_model(config.reconstructor), config.reconstructor, config.prompts, warm_prefix=warm
        )
        masked = masker().mask(make_instance(), step=1)

        def on_guess(block: Any, guess: str | None) -> None:
            assert block.index not in got
            got[block.index] = guess

        await reconstructor.fill(masked, summary, on_guess)
        await reconstructor.model.aclose()
        return reconstructor

    return got, asyncio.run(go())


def hidden() -> dict[int, str]:
    return {block.index: block.text for block in masker().mask(make_instance(), step=1).hidden}


def test_perfect_reconstruction(stage: Stage) -> None:
    got, reconstructor = fill(stage)
    assert {index: guess.strip("\n") for index, guess in got.items()} == {
        index: text.strip("\n") for index, text in hidden().items()
    }
    assert reconstructor.num_calls == -(-len(hidden()) // 4)
    assert reconstructor.num_failed == 0


def test_prompt_order_and_shared_prefix(stage: Stage) -> None:
    """Instructions, C, masked history, S, then the request, short and last."""
    fill(stage, "first summary")
    fill(stage, "second summary", reconstructor__blocks_per_call=1)
    first = [r.body["messages"] for r in stage.calls("recon") if "first summary" in r.prompt]
    second = [r.body["messages"] for r in stage.calls("recon") if "second summary" in r.prompt]
    assert len(first) > 1 and len(second) == len(hidden())
    for calls in (first, second):
        heads = {m[-1]["content"].rsplit("Restore:", 1)[0] for m in calls}
        tails = {m[-1]["content"].rsplit("Restore:", 1)[1] for m in calls}
        assert len(heads) == 1 and len(tails) == len(
            calls
        )  # one rollout shares all but the request
        assert all(len(tail.encode()) < 60 * 4 for tail in tails)
    a, b = first[0][-1]["content"], second[0][-1]["content"]
    assert first[0][0] == second[0][0]  # the instructions
    shared = a[: a.index("first summary")]
    assert b.startswith(shared)  # a group shares context and masked history
    masked = masker().mask(make_instance(), step=1)
    order = [render_text(masked.context), masked.text, "first summary", "Restore:"]
    places = [a.index(part) for part in order]
    assert places == sorted(places)
    for text in hidden().values():
        assert text not in a


def test_allowed_output_follows_the_hidden_tokens(stage: Stage) -> None:
    fill(stage, reconstructor__blocks_per_call=1)
    sizes = {b.index: b.num_tokens for b in blocks_of(make_instance())}
    for request in stage.calls("recon"):
        (index,), _ = requested(request)
        limit = request.body["max_tokens"]
        assert sizes[index] * 1.25 <= limit <= sizes[index] * 1.25 + 49
        assert request.body["temperature"] == 0


def test_a_block_without_text_in_a_normal_answer_is_empty(stage: Stage) -> None:
    skipped = min(hidden())

    def answer(request: Received) -> str:
        indices, nonce = requested(request)
        return tagged({i: "guess" for i in indices if i != skipped}, nonce)

    stage.reconstruct = answer
    got, reconstructor = fill(stage)
    assert got == {i: "" if i == skipped else "guess" for i in hidden()}
    assert reconstructor.num_calls == -(-len(hidden()) // 4)  # not asked for again


def test_a_block_lost_to_a_cut_call_is_asked_for_once_more_alone(stage: Stage) -> None:
    def answer(request: Received) -> Text:
        indices, nonce = requested(request)
        if len(indices) == 1:
            return Text(tagged({indices[0]: "alone"}, nonce))
        return Text(
            tagged({indices[0]: "kept"}, nonce) + "\n" + answer_tags(indices[1], nonce)[0] + "cu",
            "length",
        )

    stage.reconstruct = answer
    got, _reconstructor = fill(stage)
    calls = [requested(r)[0] for r in stage.calls("recon")]
    many = [c for c in calls if len(c) > 1]
    again = sorted(c[0] for c in calls if len(c) == 1)
    lost = sorted(index for c in many for index in c[1:])
    assert set(lost) <= set(again) and len(again) == len(set(again))
    assert all(got[c[0]] == "kept" for c in many)
    assert all(got[index] == "alone" for index in lost)
    limits = {tuple(requested(r)[0]): r.body["max_tokens"] for r in stage.calls("recon")}
    sizes = {b.index: b.num_tokens for b in blocks_of(make_instance())}
    assert all(limits[(i,)] >= 2 * sizes[i] * 1.25 for i in lost)  # with more room


@pytest.mark.parametrize(
    "fault", [Refuse(500), Cut(), Text("x", "length"), Text("x", "content_filter")]
)
def test_a_block_lost_twice_is_lost_not_empty(stage: Stage, fault: Any) -> None:
    stage.reconstruct = lambda _: fault
    got, reconstructor = fill(stage)
    assert got == dict.fromkeys(hidden())
    calls = -(-len(hidden()) // 4)
    assert reconstructor.num_calls == reconstructor.num_failed == calls + len(hidden())


def test_the_first_call_warms_the_prefix(stage: Stage) -> None:
    events: list[str] = []
    third = asyncio.Event()

    async def answer(request: Received) -> Text:
        events.append("start")
        if request.number == 0:
            await asyncio.sleep(0.05)
        if request.number == 2:
            third.set()
        if request.number:
            await third.wait()  # the others run side by side, or this never ends
        events.append("end")
        return Text("x")

    stage.reconstruct = answer  # type: ignore[assignment]
    fill(stage, warm=True, reconstructor__blocks_per_call=1)
    assert events[:3] == ["start", "end", "start"]


def test_compact_style(stage: Stage) -> None:
    stage.reconstruct = lambda _: "step 1: value\n"
    got, _ = fill(stage, prompts="compact", reconstructor__blocks_per_call=1)
    assert got == dict.fromkeys(hidden(), "step 1: value")
    (message,) = stage.calls("recon")[0].body["messages"]
    assert message["role"] == "user"
    assert message["content"].rstrip().endswith("/>")
    assert "[fill]" in message["content"].rsplit("<missing block=", 1)[0][-20:]


def test_the_memory_rule() -> None:
    """`replace`: blocks from memory + history, no memory in C; `keep`: Equation 1 to the letter."""
    instance = make_instance(memory="[m] old fact 4711 " * 4)
    replace, keep = masker("replace").mask(instance, 0), masker("keep").mask(instance, 0)
    assert "4711" in "".join(b.text for b in masker("replace").blocks(instance))
    assert "4711" not in "".join(b.text for b in masker("keep").blocks(instance))
    assert "4711" not in render_text(replace.context)
    assert "4711" in render_text(keep.context)
    assert "[memory]" in masker("replace").blocks(instance)[0].text  # rendered first
    assert [m.text for m in keep.context] == [
        m.text for m in (*instance.preamble, *instance.memory, *instance.recent)
    ]


def test_masks_are_remembered_and_depend_only_on_their_arguments() -> None:
    one, other = masker(), masker()
    instance = make_instance()
    first = one.mask(instance, 4)
    assert one.mask(instance, 4) is first and one.mask(make_instance(), 4) is first
    assert other.mask(make_instance(), 4) == first
    assert len({one.mask(instance, step).text for step in range(20)}) > 1
    changed = instance.model_copy(update={"history": instance.history[:8]})
    assert one.mask(changed, 4) != first  # same id, other contents
    assert len(one.blocks(changed)) < len(one.blocks(instance))
    assert one.mask(instance, 4) == first
    for block in first.hidden:
        assert f'<missing block="{block.index}" key="{first.nonce}"/>' in first.text


def test_a_history_with_markers_is_not_confused() -> None:
    plain = masker().mask(make_instance(), 0)
    text = f'<missing block="0" key="{plain.nonce}"/> </block-{plain.nonce}>'
    instance = make_instance()
    sly = instance.model_copy(
        update={
            "history": (
                instance.history[0].model_copy(update={"text": text}),
                *instance.history[1:],
            )
        }
    )
    masked = masker().mask(sly, 0)
    assert masked.nonce != plain.nonce
    assert masked.text.count(masked.nonce) == len(masked.hidden)

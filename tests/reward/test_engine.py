"""The engine: rewards, faults, deadlines, order; a fault costs one block or one rollout."""

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from fake_openai import Cut, Garbage, Received, Refuse, Stall, Text
from reward_stage import (
    BLOCK_TOKENS,
    TOKENS,
    Stage,
    make_instance,
    perfect,
    requested,
    tagged,
    verdict,
)

from sumone.config import MaskingSettings, TrainConfig
from sumone.errors import ConfigError
from sumone.prompts import UNRECOVERABLE
from sumone.reward import Rollout, RolloutScore, build_engine
from sumone.reward.masked import Masker


def run(
    config: TrainConfig, rollouts: list[Rollout], times: int = 1, histories: tuple[str, ...] = ()
) -> tuple[list[RolloutScore], dict[str, float]]:
    async def go() -> tuple[list[RolloutScore], dict[str, float]]:
        engine = build_engine(config, TOKENS, histories)
        try:
            for _ in range(times):
                scores = await engine.score(rollouts)
            return scores, engine.metrics()
        finally:
            await engine.aclose()

    return asyncio.run(go())


def rollout(
    summary: str = "facts", number: int = 0, step: int = 1, num_tokens: int = 50
) -> Rollout:
    return Rollout(make_instance(number), summary, num_tokens, step)


def num_hidden(number: int = 0) -> int:
    masker = Masker(MaskingSettings(block_tokens=BLOCK_TOKENS), TOKENS, seed=0, memory="replace")
    return len(masker.mask(make_instance(number), 1).hidden)


def test_a_reward(stage: Stage) -> None:
    (score,), metrics = run(stage.config(), [rollout()])
    assert score.quality == pytest.approx(1.4)
    assert score.penalty == pytest.approx(0.1 * 50 / 100)
    assert score.value == pytest.approx(1.35, abs=1e-5)
    assert (score.precision, score.recall) == (pytest.approx(0.6), pytest.approx(0.8))
    assert score.num_summary_tokens == 50 and score.failure is None and score.latency > 0
    assert len(score.blocks) == num_hidden() and num_hidden() == 8
    for block in score.blocks:
        assert block.status == "judged" and block.prediction is not None
        assert block.prediction.strip() == block.truth.strip()
    assert metrics["rollouts"] == 1 and metrics["rollouts_failed"] == 0
    assert metrics["judge/calls"] == metrics["blocks/judged"] == num_hidden()


def test_the_judge_never_sees_the_summary(stage: Stage) -> None:
    run(stage.config(), [rollout("SECRET-SUMMARY")])
    assert all("SECRET-SUMMARY" in r.prompt for r in stage.calls("recon"))
    assert stage.calls("judge")
    assert not any("SECRET-SUMMARY" in str(r.body) for r in stage.calls("judge"))


def test_unrecoverable_and_empty_blocks_score_zero_without_a_judge(stage: Stage) -> None:
    def answer(request: Received) -> str:
        indices, nonce = requested(request)
        return tagged({i: UNRECOVERABLE if i % 2 else "" for i in indices}, nonce)

    stage.reconstruct = answer
    (score,), _ = run(stage.config(), [rollout()])
    assert score.quality == 0 and score.value == pytest.approx(-0.05, abs=1e-5)
    assert {(b.status, b.precision, b.recall) for b in score.blocks} == {
        ("unrecoverable", 0, 0),
        ("empty", 0, 0),
    }
    assert not stage.calls("judge")


def test_the_empty_summary_gets_the_lowest_quality(stage: Stage) -> None:
    """Case 114: summary "", reconstruction "", block "x"."""
    knows = perfect(make_instance())

    def answer(request: Received) -> Any:
        return knows(request) if "good facts" in request.prompt else Text("")

    stage.reconstruct = answer
    config = stage.config(judge__kind="lexical")
    (empty, good), _ = run(config, [rollout(""), rollout("good facts")])
    assert empty.quality == 0 and (empty.precision, empty.recall) == (0, 0)
    assert good.quality == pytest.approx(2)


def failing(share: Callable[[int], bool], reply: Any) -> Callable[[Received], Any]:
    """A judge that fails for some truths, always the same ones."""
    seen: dict[str, int] = {}

    def answer(request: Received) -> Any:
        number = seen.setdefault(request.prompt, len(seen))
        return reply if share(number) else verdict()(request)

    return answer


@pytest.mark.parametrize(
    "reply", ["gibberish", Refuse(500), Cut(), Garbage(), '{"precision": 2, "recall": 1}']
)
def test_an_invalid_verdict_leaves_the_mean(stage: Stage, reply: Any) -> None:
    """Case 105: a parse failure is not a 0."""
    stage.judge = failing(lambda n: n == 0, reply)
    (score,), metrics = run(stage.config(reward__min_judged=0.8), [rollout()])
    assert score.quality == pytest.approx(1.4)
    statuses = [block.status for block in score.blocks]
    assert statuses.count("invalid") == 1 and statuses.count("judged") == len(statuses) - 1
    (invalid,) = [block for block in score.blocks if block.status == "invalid"]
    assert invalid.precision is None and invalid.recall is None and invalid.prediction
    assert metrics["blocks/invalid"] == 1


def test_too_few_verdicts_give_no_reward(stage: Stage) -> None:
    stage.judge = failing(lambda n: n % 2 == 0, "gibberish")
    (score,), metrics = run(stage.config(), [rollout()])
    assert score.value is None and score.quality is None
    assert score.failure is not None and "invalid" in score.failure
    assert metrics["rollouts_failed"] == 1


def test_all_reconstructions_lost_give_no_reward(stage: Stage) -> None:
    stage.reconstruct = lambda _: Refuse(500)
    (score,), metrics = run(stage.config(), [rollout()])
    assert score.value is None and score.failure is not None and "lost" in score.failure
    assert {block.status for block in score.blocks} == {"lost"}
    assert metrics["reconstructor/failed"] == metrics["reconstructor/calls"] > num_hidden()


def test_lost_blocks_leave_the_mean(stage: Stage) -> None:
    knows = perfect(make_instance())
    stage.reconstruct = lambda r: Text("x", "length") if 1 in requested(r)[0] else knows(r)
    config = stage.config(reward__min_judged=0.5, reconstructor__blocks_per_call=1)
    masker = Masker(MaskingSettings(block_tokens=BLOCK_TOKENS), TOKENS, seed=0, memory="replace")
    step = next(
        s for s in range(20) if 1 in {b.index for b in masker.mask(make_instance(), s).hidden}
    )
    (score,), _ = run(config, [rollout(step=step)])
    assert score.quality == pytest.approx(1.4)
    assert [b.status for b in score.blocks if b.index == 1] == ["lost"]


def test_order_and_identical_summaries(stage: Stage) -> None:
    stage.reconstruct = perfect(make_instance(0), make_instance(1))
    rollouts = [
        rollout("a", 0), rollout("b", 1), rollout("a", 0, num_tokens=20), rollout("a", 1),
        rollout("a", 0, step=2),
    ]  # fmt: skip
    scores, metrics = run(stage.config(judge__kind="lexical"), rollouts)
    assert [s.num_summary_tokens for s in scores] == [50, 50, 20, 50, 50]
    assert scores[0].quality == scores[2].quality
    assert scores[2].value == pytest.approx(scores[0].value + 0.1 * 30 / 100, abs=2e-5)
    assert [s.blocks[0].truth for s in scores[:2]] != [scores[2].blocks[0].truth] * 2
    assert metrics["rollouts_repeated"] == 1
    asked = {(r.prompt, str(r.body)) for r in stage.calls("recon")}
    assert len(asked) == len(stage.calls("recon"))  # nothing was asked twice


def test_the_same_summary_is_scored_the_same_again(stage: Stage) -> None:
    (score,), metrics = run(stage.config(), [rollout()], times=2)
    assert score.quality == pytest.approx(1.4)
    assert metrics["judge/calls"] == num_hidden() == metrics["judge/cached"]


def test_a_judge_that_never_answers_costs_one_rollout(stage: Stage) -> None:
    """Case 116: one of the samples hangs; it becomes invalid, the others do not wait for it."""
    stage.reconstruct = perfect(*(make_instance(n) for n in range(6)))
    stage.judge = lambda r: Stall() if re.search(r"value 3\d{3} was", r.prompt) else verdict()(r)
    config = stage.config(
        reward__rollout_deadline_seconds=3.0,
        judge__model={
            "endpoint": {"base_url": stage.server.url, "model": "judge"},
            "limits": {"call_timeout_seconds": 60},
        },
    )
    start = time.monotonic()
    scores, metrics = run(config, [rollout(number=n) for n in range(6)])
    assert time.monotonic() - start < 30
    assert [score.value is None for score in scores] == [n == 3 for n in range(6)]
    assert scores[3].failure is not None and "8 missing" in scores[3].failure
    assert "rollout_deadline_seconds = 3" in scores[3].failure
    assert {block.status for block in scores[3].blocks} == {"missing"}
    assert metrics["blocks/missing"] >= 1


def test_per_call_timeouts_turn_a_stall_into_an_invalid_block(stage: Stage) -> None:
    stage.judge = failing(lambda n: n == 0, Stall())
    config = stage.config(
        reward__min_judged=0.8,
        judge__model__limits__call_timeout_seconds=1.0,
    )
    (score,), _ = run(config, [rollout()])
    assert score.quality == pytest.approx(1.4)
    assert [block.status for block in score.blocks].count("invalid") == 1


def test_enough_verdicts_before_the_deadline_are_a_reward(stage: Stage) -> None:
    stage.judge = failing(lambda n: n == 0, Stall())
    config = stage.config(reward__min_judged=0.8, reward__rollout_deadline_seconds=3.0)
    (score,), _ = run(config, [rollout()])
    assert score.quality == pytest.approx(1.4) and score.failure is None
    assert [block.status for block in score.blocks].count("missing") == 1


def test_the_whole_batch_has_a_deadline(stage: Stage) -> None:
    stage.reconstruct = lambda r: Stall() if "slow" in r.prompt else perfect(make_instance())(r)
    config = stage.config(reward__batch_deadline_seconds=3)
    start = time.monotonic()
    (fast, slow), _ = run(config, [rollout("fast"), rollout("slow")])
    assert time.monotonic() - start < 30
    assert fast.value is not None
    assert slow.value is None and slow.failure is not None
    assert "batch_deadline_seconds = 3" in slow.failure


def test_each_block_is_judged_as_soon_as_it_is_reconstructed(stage: Stage) -> None:
    knows = perfect(make_instance())
    judging = asyncio.Event()

    def judge(request: Received) -> Any:
        judging.set()
        return verdict()(request)

    async def answer(request: Received) -> Any:
        if request.number:
            await judging.wait()  # a judge that waited for all reconstructions would never start
        return knows(request)

    stage.judge = judge
    stage.reconstruct = answer  # type: ignore[assignment]
    (score,), _ = run(stage.config(), [rollout()])
    assert score.value is not None
    assert len(stage.calls("recon")) > 1


def test_forty_eight_rollouts_at_once(stage: Stage) -> None:
    """Case 117: every call is awaited, none is lost."""
    instances = [make_instance(n) for n in range(6)]
    stage.reconstruct = perfect(*instances)
    rollouts = [rollout(f"summary {k}", n) for n in range(6) for k in range(8)]
    scores, metrics = run(stage.config(), rollouts)
    assert all(score.quality == pytest.approx(1.4) for score in scores)
    assert metrics["rollouts"] == 48 and metrics["rollouts_failed"] == 0
    assert metrics["judge/calls"] + metrics["judge/cached"] == sum(len(s.blocks) for s in scores)


def test_a_fault_of_ours_costs_one_rollout(stage: Stage) -> None:
    empty = make_instance().model_copy(update={"history": (), "id": "no history"})
    good, bad = run(stage.config(), [rollout(), Rollout(empty, "s", 1, 1)])[0]
    assert good.value is not None
    assert bad.value is None and bad.failure is not None and "ValueError" in bad.failure


def test_no_rollouts(stage: Stage) -> None:
    assert run(stage.config(), [])[0] == []


def test_rounding_keeps_ties(stage: Stage) -> None:
    (score,), _ = run(stage.config(reward__round_digits=1), [rollout(num_tokens=33)])
    assert score.value == pytest.approx(
        1.4, abs=1e-5
    ) and score.quality - score.penalty == pytest.approx(1.367)


def test_special_token_text_in_blocks(stage: Stage) -> None:
    """Case 119: a block that contains `<|im_start|>` passes reconstructor and judge."""
    instance = make_instance()
    history = tuple(
        m.model_copy(update={"text": f"<|im_start|>system {m.text}"}) for m in instance.history
    )
    sly = instance.model_copy(update={"history": history})
    stage.reconstruct = lambda r: tagged(
        dict.fromkeys(requested(r)[0], "<|im_end|> x"), requested(r)[1]
    )
    (score,), _ = run(stage.config(), [Rollout(sly, "<|endoftext|>", 5, 1)])
    assert score.quality == pytest.approx(1.4)
    assert not any("<|im_start|>" in str(r.body) for r in stage.server.requests)


def test_memory_that_is_kept_in_the_summary_pays(stage: Stage) -> None:
    """The memory rule: a fact that stands only in the memory raises R when S keeps it."""
    fact = "the vault code is 4711"
    instance = make_instance(steps=1, memory=f"{fact} " * 8)
    masker = Masker(MaskingSettings(block_tokens=BLOCK_TOKENS), TOKENS, seed=0, memory="replace")

    def answer(request: Received) -> str:
        indices, nonce = requested(request)
        text = request.body["messages"][-1]["content"]
        memory = text.split("<memory>")[1].split("</memory>")[0]
        blocks = {b.index: b.text for b in masker.blocks(instance)}
        known = {i: " ".join(w for w in blocks[i].split() if w in memory.split()) for i in indices}
        return tagged(known, nonce)

    stage.reconstruct = answer
    config = stage.config(judge__kind="lexical")
    without, kept = run(
        config, [Rollout(instance, "nothing", 2, 1), Rollout(instance, fact, 7, 1)]
    )[0]
    assert kept.value > without.value


def test_quality_cancelled_by_length_is_a_tie(stage: Stage) -> None:
    """Case 112: Q rises and the penalty cancels it exactly; the parts are told apart."""
    short, long = "s", "l"
    stage.judge = lambda _: '{"precision": 0.5, "recall": 0.5}'
    scores, _ = run(stage.config(), [rollout(short, num_tokens=0), rollout(long, num_tokens=0)])
    assert scores[0].value == scores[1].value
    stage.reconstruct = lambda r: tagged(
        dict.fromkeys(requested(r)[0], "long" if "\nl\n" in r.prompt else "short"), requested(r)[1]
    )
    stage.judge = lambda r: f'{{"precision": 0.5, "recall": {0.6 if "long" in r.prompt else 0.5}}}'
    stage.folder = stage.folder / "again"
    scores, _ = run(stage.config(), [rollout(short, num_tokens=0), rollout(long, num_tokens=100)])
    assert scores[1].quality - scores[0].quality == pytest.approx(0.1)
    assert scores[1].value == scores[0].value  # exactly, so TRL gives both advantage 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"judge__model": None}, r"judge\.kind llm needs judge\.model"),
        ({"judge__model": None, "reward__objective": "summary_judge"}, "summary_judge needs"),
        ({"reconstructor": {}}, "exactly one of"),
        ({"judge__cache": "/proc/none/x.sqlite"}, r"judge\.cache"),
    ],
)
def test_what_cannot_work_says_so(stage: Stage, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_engine(stage.config(**changes), TOKENS, [])


def test_limits_are_shared_by_the_processes_of_a_job(stage: Stage) -> None:
    config = stage.config(reconstructor__limits={"concurrency": 64, "requests_per_minute": 5})
    engine = build_engine(config, TOKENS, [], world_size=8)
    limits = engine.objective.reconstructor.model.limits  # type: ignore[attr-defined]
    assert (limits.concurrency, limits.requests_per_minute, limits.tokens_per_minute) == (
        8,
        1,
        None,
    )

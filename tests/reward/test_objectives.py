"""The two other objectives: `summary_judge` (Table 5) and `information_gain` (Equation 4)."""

import asyncio
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_openai import FakeOpenAI, Raw, Received, Refuse
from reward_stage import TOKENS, Stage, make_instance
from tiny_model import make_tiny_model

from sumone.errors import ConfigError
from sumone.reward import RewardEngine, Rollout, RolloutScore, build_engine


def run(engine: RewardEngine, rollouts: list[Rollout]) -> list[RolloutScore]:
    async def go() -> list[RolloutScore]:
        try:
            return await engine.score(rollouts)
        finally:
            await engine.aclose()

    return asyncio.run(go())


def test_summary_judge_grades_the_summary_itself(stage: Stage) -> None:
    instance = make_instance(memory="old fact 4711")
    engine = build_engine(stage.config(reward__objective="summary_judge"), TOKENS, [])
    good, empty = run(engine, [Rollout(instance, "S-TEXT", 50, 1), Rollout(instance, "", 0, 1)])
    assert good.value == pytest.approx(0.6 + 0.8 - 0.05, abs=1e-5)
    assert (good.precision, good.recall, good.blocks) == (0.6, 0.8, ())
    assert empty.value == 0
    (request,) = stage.server.requests
    assert "S-TEXT" in request.prompt and "4711" in request.prompt and "step 15" in request.prompt


def test_summary_judge_without_a_valid_grade_is_none(stage: Stage) -> None:
    stage.judge = lambda _: "great summary!"
    config = stage.config(reward__objective="summary_judge")
    (score,) = run(build_engine(config, TOKENS, []), [Rollout(make_instance(), "s", 5, 1)])
    assert score.value is None and score.failure is not None and "two tries" in score.failure
    stage.judge = lambda _: Refuse(500)
    (score,) = run(build_engine(config, TOKENS, []), [Rollout(make_instance(), "t", 5, 1)])
    assert score.value is None and score.failure is not None and "ModelError" in score.failure


def vllm(request: Received) -> Any:
    """Log-probability -1 per token, -0.25 where the prompt holds the words GOOD FACTS."""
    body = request.body
    if request.path == "/tokenize":
        text = body.get("prompt") or "".join(m["content"] for m in body["messages"])
        return Raw({"tokens": [ord(c) for c in text]})
    value = -0.25 if "GOOD FACTS" in "".join(map(chr, body["prompt"])) else -1.0
    logprobs = [None, *({str(t): {"logprob": value}} for t in body["prompt"][1:])]
    choice = {"index": 0, "text": "", "finish_reason": "length", "prompt_logprobs": logprobs}
    return Raw(
        {"id": "x", "object": "text_completion", "created": 0, "model": "m", "choices": [choice]}
    )


def test_information_gain_in_nats_per_token(stage: Stage) -> None:
    stage.reconstruct = vllm
    config = stage.config(reward__objective="information_gain", judge__model=None)
    instance = make_instance(steps=6)
    rollouts = [Rollout(instance, s, 50, 1) for s in ("GOOD FACTS", "nothing", "")]
    good, useless, empty = run(build_engine(config, TOKENS, []), rollouts)
    assert good.quality == pytest.approx(0.75)
    assert good.value == pytest.approx(0.75 - 0.1 * 50 / 100, abs=1e-5)
    assert useless.quality == pytest.approx(0) and empty.quality == pytest.approx(0)
    hidden = len(good.blocks)
    scored = [r for r in stage.server.requests if r.path == "/v1/completions"]
    # The start check, three summaries, and the prompt without a summary only once.
    assert len(scored) == 1 + 4 * hidden


def test_information_gain_needs_likelihoods(stage: Stage) -> None:
    """Any other endpoint is a ConfigError at the start."""
    stage.reconstruct = lambda _: Refuse(404)
    config = stage.config(reward__objective="information_gain", judge__model=None)
    with pytest.raises(ConfigError, match="prompt_logprobs"):
        run(build_engine(config, TOKENS, []), [Rollout(make_instance(), "s", 5, 1)])


def test_a_failed_likelihood_is_none_and_is_tried_again(stage: Stage) -> None:
    broken = {"now": False}

    def answer(request: Received) -> Any:
        return Refuse(500) if broken["now"] else vllm(request)

    stage.reconstruct = answer
    config = stage.config(reward__objective="information_gain", judge__model=None)

    async def go() -> tuple[RolloutScore, RolloutScore]:
        engine = build_engine(config, TOKENS, [])
        await engine.start()
        rollout = Rollout(make_instance(steps=4), "GOOD FACTS", 5, 1)
        broken["now"] = True
        (first,) = await engine.score([rollout])
        broken["now"] = False
        (second,) = await engine.score([rollout])
        await engine.aclose()
        return first, second

    first, second = asyncio.run(go())
    assert first.value is None and first.failure is not None and "ModelError" in first.failure
    assert second.quality == pytest.approx(0.75)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield make_tiny_model(tmp_path_factory.mktemp("tiny"))
    torch.set_num_threads(threads)


def test_information_gain_by_a_model_of_this_process(stage: Stage, tiny: Path) -> None:
    config = stage.config(
        reward__objective="information_gain", judge__model=None, prompts="short",
        reconstructor={"path": str(tiny)},
    )  # fmt: skip
    rollouts = [Rollout(make_instance(), s, 0, 1) for s in ("", "some fact", "some fact")]
    empty, first, second = run(build_engine(config, TOKENS, []), rollouts)
    assert empty.quality == pytest.approx(0, abs=1e-5)
    assert first.quality == second.quality != empty.quality
    assert first.quality is not None and math.isfinite(first.quality)


def test_decoded_reconstruction_by_a_model_of_this_process(stage: Stage, tiny: Path) -> None:
    """The whole way without any server: random weights, real decoding, the lexical judge."""
    config = stage.config(
        judge={"kind": "lexical", "weighting": "idf"}, prompts="compact",
        reconstructor={"path": str(tiny), "blocks_per_call": 1}, reward__min_judged=0.0,
    )  # fmt: skip
    rollouts = [Rollout(make_instance(n), "fact", 4, 1) for n in range(3)]
    scores = run(build_engine(config, TOKENS, ["value step", "value"]), rollouts)
    statuses = [block.status for score in scores for block in score.blocks]
    assert len(statuses) == 24 and set(statuses) <= {"judged", "lost", "empty"}
    for score in scores:
        judged = [b for b in score.blocks if b.precision is not None]
        assert (score.value is None) == (not judged)
        assert not stage.server.requests


def test_the_fake_server_serves_streams() -> None:
    """Other tests rely on it: chunks, a finish reason, usage, an end."""
    import openai

    async def go(url: str) -> tuple[str, list[Any]]:
        async with openai.AsyncOpenAI(base_url=url, api_key="x") as client:
            stream = await client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": "hi"}],
                stream=True,
                stream_options={"include_usage": True},
            )
            chunks = [chunk async for chunk in stream]
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        return text, chunks

    with FakeOpenAI(lambda _: "a longer answer in pieces") as server:
        text, chunks = asyncio.run(go(server.url))
    assert text == "a longer answer in pieces"
    assert chunks[-1].usage.total_tokens == 10
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"

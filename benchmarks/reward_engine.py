"""How close the reward engine comes to the shortest possible time.

48 rollouts of 24 hidden blocks are scored against an endpoint with fixed latencies: 64 calls in
flight at most, 4 blocks per reconstruction call, one verdict per block. The lower bound is the
larger of total work / concurrency and the longest dependency chain; the work of failed calls
counts, the pause before a retry does not.

    python benchmarks/reward_engine.py            # simulated endpoint, virtual clock: seconds
    python benchmarks/reward_engine.py --http     # also a real HTTP server, real time: minutes

The virtual clock shows the engine's scheduling alone; the server adds the cost of real requests,
which depends on how busy the machine is. Writes benchmarks/results/reward_engine.json.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import re
import selectors
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from sumone.config import LimitSettings, MaskingSettings, RewardSettings, TrainConfig  # noqa: E402
from sumone.models.chat import Completion  # noqa: E402
from sumone.models.limits import Limiter  # noqa: E402
from sumone.prompts import answer_tags  # noqa: E402
from sumone.reward import RewardEngine, Rollout, build_engine  # noqa: E402
from sumone.reward.judge import LlmJudge  # noqa: E402
from sumone.reward.masked import Masker  # noqa: E402
from sumone.reward.objective import ReconstructionObjective  # noqa: E402
from sumone.reward.reconstructor import Reconstructor  # noqa: E402
from sumone.reward.verdicts import VerdictCache  # noqa: E402
from sumone.tokens import ByteEstimate  # noqa: E402
from sumone.types import ChatMessage, CompactionInstance, Message  # noqa: E402

PROMPTS, SAMPLES, HIDDEN = 6, 8, 24
CONCURRENCY, BLOCKS_PER_CALL = 64, 4
RECONSTRUCT_SECONDS, VERDICT_SECONDS = 16.0, 4.0
BACKOFF_SECONDS = 0.5
"""Pause before a retry, as the SDK makes it."""
BLOCK_TOKENS = 64
MAX_RATIO = 1.10


class Latencies:
    """Answers, how long each takes, and which calls fail: the same in both modes."""

    def __init__(self, failing_share: float) -> None:
        self._every = round(1 / failing_share) if failing_share else 0
        self._seen: set[str] = set()
        self.work_seconds, self.calls, self.failed = 0.0, 0, 0

    def next(self, prompt: str, verdict: bool) -> tuple[float, str | None]:
        """Seconds of the call and its answer, None for a call that fails (once)."""
        seconds = VERDICT_SECONDS if verdict else RECONSTRUCT_SECONDS
        self.work_seconds += seconds
        self.calls += 1
        first = prompt not in self._seen
        self._seen.add(prompt)
        if first and self._every and len(self._seen) % self._every == 0:
            self.failed += 1
            return seconds, None
        return seconds, self._answer(prompt, verdict)

    def _answer(self, prompt: str, verdict: bool) -> str:
        if verdict:
            return '{"precision": 0.5, "recall": 0.5}'
        line = prompt.rsplit("Restore:", 1)[1]
        found = re.findall(r'<missing block="(\d+)" key="(\w+)"/>', line)
        # The summary makes each guess unlike any other, so no verdict comes from the cache.
        summary = prompt.split("<memory>")[1].split("</memory>", maxsplit=1)[0].strip()
        parts = []
        for index, key in found:
            opening, closing = answer_tags(int(index), key)
            parts.append(f"{opening}\nblock {summary} {index}\n{closing}")
        return "\n".join(parts)


class SimulatedModel:
    """An endpoint without a network: waits, and retries a failed call inside its slot."""

    name = "simulated"

    def __init__(self, latencies: Latencies) -> None:
        self._latencies = latencies
        self._limiter = Limiter(LimitSettings(concurrency=CONCURRENCY))

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        schema: dict[str, Any] | None = None,
    ) -> Completion:
        prompt = "\n".join(message["content"] for message in messages)
        async with self._limiter.slot(max_tokens):
            while True:
                seconds, answer = self._latencies.next(prompt, schema is not None)
                await asyncio.sleep(seconds)
                if answer is not None:
                    return Completion(answer, "stop", 0, 0)
                await asyncio.sleep(BACKOFF_SECONDS)

    async def aclose(self) -> None:
        """Nothing to close."""


class VirtualClock(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._now

    def jump(self, seconds: float) -> None:
        self._now += seconds


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if not events and timeout:
            self._clock.jump(timeout)
        return events


def instances() -> list[CompactionInstance]:
    """One message per block of the target size, twice as many as are hidden."""
    filler = "value " * (BLOCK_TOKENS * 3 // 6 - 6)
    return [
        CompactionInstance(
            id=f"instance-{number}",
            preamble=(Message(role="user", text="Find the fault."),),
            history=tuple(
                Message(role="assistant", text=f"{number:02d} step {n:02d} {filler}")
                for n in range(2 * HIDDEN)
            ),
        )
        for number in range(PROMPTS)
    ]


async def score(engine: RewardEngine) -> float:
    """Makespan on the running loop's clock."""
    rollouts = [
        Rollout(instance, f"summary {instance.id} {sample}", 100, 1)
        for instance in instances()
        for sample in range(SAMPLES)
    ]
    clock = asyncio.get_running_loop().time
    start = clock()
    scores = await engine.score(rollouts)
    makespan = clock() - start
    assert all(len(one.blocks) == HIDDEN for one in scores), [len(s.blocks) for s in scores]
    assert all(one.value is not None for one in scores), [s.failure for s in scores]
    await engine.aclose()
    return makespan


def config(url: str) -> TrainConfig:
    limits = {"concurrency": CONCURRENCY, "call_timeout_seconds": 120}
    model = {"endpoint": {"base_url": url, "model": "simulated"}, "limits": limits}
    return TrainConfig.model_validate(
        {
            "output_dir": "unused",
            "policy": {"path": "unused"},
            "reconstructor": {**model, "blocks_per_call": BLOCKS_PER_CALL},
            "judge": {"model": model, "cache": ":memory:"},
            "data": {"train": "unused", "heldout": "unused"},
            "masking": {"block_tokens": BLOCK_TOKENS},
        }
    )


def simulate(failing_share: float) -> dict[str, Any]:
    latencies = Latencies(failing_share)

    async def go() -> float:
        model = SimulatedModel(latencies)
        objective = ReconstructionObjective(
            Reconstructor(model, config("unused").reconstructor, "standard"),
            LlmJudge(model, max_output_tokens=64, cache=VerdictCache(None)),
            Masker(
                MaskingSettings(block_tokens=BLOCK_TOKENS),
                ByteEstimate(),
                seed=0,
                memory="replace",
            ),
            min_judged=0.9,
        )
        return await score(RewardEngine(objective, RewardSettings()))

    with asyncio.Runner(loop_factory=VirtualClock) as runner:
        makespan = runner.run(go())
    return report("virtual clock", failing_share, makespan, latencies_of(latencies))


def latencies_of(latencies: Latencies) -> dict[str, Any]:
    return {
        "work_seconds": latencies.work_seconds,
        "calls": latencies.calls,
        "failed": latencies.failed,
    }


def serve(pipe: Connection, failing_share: float) -> None:
    """The endpoint as a server in a process of its own."""
    from fake_openai import FakeOpenAI, Received, Refuse, Reply, Text

    latencies = Latencies(failing_share)

    async def answer(request: Received) -> Reply:
        seconds, text = latencies.next(request.prompt, "response_format" in request.body)
        await asyncio.sleep(seconds)
        return Refuse(500) if text is None else Text(text)

    with FakeOpenAI(answer) as server:
        pipe.send(server.url)
        pipe.recv()
        pipe.send(latencies_of(latencies))


def over_http(failing_share: float) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(there, failing_share))
    process.start()
    try:
        engine = build_engine(config(here.recv()), ByteEstimate(), [])
        used = time.process_time()
        makespan = asyncio.run(score(engine))
        used = time.process_time() - used
        here.send("done")
        served = here.recv()
    finally:
        process.join(10)
    return report("http", failing_share, makespan, served) | {
        "client_cpu_seconds": round(used, 1),
        "load_average_at_end": round(os.getloadavg()[0], 1),
    }


def report(
    mode: str, failing_share: float, makespan: float, served: dict[str, Any]
) -> dict[str, Any]:
    retry = RECONSTRUCT_SECONDS if failing_share else 0.0
    chain = RECONSTRUCT_SECONDS + retry + VERDICT_SECONDS
    bound = max(served["work_seconds"] / CONCURRENCY, chain)
    return {
        "mode": mode,
        "failing_share": failing_share,
        "calls": served["calls"],
        "failed_calls": served["failed"],
        "makespan_seconds": round(makespan, 2),
        "lower_bound_seconds": round(bound, 2),
        "ratio": round(makespan / bound, 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", action="store_true", help="also over a real HTTP server")
    http = parser.parse_args().http
    runs = [simulate(share) for share in (0.0, 0.05)]
    if http:
        runs += [over_http(share) for share in (0.0, 0.05)]
    result = {
        "command": "python benchmarks/reward_engine.py" + (" --http" if http else ""),
        "rollouts": PROMPTS * SAMPLES,
        "hidden_blocks": HIDDEN,
        "concurrency": CONCURRENCY,
        "blocks_per_call": BLOCKS_PER_CALL,
        "reconstruct_seconds": RECONSTRUCT_SECONDS,
        "verdict_seconds": VERDICT_SECONDS,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "max_ratio": MAX_RATIO,
        "runs": runs,
    }
    target = ROOT / "benchmarks" / "results" / "reward_engine.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))
    return 0 if all(run["ratio"] <= MAX_RATIO for run in runs) else 1


if __name__ == "__main__":
    raise SystemExit(main())

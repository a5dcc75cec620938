"""Scores many rollouts at once, within deadlines; a fault costs one rollout, never the step.

Section 3.3 around the objective: identical summaries are measured once, the length penalty is
subtracted (Equation 6), and a reward that could not be computed is None, never 0.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from sumone.config import RewardSettings
from sumone.errors import ConfigError
from sumone.reward.reconstruction import Reward, on_grid, penalty
from sumone.reward.rollout import BlockScore, Measured, Objective, Rollout, RolloutScore

__all__ = ["BlockScore", "RewardEngine", "Rollout", "RolloutScore"]

_log = logging.getLogger(__name__)

_Key: TypeAlias = tuple[str, int, str]


class RewardEngine:
    """Turns rollouts into rewards with one objective."""

    def __init__(self, objective: Objective, settings: RewardSettings) -> None:
        self.objective = objective
        self.settings = settings
        self._started = False
        self._counts: Counter[str] = Counter()
        self._latencies: list[float] = []

    async def start(self) -> None:
        """Check once that the objective can work; ConfigError says why not."""
        if not self._started:
            await self.objective.start()
            self._started = True

    async def score(self, rollouts: Sequence[Rollout]) -> list[RolloutScore]:
        """One score per rollout, in order; `value` is None where there is no reward.

        Raises ConfigError if the objective cannot work at all (on the first call), else nothing.
        """
        await self.start()
        unique: dict[_Key, Rollout] = {}
        for rollout in rollouts:
            unique.setdefault(_key(rollout), rollout)
        measured: dict[_Key, tuple[Measured, float]] = {}
        tasks = [
            asyncio.create_task(self._measure(key, rollout, measured))
            for key, rollout in unique.items()
        ]
        if tasks:
            try:
                # The tasks end by themselves at their own deadlines; this one is for all.
                _, late = await asyncio.wait(tasks, timeout=self.settings.batch_deadline_seconds)
            finally:
                for task in tasks:
                    task.cancel()
            if late:
                await asyncio.wait(late)
        scores = [self._score(rollout, *measured[_key(rollout)]) for rollout in rollouts]
        self._count(scores, len(rollouts) - len(unique))
        return scores

    async def _measure(
        self, key: _Key, rollout: Rollout, measured: dict[_Key, tuple[Measured, float]]
    ) -> None:
        """Measure one summary; whatever happens ends as a failure in its record."""
        into = Measured()
        start = time.monotonic()
        deadline = self.settings.rollout_deadline_seconds
        try:
            async with asyncio.timeout(deadline):
                await self.objective.measure(rollout, into)
        except TimeoutError:
            into.failure = f"no reward within rollout_deadline_seconds = {deadline:g}"
        except asyncio.CancelledError:
            limit = self.settings.batch_deadline_seconds
            into.failure = f"no reward within batch_deadline_seconds = {limit:g}"
        # The boundary of the reward: no fault of one rollout may end a step on all ranks.
        except Exception as error:  # noqa: BLE001
            into.failure = _tell(error)
            _log.warning("rollout of %s: %s", rollout.instance.id, into.failure)
        try:
            self.objective.conclude(into)
        except Exception as error:  # noqa: BLE001
            into.failure = _tell(error)
        measured[key] = (into, time.monotonic() - start)

    def _score(self, rollout: Rollout, into: Measured, latency: float) -> RolloutScore:
        blocks = tuple(into.blocks)
        if into.quality is None:
            return RolloutScore(
                None,
                num_summary_tokens=rollout.num_tokens,
                blocks=blocks,
                failure=into.failure or "the objective measured nothing",
                latency=latency,
            )
        reward = Reward(
            into.quality,
            penalty(rollout.num_tokens, self.settings.budget_tokens, self.settings.length_penalty),
        )
        value = reward.value
        if self.settings.round_digits is not None:
            value = round(value, self.settings.round_digits)
        return RolloutScore(
            on_grid(value),
            quality=reward.quality,
            penalty=reward.penalty,
            precision=into.precision,
            recall=into.recall,
            num_summary_tokens=rollout.num_tokens,
            blocks=blocks,
            latency=latency,
        )

    def _count(self, scores: Sequence[RolloutScore], num_repeated: int) -> None:
        self._counts["rollouts"] += len(scores)
        self._counts["rollouts_repeated"] += num_repeated
        self._counts["rollouts_failed"] += sum(score.value is None for score in scores)
        self._latencies = sorted(score.latency for score in scores)

    def metrics(self) -> dict[str, float]:
        """Counts since the start, and the latencies (seconds) of the latest call."""
        found: dict[str, float] = {name: float(count) for name, count in self._counts.items()}
        found |= self.objective.counters()
        if self._latencies:
            found["latency/median_seconds"] = self._latencies[len(self._latencies) // 2]
            found["latency/max_seconds"] = self._latencies[-1]
        return found

    async def aclose(self) -> None:
        """Close models and caches."""
        await self.objective.aclose()


def _key(rollout: Rollout) -> _Key:
    return rollout.instance.id, rollout.step, rollout.summary


def _tell(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]  # the first says it; all have one cause as a rule
    if isinstance(error, ConfigError):
        return str(error)
    return f"{type(error).__name__}: {error}"

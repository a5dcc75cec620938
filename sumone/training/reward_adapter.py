"""The one reward object that TRL calls: completions in, rewards or None out (Equation 6).

It only translates: ids to instances, completions to rollouts, scores to rewards and metrics.
A reward that could not be computed is None; TRL then leaves the completion out of its group's
mean and deviation (Equation 7) and gives it no advantage.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sumone.config import RewardSettings
from sumone.reward import Rollout, RolloutScore
from sumone.training.distributed import RewardRendezvous
from sumone.training.run_log import CompletionLog
from sumone.types import CompactionInstance

__all__ = ["PolicyReward", "Scorer", "summary_length"]


class Scorer(Protocol):
    """What turns rollouts into scores: the reward engine, or a constant in a benchmark."""

    async def score(self, rollouts: Sequence[Rollout]) -> list[RolloutScore]:
        """One score for each rollout, in order."""
        ...

    def metrics(self) -> dict[str, float]:
        """Counts of what happened since the start."""
        ...


def summary_length(completion_ids: Sequence[int], end_ids: frozenset[int]) -> tuple[int, bool]:
    """|S| in the policy's tokens, without the end token, and whether the completion was cut."""
    if completion_ids and completion_ids[-1] in end_ids:
        return len(completion_ids) - 1, False
    return len(completion_ids), True


class PolicyReward:
    """An asynchronous reward function for `trl.GRPOTrainer`."""

    def __init__(
        self,
        scorer: Scorer,
        instances: Mapping[str, CompactionInstance],
        *,
        tokenizer: Any,
        end_ids: frozenset[int],
        settings: RewardSettings,
        log: CompletionLog | None,
    ) -> None:
        self.__name__ = settings.objective  # the name under which TRL logs it
        self.rendezvous: RewardRendezvous | None = None
        self.failed_steps = 0
        """Steps in a row with too many rollouts that have no reward."""
        self.instance_ids: list[str] = []
        """Prompts of the step that was scored last (of this process)."""
        self._scorer = scorer
        self._instances = instances
        self._tokenizer = tokenizer
        self._end_ids = end_ids
        self._settings = settings
        self._log = log

    async def __call__(
        self,
        *,
        completion_ids: list[list[int]],
        instance_id: list[str],
        trainer_state: Any,
        log_metric: Any,
        **_: Any,
    ) -> list[float | None]:
        """Rewards of this process's completions, in order."""
        started = time.perf_counter()
        step = int(trainer_state.global_step)
        # Decoded here as in evaluation: TRL's own parsing of a response may drop parts of it.
        texts = self._tokenizer.batch_decode(completion_ids, skip_special_tokens=True)
        lengths = [summary_length(ids, self._end_ids) for ids in completion_ids]
        rollouts = [
            Rollout(instance=self._instances[key], summary=text, num_tokens=length, step=step)
            for key, text, (length, _) in zip(instance_id, texts, lengths, strict=True)
        ]
        scores = await self._scorer.score(rollouts)
        self.instance_ids = list(dict.fromkeys(instance_id))
        self._log_metrics(log_metric, scores, lengths, time.perf_counter() - started)
        log_metric("tied_groups_share", _tied_share(instance_id, scores))
        if self._log is not None:
            self._log.write(step + 1, rollouts, scores)
        await self._count_failures(scores)
        return [score.value for score in scores]

    def _log_metrics(
        self,
        log_metric: Any,
        scores: Sequence[RolloutScore],
        lengths: Sequence[tuple[int, bool]],
        seconds: float,
    ) -> None:
        valid = [score for score in scores if score.value is not None]
        for name in ("quality", "penalty", "precision", "recall"):
            values = [v for score in valid if (v := getattr(score, name)) is not None]
            if values:
                log_metric(name, sum(values) / len(values))
        log_metric("summary_tokens", sum(length for length, _ in lengths) / len(lengths))
        log_metric("clipped_share", sum(cut for _, cut in lengths) / len(lengths))
        log_metric("failed_share", 1 - len(valid) / len(scores))
        log_metric("reward_seconds", seconds)
        for name, value in self._scorer.metrics().items():
            log_metric(f"engine/{name}", value)

    async def _count_failures(self, scores: Sequence[RolloutScore]) -> None:
        failed, total = sum(score.value is None for score in scores), len(scores)
        if self.rendezvous is not None:
            # Waiting here, on the CPU, names a late process and keeps TRL's gather short.
            failed, total = await asyncio.to_thread(self.rendezvous.meet, failed, total)
        too_many = failed > self._settings.max_failed_share * total
        self.failed_steps = self.failed_steps + 1 if too_many else 0


def _tied_share(ids: Sequence[str], scores: Sequence[RolloutScore]) -> float:
    """Share of the prompts whose rewards are all equal, so that they teach nothing. TRL's
    `frac_reward_zero_std` misses most of them: it compares a float32 deviation with zero."""
    groups: dict[str, set[float]] = {}
    for key, score in zip(ids, scores, strict=True):
        values = groups.setdefault(key, set())
        if score.value is not None:
            values.add(score.value)
    return sum(len(values) < 2 for values in groups.values()) / len(groups)

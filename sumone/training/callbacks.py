"""What happens around the trainer's steps: metrics, checkpoints, evaluation, giving up.

Ordinary `transformers` callbacks; each owns one concern.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from sumone.config import RewardSettings
from sumone.training.evaluation import Evaluator
from sumone.training.progress import Progress
from sumone.training.reward_adapter import PolicyReward
from sumone.training.run_folder import RunFolder, mark_complete
from sumone.training.run_log import append_line

__all__ = ["CheckpointMark", "CircuitBreaker", "MetricsLog", "PeriodicEvaluation"]


class MetricsLog(TrainerCallback):  # type: ignore[misc]  # transformers is untyped
    """One line of metrics a step, in metrics.jsonl and on the progress display."""

    def __init__(self, file: Path, reward: PolicyReward, progress: Progress) -> None:
        self._file = file
        self._reward = reward
        self._progress = progress

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Write and show what the trainer logs."""
        if not state.is_world_process_zero or not logs or "loss" not in logs:
            return  # the closing summary of a run has no loss
        metrics = {key: _finite(value) for key, value in logs.items()}
        record = {"step": state.global_step, "instances": self._reward.instance_ids, **metrics}
        append_line(self._file, record)
        self._progress.step(state.global_step, metrics)


def _finite(value: Any) -> Any:
    """JSON has no NaN: a measurement that failed is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


class CheckpointMark(TrainerCallback):  # type: ignore[misc]  # transformers is untyped
    """Marks a checkpoint as complete once every process has written its part."""

    def __init__(self, folder: RunFolder, wait_for_everyone: Callable[[], None]) -> None:
        self._folder = folder
        self._wait = wait_for_everyone

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Mark what was just saved."""
        self._wait()
        if state.is_world_process_zero:
            mark_complete(self._folder.checkpoints / f"checkpoint-{state.global_step}")


class PeriodicEvaluation(TrainerCallback):  # type: ignore[misc]  # transformers is untyped
    """Evaluates the policy every so many steps."""

    def __init__(self, evaluator: Evaluator, folder: RunFolder, every_steps: int) -> None:
        self._evaluator = evaluator
        self._folder = folder
        self._every = every_steps

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Evaluate when it is time."""
        if state.global_step % self._every or state.global_step >= state.max_steps:
            return
        name = f"step-{state.global_step}"
        evaluation = self._evaluator.policy(name)
        if state.is_world_process_zero:
            evaluation.save(self._folder.evaluation(name))


class CircuitBreaker(TrainerCallback):  # type: ignore[misc]  # transformers is untyped
    """Stops a run, with a checkpoint, whose rewards keep failing: it would learn nothing."""

    def __init__(self, reward: PolicyReward, settings: RewardSettings) -> None:
        self._reward = reward
        self._settings = settings
        self.tripped = False
        """Whether the run was stopped."""

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Stop when too many steps in a row have failed."""
        # Every process holds the same count (it is added up), so all of them stop together.
        if self._reward.failed_steps >= self._settings.max_failed_steps:
            self.tripped = True
            control.should_save = True
            control.should_training_stop = True

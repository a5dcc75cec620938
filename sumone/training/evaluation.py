"""The held-out evaluation: greedy summaries, fixed masks, and the controls beside them.

The mask of an instance at evaluation is that of step -1, so before, after and every control see
the same one. A score that could not be computed stays None and leaves the means.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from accelerate.utils import gather_object
from pydantic import BaseModel, ConfigDict
from trl import GRPOTrainer

from sumone.config import TrainConfig
from sumone.errors import ModelError
from sumone.render import render_text
from sumone.reward import Rollout, RolloutScore
from sumone.tokens import Tokens
from sumone.training.dataset import PromptRows
from sumone.training.decoding import encode_prompts, greedy_completions
from sumone.training.reward_adapter import Scorer, summary_length
from sumone.training.run_folder import write_atomically
from sumone.types import CompactionInstance

__all__ = [
    "CONTROLS",
    "EVALUATION_STEP",
    "Evaluation",
    "EvaluationRow",
    "Evaluator",
    "derangement",
    "load_evaluation",
]

EVALUATION_STEP = -1
"""Step under which evaluation masks are drawn."""

Control = Literal["empty", "shuffled", "history", "extract"]
CONTROLS: tuple[Control, ...] = ("empty", "shuffled", "history", "extract")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EvaluationRow(_Frozen):
    """One held-out instance under one summary."""

    instance_id: str
    """Which instance."""
    domain: str = ""
    """Its domain."""
    summary: str
    """The summary that was scored."""
    num_summary_tokens: int
    """|S| in the policy's tokens, without the end token."""
    truncated: bool = False
    """The policy did not end within the budget."""
    value: float | None
    """R (Equation 6)."""
    quality: float | None
    """Q (Equation 5), in [0, 2]."""
    penalty: float | None
    """lambda |S| / L_max."""
    precision: float | None
    """Mean over the masked blocks."""
    recall: float | None
    """Mean over the masked blocks."""
    failure: str | None = None
    """Why there is no value."""


class Evaluation(_Frozen):
    """All rows of one evaluation."""

    name: str
    """`before`, `after`, `step-<n>` or the name of a control."""
    step: int
    """Steps the policy was trained for."""
    rows: tuple[EvaluationRow, ...]
    """One row an instance, in the order of the held-out file."""

    def column(self, name: str) -> dict[str, float]:
        """Values of one measure by instance id, without those that could not be computed."""
        found = {row.instance_id: getattr(row, name) for row in self.rows}
        return {key: float(value) for key, value in found.items() if value is not None}

    def mean(self, name: str) -> float | None:
        """Mean of one measure; None where no row has it."""
        values = self.column(name).values()
        return sum(values) / len(values) if values else None

    def save(self, file: Path) -> None:
        """Write it as JSON, whole or not at all."""
        write_atomically(file, self.model_dump_json(indent=1) + "\n")


def load_evaluation(file: Path) -> Evaluation | None:
    """An evaluation that was saved; None where there is none."""
    if not file.is_file():
        return None
    return Evaluation.model_validate_json(file.read_text(encoding="utf-8"))


def derangement(count: int, seed: int) -> list[int]:
    """A permutation in which nothing keeps its place (count > 1), fixed by the seed."""
    order = list(range(count))
    random.Random(f"derangement {seed} {count}").shuffle(order)
    moved = [0] * count
    for position, index in enumerate(order):
        moved[index] = order[(position + 1) % count]
    return moved


class Evaluator:
    """Evaluates the policy of one trainer on the held-out instances, over all processes."""

    def __init__(
        self,
        config: TrainConfig,
        heldout: Sequence[CompactionInstance],
        *,
        trainer: GRPOTrainer,
        scorer: Scorer,
        rows: PromptRows,
        tokens: Tokens,
    ) -> None:
        self._config = config
        self._heldout = list(heldout)
        self._trainer = trainer
        self._scorer = scorer
        self._rows = rows
        self._tokens = tokens
        self._ends = frozenset(trainer.eos_token_ids)

    def policy(self, name: str) -> Evaluation:
        """Greedy summaries of the policy as it is now. Collective: every process calls it."""
        share = self._share()
        ids = encode_prompts(
            self._trainer.processing_class,
            [self._rows.prompt(self._heldout[i]) for i in share],
            self._trainer.chat_template_kwargs,
        )
        completions = greedy_completions(
            self._trainer, ids, batch_size=self._config.evaluation.batch_size
        )
        texts = self._trainer.processing_class.batch_decode(completions, skip_special_tokens=True)
        lengths = [summary_length(c, self._ends) for c in completions]
        return self._evaluation(
            name,
            {i: (text, *length) for i, text, length in zip(share, texts, lengths, strict=True)},
        )

    def control(self, name: Control, after: Evaluation) -> Evaluation | None:
        """One control; None where the data cannot give it. Collective."""
        texts = self._control_texts(name, after)
        if texts is None:
            return None
        counts = self._tokens.count_batch(texts)
        return self._evaluation(name, {i: (texts[i], counts[i], False) for i in self._share()})

    def _control_texts(self, name: Control, after: Evaluation) -> list[str] | None:
        match name:
            case "empty":
                return [""] * len(self._heldout)
            case "shuffled":
                if len(self._heldout) < 2:
                    return None
                moved = derangement(len(self._heldout), self._config.seed)
                return [after.rows[i].summary for i in moved]
            case "history":
                return [render_text(instance.expired) for instance in self._heldout]
            case "extract":
                extracts = [instance.extract for instance in self._heldout]
                known = [text for text in extracts if text is not None]
                return known if len(known) == len(extracts) else None

    def _share(self) -> list[int]:
        """This process's instances; all processes get equally many, so that sharded models
        decode in step. The few that occur twice are dropped when the rows are gathered."""
        accelerator = self._trainer.accelerator
        count, world = len(self._heldout), accelerator.num_processes
        each = -(-count // world)
        return [(accelerator.process_index + k * world) % count for k in range(each)]

    def _evaluation(self, name: str, summaries: Mapping[int, tuple[str, int, bool]]) -> Evaluation:
        rollouts = [
            Rollout(instance=self._heldout[i], summary=text, num_tokens=count, step=EVALUATION_STEP)
            for i, (text, count, _) in summaries.items()
        ]
        scores = self._score(rollouts)
        local: list[tuple[int, dict[str, Any]]] = [
            (i, _row(rollout, score, summaries[i][2]).model_dump())
            for i, rollout, score in zip(summaries, rollouts, scores, strict=True)
        ]
        found = dict(gather_object(local))
        rows = tuple(EvaluationRow.model_validate(found[i]) for i in range(len(self._heldout)))
        if all(row.value is None for row in rows):
            raise ModelError(
                f"the held-out evaluation {name!r} has no score for any of {len(rows)} instances; "
                f"the first failure: {rows[0].failure}. Check the reconstructor and the judge"
            )
        return Evaluation(name=name, step=self._trainer.state.global_step, rows=rows)

    def _score(self, rollouts: Sequence[Rollout]) -> list[RolloutScore]:
        # As many at a time as in a training step: the deadlines of a batch are set for that.
        step = self._config.prompts_per_step * self._trainer.num_generations
        scores: list[RolloutScore] = []
        for start in range(0, len(rollouts), step):
            # On TRL's loop: the engine's connections belong to the loop that first used them.
            future = asyncio.run_coroutine_threadsafe(
                self._scorer.score(rollouts[start : start + step]), self._trainer.async_loop
            )
            scores += future.result()
        return scores


def _row(rollout: Rollout, score: RolloutScore, truncated: bool) -> EvaluationRow:
    return EvaluationRow(
        instance_id=rollout.instance.id,
        domain=rollout.instance.domain,
        summary=rollout.summary,
        num_summary_tokens=rollout.num_tokens,
        truncated=truncated,
        value=score.value,
        quality=score.quality,
        penalty=score.penalty,
        precision=score.precision,
        recall=score.recall,
        failure=score.failure,
    )

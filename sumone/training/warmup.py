"""The warm-up: both tiny models from a random start (the embedded default).

Copying first, because the pair does not learn to read a summary from the task alone; then
reconstruction with perfect summaries on growing parts of a history, then with imperfect ones. The
policy starts from the reconstructor's weights and learns a poor summarizer: weak extracts. What
makes it a good one is GRPO, in the training job.
"""

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import Qwen3ForCausalLM

from sumone.errors import ModelError
from sumone.training.tiny_model import Recipe
from sumone.training.warmup_copying import Exercises
from sumone.training.warmup_examples import IGNORED, Batch, ExampleMaker, fork

__all__ = ["recovery", "train_policy", "train_reconstructor"]

REPORT = 25
"""Steps between two reports."""
_WHOLE = 1 << 20
"""A window larger than any history."""


@dataclass(slots=True)
class _Learner:
    """One model on its way: weights, optimizer, and where it stands."""

    model: Qwen3ForCausalLM
    learning_rate: float
    steps: int
    """Steps of the cosine schedule."""
    done: int = 0
    """Steps made."""
    _optimizer: Any = None

    def learn(self, *parts: tuple[Batch, float]) -> list[float]:
        """One step on weighted batches; the accuracy on each."""
        optimizer = self._ready()
        accuracies: list[float] = []
        for batch, weight in parts:
            logits, targets = _logits(self.model, batch)
            loss = cross_entropy(logits, targets) * weight
            loss.backward()  # type: ignore[no-untyped-call]
            accuracies.append(float((logits.argmax(-1) == targets).float().mean()))
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        self.done += 1
        return accuracies

    def _ready(self) -> Any:
        if self._optimizer is None:
            self._optimizer = torch.optim.AdamW(
                self.model.parameters(), betas=(0.9, 0.98), weight_decay=0.01
            )
        rising = min(1.0, (self.done + 1) / 30)
        falling = 0.5 * (1 + math.cos(math.pi * min(1.0, self.done / self.steps)))
        for group in self._optimizer.param_groups:
            group["lr"] = self.learning_rate * rising * (0.05 + 0.95 * falling)
        return self._optimizer


def train_reconstructor(
    model: Qwen3ForCausalLM,
    maker: ExampleMaker,
    exercises: Exercises,
    recipe: Recipe,
    report: Callable[[str], None],
) -> None:
    """Copying, then reconstruction, as `Recipe` says. Raises ModelError if copying fails."""
    rng = random.Random(recipe.seed)
    learner = _Learner(model, recipe.learning_rate, recipe.max_copy_steps + recipe.steps)
    _learn_to_copy(learner, exercises, recipe, rng, report)
    learner.steps = learner.done + recipe.steps
    for step in range(recipe.steps):
        ramp = min(1.0, step / recipe.ramp_steps)
        window = 3 + int(6 * ramp) if ramp < 1 else _WHOLE
        summary = maker.imperfect if ramp == 1 else None
        examples = [
            maker.reconstruction(rng, window=window, summary=summary)
            for _ in range(recipe.examples)
        ]
        share = 0.1 + 0.8 * ramp
        parts = [(fork(examples), share)]
        if step < recipe.exercise_steps:
            parts.append((exercises.copying(rng, rows=8, level=8), 1 - share))
            parts.append((exercises.finding(rng, rows=8, lines=rng.randint(2, 6)), 0.15))
        accuracies = learner.learn(*parts)
        if (step + 1) % REPORT == 0:
            measured = recovery(model, maker, num=16)
            report(
                f"reconstruction {step + 1}/{recipe.steps}: accuracy {accuracies[0]:.3f}, "
                f"hidden values recovered {measured:.3f}"
            )


def _learn_to_copy(
    learner: _Learner,
    exercises: Exercises,
    recipe: Recipe,
    rng: random.Random,
    report: Callable[[str], None],
) -> None:
    level, recent = 1, deque[float](maxlen=4)
    for step in range(recipe.max_copy_steps):
        batch = exercises.copying(rng, rows=recipe.copy_rows, level=level)
        recent += learner.learn((batch, 1.0))
        if len(recent) == recent.maxlen and sum(recent) / len(recent) > recipe.copy_accuracy:
            if level == 8:
                report(f"copying learned after {step + 1} steps")
                return
            level += 1
            recent.clear()
    raise ModelError(
        f"copying was not learned within {recipe.max_copy_steps} steps: try another seed"
    )


def train_policy(
    model: Qwen3ForCausalLM, maker: ExampleMaker, recipe: Recipe, report: Callable[[str], None]
) -> None:
    """Weak extracts, supervised: a summarizer that ends its answers but keeps little."""
    rng = random.Random(recipe.seed + 1)
    learner = _Learner(model, recipe.policy_learning_rate, recipe.policy_steps)
    for step in range(recipe.policy_steps):
        examples = [
            maker.summary(rng, fact_share=recipe.fact_share, vague_share=recipe.vague_share)
            for _ in range(recipe.policy_examples)
        ]
        [accuracy] = learner.learn((fork(examples), 1.0))
        if (step + 1) % REPORT == 0:
            report(f"weak extracts {step + 1}/{recipe.policy_steps}: accuracy {accuracy:.3f}")


def recovery(
    model: Qwen3ForCausalLM, maker: ExampleMaker, *, num: int, with_summary: bool = True
) -> float:
    """Share of the numbers and names in hidden facts that the model would write next (teacher
    forcing, the same episodes each time), given the perfect extract or no summary."""
    rng = random.Random("recovery")
    summary = None if with_summary else (lambda *_: "")
    examples = [maker.reconstruction(rng, window=_WHOLE, summary=summary) for _ in range(num)]
    with torch.inference_mode():
        logits, targets = _logits(model, fork(examples))
    # The tokens of all answers stand in order; those of answers without a fact do not count.
    fact = [f for e in examples for a, f in zip(e.answers, e.informative, strict=True) for _ in a]
    value = torch.isin(targets, torch.tensor(sorted(maker.value_ids))) & torch.tensor(fact)
    return float((logits.argmax(-1) == targets)[value].float().mean())


def _logits(model: Qwen3ForCausalLM, batch: Batch) -> tuple[Tensor, Tensor]:
    """Logits and targets of the learned tokens only: most of a prompt is not learned."""
    hidden = model.model(
        input_ids=batch.ids, position_ids=batch.positions, attention_mask=batch.seen
    ).last_hidden_state
    learned = batch.labels != IGNORED
    return model.lm_head(hidden[learned]), batch.labels[learned]

"""The training data as TRL sees it: rows of ids in a seeded order (Table 7: prompts per step).

TRL's sampler repeats the first epoch's permutation after a resume in a later epoch, so the whole
run is laid out as one epoch: row k x prompts_per_step + j is prompt j of step k + 1, in the
first run as in every resume. Prompts are rendered when a row is read.
"""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from pydantic import ValidationError

from sumone.errors import ConfigError, DataError
from sumone.prompts import Style, summarize_prompt
from sumone.types import ChatMessage, CompactionInstance

__all__ = ["PromptRows", "check_apart", "prompt_dataset", "prompt_order", "read_instances"]


def read_instances(path: str | Path, limit: int | None = None) -> list[CompactionInstance]:
    """Compaction instances of a JSONL file, at most `limit`.

    Raises DataError for a missing or empty file, a line that is no instance, or an id that
    occurs twice.
    """
    file = Path(path)
    if not file.is_file():
        raise DataError(
            f"no instances at {file}: make them with `sumone data build`, or correct the path"
        )
    instances: dict[str, CompactionInstance] = {}
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if limit is not None and len(instances) >= limit:
                break
            if not line.strip():
                continue
            try:
                instance = CompactionInstance.model_validate_json(line)
            except ValidationError as error:
                first = error.errors()[0]
                raise DataError(
                    f"{file}:{number}: no compaction instance: "
                    f"{'.'.join(map(str, first['loc']))} {first['msg']}"
                ) from error
            if instance.id in instances:
                raise DataError(f"{file}:{number}: the id {instance.id} occurs twice in this file")
            instances[instance.id] = instance
    if not instances:
        raise DataError(f"{file} holds no instances")
    return list(instances.values())


def check_apart(train: Iterable[CompactionInstance], heldout: Iterable[CompactionInstance]) -> None:
    """Raise DataError where training and held-out instances share a task or an id."""
    train, heldout = list(train), list(heldout)
    shared = {i.task for i in train if i.task} & {i.task for i in heldout if i.task}
    shared_ids = {i.id for i in train} & {i.id for i in heldout}
    if not shared and not shared_ids:
        return
    what = f"{len(shared)} task(s)" if shared else f"{len(shared_ids)} instance(s)"
    names = ", ".join(sorted(shared or shared_ids)[:5])
    raise DataError(
        f"training and held-out data share {what}: {names}. A held-out result would mean "
        "nothing; split by task (`sumone data build` does)"
    )


def prompt_order(
    sizes: Sequence[int], *, prompts_per_step: int, steps: int, seed: int
) -> list[int]:
    """Indices of the prompts of all steps, `prompts_per_step` a step.

    Each epoch is its own permutation; within an epoch the prompts of one step are of similar
    size (`sizes` in any unit), because TRL pads a step to its longest prompt, and steps come in
    random order. No prompt occurs twice in a step; what is left over at the end of an epoch is
    dropped, as TRL does. Raises ConfigError for fewer prompts than a step needs.
    """
    if len(sizes) < prompts_per_step:
        raise ConfigError(
            f"a step needs prompts_per_step={prompts_per_step} different prompts, but there are "
            f"{len(sizes)} training instances: build more or lower prompts_per_step"
        )
    order: list[int] = []
    epoch = 0
    while len(order) < steps * prompts_per_step:
        generator = random.Random(f"order {seed} {epoch}")
        indices = list(range(len(sizes)))
        generator.shuffle(indices)
        usable = len(indices) - len(indices) % prompts_per_step
        # Sorting by doublings only keeps the shuffle among prompts of about the same size.
        indices = sorted(indices[:usable], key=lambda i: round(math.log2(sizes[i] + 1)))
        batches = [
            indices[start : start + prompts_per_step]
            for start in range(0, usable, prompts_per_step)
        ]
        generator.shuffle(batches)
        for batch in batches:
            order += batch
        epoch += 1
    return order[: steps * prompts_per_step]


class PromptRows:
    """Fills rows of ids with their prompts when they are read."""

    def __init__(
        self, instances: Mapping[str, CompactionInstance], style: Style, budget_tokens: int
    ) -> None:
        self._instances = instances
        self._style: Style = style
        self._budget_tokens = budget_tokens

    def prompt(self, instance: CompactionInstance) -> list[ChatMessage]:
        """The conversation that asks the policy for a summary."""
        return summarize_prompt(instance, style=self._style, budget_tokens=self._budget_tokens)

    def __call__(self, rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """A batch of rows with their prompts."""
        ids = rows["instance_id"]
        return {"instance_id": ids, "prompt": [self.prompt(self._instances[i]) for i in ids]}

    def __getstate__(self) -> dict[str, Any]:
        # `datasets` pickles a transform to fingerprint it; the texts must not go with it.
        return {"style": self._style, "budget_tokens": self._budget_tokens}


def prompt_dataset(rows: PromptRows, ids: Sequence[str]) -> Dataset:
    """The data set that TRL reads: a column of ids, prompts rendered on access."""
    return Dataset.from_dict({"instance_id": list(ids)}).with_transform(rows)

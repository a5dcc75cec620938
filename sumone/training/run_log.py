"""What a run writes while it trains: some completions a step, and the metrics.

One JSON object a line, written whole; a resume drops the lines of later steps.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sumone.reward import Rollout, RolloutScore

__all__ = ["CompletionLog", "append_line", "read_lines"]


def append_line(file: Path, record: Mapping[str, Any]) -> None:
    """Append one record as one line."""
    line = json.dumps(record, ensure_ascii=False) + "\n"
    with file.open("a", encoding="utf-8") as handle:
        handle.write(line)


def read_lines(file: Path) -> list[dict[str, Any]]:
    """All records of a file, in order; none where there is no file."""
    if not file.is_file():
        return []
    lines = file.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


class CompletionLog:
    """Writes a few completions of each step with their blocks, reconstructions and scores."""

    def __init__(self, file: Path, per_step: int) -> None:
        self._file = file
        self._per_step = per_step

    def write(self, step: int, rollouts: Sequence[Rollout], scores: Sequence[RolloutScore]) -> None:
        """Append completions spread from the worst to the best reward of the step."""
        for index in _spread(scores, self._per_step):
            rollout, score = rollouts[index], scores[index]
            append_line(
                self._file,
                {
                    "step": step,
                    "instance_id": rollout.instance.id,
                    "mask_step": rollout.step,
                    "summary": rollout.summary,
                    **dataclasses.asdict(score),
                },
            )


def _spread(scores: Sequence[RolloutScore], count: int) -> list[int]:
    """Indices of `count` scores, evenly spread over their order by reward, failed ones first."""
    order = sorted(
        range(len(scores)),
        key=lambda i: (scores[i].value is not None, scores[i].value or 0.0, i),
    )
    count = min(count, len(order))
    if count == 1:
        return [order[-1]]
    return [order[round(k * (len(order) - 1) / (count - 1))] for k in range(count)]

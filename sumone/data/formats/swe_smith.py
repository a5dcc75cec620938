"""SWE-smith rows: one run a row, in three renderings (`tool`, `xml`, `ticks`).

`messages` may be a JSON string (then its decoded characters count). The `tool` rendering is
mixed: some rows hold native calls, some are really `xml`. `patch` and `resolved` are never read.
"""

from collections.abc import Mapping
from typing import Any

from sumone.data.formats.fields import (
    RecordError,
    as_text,
    drop_rest,
    repository_of,
    trajectory_of,
)
from sumone.data.formats.swe_agent import read_history
from sumone.data.report import Drops
from sumone.data.source import Record
from sumone.types import Trajectory

__all__ = ["NAME", "matches", "read_row"]

NAME = "swe-smith"


def matches(record: Mapping[str, Any]) -> bool:
    """Whether a record has messages and the id of a SWE instance or run."""
    return isinstance(record.get("messages"), str | list) and (
        isinstance(record.get("instance_id"), str) or isinstance(record.get("traj_id"), str)
    )


def read_row(record: Record, drops: Drops) -> Trajectory:
    """One run; `traj_id` is unique, `instance_id` is not."""
    row = record.value
    items = row.get("messages")
    if not isinstance(items, list):
        raise RecordError("`messages` is neither a list nor the JSON of one")
    messages = read_history(items, drops)
    drop_rest(row, drops, used=("messages",), reasons={"patch": "gold"})
    run = as_text(row.get("traj_id"))
    instance = as_text(row.get("instance_id")) or run.rpartition(".")[0]
    return trajectory_of(
        messages,
        record,
        format=NAME,
        domain="coding",
        task=repository_of(instance),
        name=run or instance,
        unique=bool(run),
    )

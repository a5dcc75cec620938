"""tau-bench results: a list of runs with an OpenAI chat under `traj`.

`info` holds the task's instruction and the wanted actions: gold, never read.
"""

import re
from collections.abc import Mapping
from typing import Any

from sumone.data.formats.fields import drop_rest, trajectory_of
from sumone.data.formats.openai_chat import read_messages
from sumone.data.report import Drops
from sumone.data.source import Record
from sumone.types import Trajectory

__all__ = ["NAME", "matches", "read_row"]

NAME = "tau-bench"

_DOMAIN = re.compile(r"airline|retail|telecom")


def matches(record: Mapping[str, Any]) -> bool:
    """Whether a record is one run of a task."""
    return isinstance(record.get("traj"), list) and "task_id" in record


def read_row(record: Record, drops: Drops) -> Trajectory:
    """One run. Tasks are numbered per domain, which only the file's name tells."""
    row = record.value
    messages = read_messages(row.get("traj"), drops)
    drop_rest(row, drops, used=("traj",), reasons={"info": "gold"})
    domain = _DOMAIN.search(record.path.name)
    task = f"tau-bench/{domain[0]}/" if domain else "tau-bench/"
    task += str(row.get("task_id"))
    return trajectory_of(
        messages,
        record,
        format=NAME,
        domain="support",
        task=task,
        name=f"{task}.{row.get('trial', 0)}",
    )

"""Reading small transcripts that a test writes itself."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sumone.data import Report, load
from sumone.types import Trajectory


class ReadBack(NamedTuple):
    trajectories: list[Trajectory]
    report: Report

    @property
    def messages(self) -> list[Any]:
        (trajectory,) = self.trajectories
        return list(trajectory.messages)


Read = Callable[..., ReadBack]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Write a file (text, a JSON value, or a list of JSON lines), read it, check conservation."""

    def run(content: Any, name: str = "run.json", format: str | None = None) -> ReadBack:
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif name.endswith(".jsonl"):
            path.write_text("".join(json.dumps(line) + "\n" for line in content))
        else:
            path.write_text(json.dumps(content))
        report = Report()
        trajectories = list(load(path, format, report))
        assert report.conserved, report
        assert report.trajectories == len(trajectories)
        assert report.messages == sum(len(t.messages) for t in trajectories)
        return ReadBack(trajectories, report)

    return run

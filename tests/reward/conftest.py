from collections.abc import Iterator
from pathlib import Path

import pytest
from reward_stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    with stage.server:
        yield stage

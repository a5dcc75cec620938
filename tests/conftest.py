"""What every test shares: no model hub, and the real transcripts where they are at hand."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(scope="session")
def samples() -> Path:
    """Folder of real transcripts beside the checkout; they are no part of the repository."""
    folder = Path(__file__).parents[2] / "shared" / "samples"
    if not folder.is_dir():
        pytest.skip("the real transcripts (../shared/samples) are not on this machine")
    return folder

"""Running a whole training job, and reading what it left."""

import io
from typing import Any

from rich.console import Console

from sumone.config import TrainConfig
from sumone.training import train
from sumone.training.run_folder import RunFolder
from sumone.training.run_log import read_lines


def run(config: TrainConfig, *, resume: bool = False) -> str:
    """Run to the end; what it printed on stdout."""
    out = io.StringIO()
    assert train(config, resume=resume, console=Console(file=out, width=100)) == 0
    return out.getvalue()


def steps(config: TrainConfig) -> list[dict[str, Any]]:
    return read_lines(RunFolder(config.output_dir).metrics)


def course(config: TrainConfig) -> list[Any]:
    """What a resumed run must repeat exactly: prompts, rewards and weights' traces by step."""
    return [
        (m["step"], m["instances"], m["reward"], m["grad_norm"], m["summary_tokens"])
        for m in steps(config)
    ]


def masks(config: TrainConfig) -> set[Any]:
    """Which blocks were hidden, by instance and step."""
    return {
        (c["step"], c["instance_id"], c["mask_step"], tuple(b["index"] for b in c["blocks"]))
        for c in read_lines(RunFolder(config.output_dir).completions)
    }

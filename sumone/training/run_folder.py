"""The run folder: what a training run writes, and what a resume needs of it.

    config.yaml               resolved configuration
    digest.json               digest of all that changes results, with hashes of the data files
    metrics.jsonl             one line a step
    completions.jsonl         some completions with blocks, reconstructions and scores
    checkpoints/              the trainer's checkpoints; only those marked complete are used
    evaluation_before.json    held-out evaluation, one row an instance
    evaluation_after.json
    results.json, picture.png
    policy/                   the trained summarizer

Every file is replaced whole or appended line by line, so a run may be killed at any moment.
"""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import yaml

from sumone.config import TrainConfig
from sumone.errors import ConfigError

__all__ = ["COMPLETE", "RunFolder", "write_atomically"]

COMPLETE = "complete.json"
"""Marker file inside a checkpoint: sizes of its files, written after all of them."""


def write_atomically(path: Path, text: str) -> None:
    """Write a file that is either the old one or the new one, whenever the process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.partial")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


class RunFolder:
    """Paths and bookkeeping of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.digest = self.path / "digest.json"
        self.metrics = self.path / "metrics.jsonl"
        self.completions = self.path / "completions.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.results = self.path / "results.json"
        self.picture = self.path / "picture.png"
        self.policy = self.path / "policy"

    def evaluation(self, name: str) -> Path:
        """File of one evaluation: `before`, `after`, `controls` or `step-<n>`."""
        return self.path / f"evaluation_{name}.json"

    def open(self, config: TrainConfig, *, resume: bool) -> None:
        """Start a new run or check that an old one may go on.

        Raises ConfigError for a folder in use without `--resume`, for one that holds no run,
        and for a resume under a configuration or data that would change results.
        """
        used = self.path.is_dir() and any(self.path.iterdir())
        if not used:
            self.path.mkdir(parents=True, exist_ok=True)
            self._store(config)
            return
        if not resume:
            raise ConfigError(
                f"{self.path} is not empty: add --resume to go on with the run it holds, "
                "or choose another folder with output_dir=..."
            )
        if not self.config.is_file() or not self.digest.is_file():
            raise ConfigError(
                f"{self.path} holds files but no run that could be resumed (config.yaml and "
                "digest.json are missing): choose another folder with output_dir=..."
            )
        self._check_same(config)

    def _store(self, config: TrainConfig) -> None:
        tree = config.model_dump(mode="json")
        write_atomically(self.config, yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))
        write_atomically(self.digest, json.dumps(_digests(config), indent=1) + "\n")

    def _check_same(self, config: TrainConfig) -> None:
        stored = json.loads(self.digest.read_text(encoding="utf-8"))
        current = _digests(config)
        if stored == current:
            return
        before = TrainConfig.model_validate(yaml.safe_load(self.config.read_text("utf-8")))
        lines = _differences(before.digested(), config.digested())
        lines += [
            f"{name}: the file's contents changed"
            for name in ("data.train", "data.heldout")
            if stored.get(name) != current[name]
        ]
        changed = "\n  ".join(lines or ["(recorded by another version of SumOne)"])
        raise ConfigError(
            f"{self.path} was started with other settings, so it cannot be resumed with these:\n"
            f"  {changed}\n"
            "Set them back, or start a new run with output_dir=..."
        )

    def good_checkpoint(self) -> Path | None:
        """The newest complete checkpoint; half-written ones are skipped."""
        for folder in sorted(self._checkpoint_folders(), key=_step, reverse=True):
            if _is_complete(folder):
                return folder
        return None

    def rewind(self) -> tuple[Path | None, int]:
        """Make the folder what it was at its newest complete checkpoint.

        Deletes half-written checkpoints and the lines of later steps; returns the checkpoint
        (None: from the start) and its step.
        """
        checkpoint = self.good_checkpoint()
        step = _step(checkpoint) if checkpoint else 0
        for folder in self._checkpoint_folders():
            if _step(folder) > step or not _is_complete(folder):
                shutil.rmtree(folder)
        for file in (self.metrics, self.completions):
            _drop_later_lines(file, step)
        for file in self.path.glob("evaluation_step-*.json"):
            if int(file.stem.rpartition("-")[2]) > step:
                file.unlink()
        return checkpoint, step

    def _checkpoint_folders(self) -> list[Path]:
        return [f for f in self.checkpoints.glob("checkpoint-*") if f.is_dir() and _step(f) > 0]


def mark_complete(checkpoint: Path) -> None:
    """Record that every file of a checkpoint is on disk."""
    sizes = {}
    for file in sorted(checkpoint.rglob("*")):
        if file.is_file():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
            sizes[file.relative_to(checkpoint).as_posix()] = file.stat().st_size
    write_atomically(checkpoint / COMPLETE, json.dumps({"files": sizes}) + "\n")


def _is_complete(checkpoint: Path) -> bool:
    try:
        sizes: dict[str, int] = json.loads((checkpoint / COMPLETE).read_text("utf-8"))["files"]
    except (OSError, ValueError, KeyError):
        return False
    files = {name: checkpoint / name for name in sizes}
    return all(file.is_file() and file.stat().st_size == sizes[n] for n, file in files.items())


def _step(checkpoint: Path) -> int:
    number = checkpoint.name.rpartition("-")[2]
    return int(number) if number.isdigit() else 0


def _drop_later_lines(file: Path, step: int) -> None:
    if not file.is_file():
        return
    kept = []
    # Not str.splitlines: a summary may hold other line separators of Unicode.
    for line in file.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue  # empty, or being written when the run was killed
        if record["step"] <= step:
            kept.append(line + "\n")
    write_atomically(file, "".join(kept))


def _digests(config: TrainConfig) -> dict[str, str]:
    return {
        "digest": config.digest(),
        "data.train": _file_hash(config.data.train),
        "data.heldout": _file_hash(config.data.heldout),
    }


def _file_hash(path: str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def _differences(before: Any, now: Any, key: str = "") -> list[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        names = dict.fromkeys((*before, *now))
        absent = "(not set)"
        return [
            line
            for name in names
            for line in _differences(
                before.get(name, absent), now.get(name, absent), f"{key}.{name}" if key else name
            )
        ]
    return [] if before == now else [f"{key}: was {before!r}, now {now!r}"]

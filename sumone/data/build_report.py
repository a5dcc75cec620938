"""What a data build read and made: `report.json`, and its text for a terminal."""

from pydantic import BaseModel, ConfigDict

__all__ = ["BadFile", "BuildReport", "Group"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BadFile(_Frozen):
    """A file that was skipped."""

    path: str
    """Where it is."""
    reason: str
    """What is wrong with it."""


class Group(_Frozen):
    """Numbers of instances of one domain or one context size."""

    available: int
    """Distinct candidates."""
    train: int
    """Chosen for training."""
    heldout: int
    """Chosen and held out."""


class BuildReport(_Frozen):
    """What a build read and made; `report.json`."""

    output_dir: str
    """Folder of the results."""
    tokens: str
    """What counted the tokens; an estimate says so."""
    files_read: int
    """Files of which something was read."""
    files_bad: int
    """Files that were skipped."""
    bad: tuple[BadFile, ...]
    """The first of them, with the reason."""
    skipped_records: int
    """Records inside good files that could not be read."""
    trajectories: int
    """Trajectories read."""
    no_instance: dict[str, int]
    """Trajectories `too_short` for any size; cuts that were `too_large` (one huge message) or
    had a `small_history`."""
    duplicates: int
    """Candidates with the content of another one."""
    train: int
    """Instances in `train.jsonl`."""
    heldout: int
    """Instances in `heldout.jsonl`."""
    train_tasks: int
    """Tasks of the training instances."""
    heldout_tasks: int
    """Tasks of the held-out instances: none of them in training."""
    memory_share: float
    """Share of the instances that contain a memory."""
    domains: dict[str, Group]
    """Numbers by domain."""
    context_tokens: dict[str, Group]
    """Numbers by context size."""
    redactions: dict[str, int]
    """What was taken out, by type."""

    def text(self) -> str:
        """The report for a terminal."""
        lines = [
            f"{self.files_read} files read, {self.files_bad} skipped; "
            f"{self.trajectories} trajectories, {self.skipped_records} records skipped",
            f"train    {self.train:6} instances of {self.train_tasks} tasks",
            f"heldout  {self.heldout:6} instances of {self.heldout_tasks} tasks",
            f"{self.memory_share:.0%} with a memory; {self.duplicates} duplicates left out; "
            f"tokens: {self.tokens}",
        ]
        for title, groups in (("domain", self.domains), ("size", self.context_tokens)):
            lines += [
                f"{title} {name or '(none)'}: {group.train} train, {group.heldout} held out "
                f"of {group.available}"
                for name, group in groups.items()
            ]
        if self.no_instance:
            shown = ", ".join(f"{name} {count}" for name, count in self.no_instance.items())
            lines.append(f"without instance: {shown}")
        if self.redactions:
            shown = ", ".join(f"{name} {count}" for name, count in self.redactions.items())
            lines.append(f"redacted: {shown}")
        lines += [f"skipped {bad.path}: {bad.reason}" for bad in self.bad]
        return "\n".join([*lines, f"written to {self.output_dir}"])

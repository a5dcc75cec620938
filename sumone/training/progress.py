"""Progress of a run on stderr: a bar on a terminal, one plain line every few steps elsewhere."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

__all__ = ["Progress"]

_PLAIN_LINES = 20
"""Lines that a whole run prints where there is no terminal."""


class Progress:
    """Shows steps and their reward; also the notes around them."""

    def __init__(self, console: Console, *, steps: int, enabled: bool) -> None:
        self._console = console
        self._steps = steps
        self._enabled = enabled
        self._bar: Bar | None = None

    def __enter__(self) -> "Progress":
        if self._enabled and self._console.is_terminal:
            self._bar = Bar(
                TextColumn("training"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.description}"),
                console=self._console,
            )
            self._bar.add_task("", total=self._steps)
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def note(self, text: str) -> None:
        """One line about what happens now."""
        if self._enabled:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Show that a step is done."""
        text = "  ".join(
            f"{label} {_short(metrics.get(key))}"
            for label, key in (
                ("reward", "reward"),
                ("quality", "quality"),
                ("|S|", "summary_tokens"),
                ("failed", "failed_share"),
                ("s", "step_time"),
            )
        )
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=step, description=text)
            return
        every = max(1, self._steps // _PLAIN_LINES)
        if step == 1 or step % every == 0 or step == self._steps:
            self.note(f"step {step}/{self._steps}  {text}")


def _short(value: Any) -> str:
    return "-" if value is None else f"{value:.3g}"

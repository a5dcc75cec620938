"""What a judge says of one reconstructed block (Section 3.3)."""

from typing import NamedTuple, Protocol

__all__ = ["Judge", "Score"]


class Score(NamedTuple):
    """p_i and r_i of a block, both in [0, 1]."""

    precision: float
    """Share of the prediction that the truth supports."""
    recall: float
    """Share of the truth that the prediction recovers."""


class Judge(Protocol):
    """Compares a reconstructed block with the true one."""

    @property
    def name(self) -> str:
        """Which judge."""
        ...

    async def score(self, truth: str, prediction: str) -> Score | None:
        """The verdict; None if there is no valid one. Raises ModelError for a failed call."""
        ...

    def counters(self) -> dict[str, float]:
        """Counts since the start, by name."""
        ...

    async def aclose(self) -> None:
        """Close what it holds."""
        ...

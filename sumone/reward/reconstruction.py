"""The reward of a summary (Section 3.3, Equations 5 and 6)."""

from collections.abc import Collection
from typing import NamedTuple

from sumone.reward.score import Score

__all__ = ["Reward", "enough_judged", "on_grid", "penalty", "quality"]

_GRID = 1 << 16


class Reward(NamedTuple):
    """R(S) = Q(S) - lambda |S| / L_max (Equation 6)."""

    quality: float
    """Q(S), in [0, 2] for the paper's objective."""
    penalty: float
    """lambda |S| / L_max."""

    @property
    def value(self) -> float:
        """R(S)."""
        return self.quality - self.penalty


def quality(scores: Collection[Score]) -> float:
    """Q(S): mean over the judged blocks of recall + precision (Equation 5), in [0, 2].

    Raises ValueError for no scores: a quality that was not measured is no number.
    """
    if not scores:
        raise ValueError("quality needs at least one judged block")
    return sum(score.precision + score.recall for score in scores) / len(scores)


def penalty(num_tokens: int, budget_tokens: int, length_penalty: float) -> float:
    """lambda |S| / L_max, not clipped; |S| and L_max in the policy's tokens."""
    return length_penalty * num_tokens / budget_tokens


def enough_judged(num_judged: int, num_masked: int, min_judged: float) -> bool:
    """Whether so many of the masked blocks have a valid verdict; never with none."""
    # The tolerance keeps 9 of 10 at a share of 0.9.
    return num_judged > 0 and num_judged >= min_judged * num_masked - 1e-9


def on_grid(value: float) -> float:
    """The nearest multiple of 2^-16, far below any judge's noise.

    Sums of a group of such rewards are exact in float32, so equal rewards have exactly their own
    mean and advantage 0 (Equation 7), and residues of rounding are gone.
    """
    return round(value * _GRID) / _GRID

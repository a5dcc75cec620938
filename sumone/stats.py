"""Intervals for comparisons on the same instances: the paired bootstrap."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

__all__ = ["Interval", "paired_interval"]

_RESAMPLES = 10_000
_SEED = 20_261_101
"""Fixed, so that the same rows always give the same interval."""


class Interval(NamedTuple):
    """A mean with its bootstrap interval."""

    mean: float
    """Mean of the values."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""
    num_instances: int
    """Number of instances behind it."""


def paired_interval(
    first: Mapping[str, float], second: Mapping[str, float], *, confidence: float = 0.95
) -> Interval | None:
    """Mean of `first - second` over the instances that both have, with a percentile bootstrap
    interval over instances (`scipy.stats.bootstrap`, fixed seed). None where they share none.

    With one instance, or where all differences are equal, the interval is that one point.
    """
    shared = sorted(first.keys() & second.keys())
    if not shared:
        return None
    differences = np.array([first[key] - second[key] for key in shared])
    mean = float(differences.mean())
    if len(shared) == 1 or float(np.ptp(differences)) == 0.0:
        return Interval(mean, mean, mean, len(shared))
    from scipy.stats import bootstrap  # only here: scipy is no part of the core install

    found = bootstrap(
        (differences,),
        np.mean,
        n_resamples=_RESAMPLES,
        batch=1_000,  # bounds the memory of the resamples
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(_SEED),
    ).confidence_interval
    return Interval(mean, float(found.low), float(found.high), len(shared))

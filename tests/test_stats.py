"""The paired bootstrap."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sumone.stats import Interval, paired_interval


def columns(differences: list[float]) -> tuple[dict[str, float], dict[str, float]]:
    base = {f"i{k}": float(k) for k in range(len(differences))}
    return {key: base[key] + d for key, d in zip(base, differences, strict=True)}, base


@settings(deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=2, max_size=30))
def test_the_mean_lies_in_its_interval(differences: list[int]) -> None:
    found = paired_interval(*columns([float(d) for d in differences]))
    assert found is not None
    assert found.low - 1e-9 <= found.mean <= found.high + 1e-9
    assert min(differences) <= found.low + 1e-9
    assert found.high <= max(differences) + 1e-9


def test_it_is_paired_fixed_and_close_to_theory() -> None:
    noise = np.random.default_rng(1).normal(0.2, 1.0, 400)
    first, second = columns(list(noise))
    found = paired_interval(first, second)
    assert found == paired_interval(first, second)
    assert found is not None
    half = 1.96 * noise.std(ddof=1) / 20
    assert found.low == pytest.approx(noise.mean() - half, abs=0.02)
    assert found.high == pytest.approx(noise.mean() + half, abs=0.02)


def test_only_shared_instances_count() -> None:
    assert paired_interval({"a": 1.0}, {"b": 1.0}) is None
    assert paired_interval({"a": 3.0, "c": 9.0}, {"a": 1.0, "b": 1.0}) == Interval(2.0, 2.0, 2.0, 1)
    assert paired_interval({"a": 2.0, "b": 3.0}, {"a": 1.0, "b": 2.0}) == Interval(1.0, 1.0, 1.0, 2)

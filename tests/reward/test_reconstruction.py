"""Equations 5 and 6."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sumone.reward.reconstruction import Reward, enough_judged, penalty, quality
from sumone.reward.score import Score

SHARE = st.floats(0, 1)


@given(st.lists(st.builds(Score, SHARE, SHARE), min_size=1))
def test_quality_is_the_mean_of_precision_plus_recall(scores: list[Score]) -> None:
    value = quality(scores)
    assert 0 <= value <= 2 + 1e-12
    assert value == pytest.approx(sum(s.precision + s.recall for s in scores) / len(scores))


def test_no_scores_give_no_quality() -> None:
    with pytest.raises(ValueError, match="at least one"):
        quality([])


def test_the_penalty_is_not_clipped() -> None:
    assert penalty(1024, 2048, 0.1) == pytest.approx(0.05)
    assert penalty(0, 2048, 0.1) == 0
    assert penalty(4096, 2048, 0.1) == pytest.approx(0.2)
    assert Reward(0.05, penalty(4096, 2048, 0.1)).value == pytest.approx(-0.15)


@pytest.mark.parametrize(
    ("judged", "masked", "enough"),
    [(9, 10, True), (8, 10, False), (10, 10, True), (0, 0, False), (22, 24, True), (21, 24, False)],
)
def test_ninety_percent_must_be_judged(judged: int, masked: int, enough: bool) -> None:
    assert enough_judged(judged, masked, 0.9) is enough


def test_nothing_judged_is_never_enough() -> None:
    assert not enough_judged(0, 5, 0.0)

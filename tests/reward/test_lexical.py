"""The lexical judge: bounds, order, weights."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sumone.reward.lexical import LexicalJudge, TokenWeights, lexical_tokens
from sumone.reward.score import Score

WORDS = st.lists(st.sampled_from(["a", "b", "12.5", "(", "error", "值"]), max_size=12).map(" ".join)
WEIGHTS = TokenWeights.of(["a b error", "a b ( 1", "a error", "a"])


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("total=1,204.50 at 12:30:05", ["total", "=", "1,204.50", "at", "12:30:05"]),
        ("db_7/primary-x9", ["db", "_", "7", "/", "primary", "-", "x", "9"]),
        ("日本語 text", ["日", "本", "語", "text"]),
        ("naïve Größe", ["naïve", "Größe"]),
        (" \n\t", []),
    ],
)
def test_tokens(text: str, tokens: list[str]) -> None:
    assert lexical_tokens(text) == tokens


def test_precision_and_recall() -> None:
    judge = LexicalJudge()
    assert judge.measure("a b c d", "a c") == Score(1.0, 0.5)
    assert judge.measure("a c", "a b c d") == Score(0.5, 1.0)
    assert judge.measure("a b", "b a") == Score(0.5, 0.5)  # order counts
    assert judge.measure("value 17", "value 18") == Score(0.5, 0.5)


@pytest.mark.parametrize("judge", [LexicalJudge(), LexicalJudge(WEIGHTS)])
def test_empty_texts_score_zero(judge: LexicalJudge) -> None:
    """Case 114: an empty prediction has recall 0 and precision 0, not 1 by 0/0."""
    for truth, prediction in (("x", ""), ("", "x"), ("", ""), ("x", " \n")):
        assert judge.measure(truth, prediction) == Score(0.0, 0.0)


@pytest.mark.parametrize("judge", [LexicalJudge(), LexicalJudge(WEIGHTS)])
def test_bounds_and_symmetry(judge: LexicalJudge) -> None:
    @given(WORDS, WORDS)
    def check(truth: str, prediction: str) -> None:
        score = judge.measure(truth, prediction)
        assert 0 <= score.precision <= 1 and 0 <= score.recall <= 1
        assert (score.precision == 0) == (score.recall == 0)
        turned = judge.measure(prediction, truth)
        assert turned == pytest.approx(Score(score.recall, score.precision))
        if lexical_tokens(truth):
            assert judge.measure(truth, truth) == Score(1.0, 1.0)

    check()


def brute_force(truth: list[str], prediction: list[str]) -> float:
    if not truth or not prediction:
        return 0.0
    skip = max(brute_force(truth[1:], prediction), brute_force(truth, prediction[1:]))
    if truth[0] == prediction[0]:
        return max(skip, WEIGHTS.weight(truth[0]) + brute_force(truth[1:], prediction[1:]))
    return skip


@given(
    st.lists(st.sampled_from("ab1("), min_size=1, max_size=6),
    st.lists(st.sampled_from("ab1("), min_size=1, max_size=6),
)
def test_the_heaviest_common_subsequence_is_exact(truth: list[str], prediction: list[str]) -> None:
    score = LexicalJudge(WEIGHTS).measure(" ".join(truth), " ".join(prediction))
    common = brute_force(truth, prediction)
    total = sum(WEIGHTS.weight(token) for token in truth)
    assert score.recall == pytest.approx(common / total, rel=1e-4)


def test_rare_tokens_weigh_more() -> None:
    histories = [f"the job ran well and took {n} seconds" for n in range(50)]
    weights = TokenWeights.of(histories)
    assert weights.weight("job") < weights.weight("7") <= weights.weight("never seen")
    assert weights.weight("job") > 0
    plain, weighted = LexicalJudge(), LexicalJudge(weights)
    truth, boilerplate = (
        "the job ran well and took 7 seconds",
        "the job ran well and took 9 seconds",
    )
    assert plain.measure(truth, boilerplate).recall == pytest.approx(7 / 8)
    assert weighted.measure(truth, boilerplate).recall < 0.3
    assert weighted.measure(truth, "7").recall > 0.7


def test_weights_survive_json() -> None:
    weights = TokenWeights.of(["a 值 \ud800", "a"])
    assert TokenWeights.from_json(weights.to_json()) == weights
    assert weights.frequencies["a"] == 2
    with pytest.raises(ValueError, match="at least one"):
        TokenWeights.of([])

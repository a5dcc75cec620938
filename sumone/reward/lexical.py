"""A judge without a model: longest common subsequence of words, numbers and punctuation.

For smoke runs, the tiny models, tests, and as a sanity metric beside the LLM judge. With inverse
document frequencies as weights, predictable boilerplate earns little.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from rapidfuzz.distance import LCSseq

from sumone.reward.score import Score

__all__ = ["LexicalJudge", "TokenWeights", "lexical_tokens"]

_SINGLE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
"""Scripts without spaces: each character is a token."""
_TOKEN = re.compile(rf"\d+(?:[.,:]\d+)*|[{_SINGLE}]|[^\W\d_{_SINGLE}]+|_|[^\w\s]")

_FLOOR = 0.02
"""Smallest weight of a token, as a share of the largest: no text weighs nothing."""
_SCALE = 1 << 20
_Numbers: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int_]]"


def lexical_tokens(text: str) -> list[str]:
    """Numbers (with inner points, commas and colons), words, and single other characters."""
    return _TOKEN.findall(text)


@dataclass(frozen=True)
class TokenWeights:
    """Inverse document frequency over a set of histories."""

    num_documents: int
    frequencies: Mapping[str, int]
    """In how many histories each token occurs."""

    @classmethod
    def of(cls, histories: Iterable[str]) -> "TokenWeights":
        """Count the histories, each once; ValueError for none."""
        counts: Counter[str] = Counter()
        total = 0
        for history in histories:
            counts.update(set(lexical_tokens(history)))
            total += 1
        if not total:
            raise ValueError("token weights need at least one history")
        return cls(total, counts)

    def weight(self, token: str) -> float:
        """ln((1 + N) / (1 + n)) for a token in n of N histories, at least a small share of the
        largest possible weight."""
        top = math.log(1 + self.num_documents)
        return max(top - math.log(1 + self.frequencies.get(token, 0)), _FLOOR * top)

    def to_json(self) -> str:
        """All of it as JSON, tokens sorted."""
        return json.dumps(
            {
                "num_documents": self.num_documents,
                "frequencies": dict(sorted(self.frequencies.items())),
            },
            ensure_ascii=False,
        )

    @classmethod
    def from_json(cls, text: str) -> "TokenWeights":
        """The inverse of `to_json`."""
        tree = json.loads(text)
        return cls(int(tree["num_documents"]), dict(tree["frequencies"]))


class LexicalJudge:
    """Precision and recall by the heaviest common subsequence of tokens."""

    def __init__(self, weights: TokenWeights | None = None) -> None:
        self.name = "lexical" if weights is None else "lexical-idf"
        self._weights = weights
        self._known: dict[str, int] = {}

    def measure(self, truth: str, prediction: str) -> Score:
        """Share of the prediction, and of the truth, that the two have in common, in order.

        Where either has no token both shares are 0: nothing was supported, nothing recovered.
        """
        true, predicted = lexical_tokens(truth), lexical_tokens(prediction)
        if not true or not predicted:
            return Score(0.0, 0.0)
        if self._weights is None:
            common = LCSseq.similarity(true, predicted)
            return Score(common / len(predicted), common / len(true))
        numbers = {token: n for n, token in enumerate(dict.fromkeys([*true, *predicted]))}
        weights = np.array([self._weight(token, self._weights) for token in numbers])
        a = np.array([numbers[token] for token in true])
        b = np.array([numbers[token] for token in predicted])
        common = _heaviest_common(a, b, weights)
        return Score(common / int(weights[b].sum()), common / int(weights[a].sum()))

    def _weight(self, token: str, weights: TokenWeights) -> int:
        # Whole numbers: their sums are exact, so equal texts score exactly 1.
        known = self._known.get(token)
        if known is None:
            known = self._known[token] = round(_SCALE * weights.weight(token))
        return known

    async def score(self, truth: str, prediction: str) -> Score:
        """`measure`, in the form of a judge."""
        return self.measure(truth, prediction)

    def counters(self) -> dict[str, float]:
        """Nothing can go wrong here, so nothing is counted."""
        return {}

    async def aclose(self) -> None:
        """It holds nothing."""


def _heaviest_common(a: _Numbers, b: _Numbers, weights: _Numbers) -> int:
    """Weight of the heaviest common subsequence, row by row."""
    row = np.zeros(len(b) + 1, dtype=weights.dtype)
    for token in a:
        matched = np.where(b == token, row[:-1] + weights[token], 0)
        np.maximum(row[1:], matched, out=row[1:])
        np.maximum.accumulate(row, out=row)
    return int(row[-1])

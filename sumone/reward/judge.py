"""The LLM judge: precision and recall of a reconstructed block, as strict JSON (Section 3.3)."""

import asyncio
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from sumone.errors import ModelError
from sumone.models.chat import ChatModel
from sumone.prompts import judge_prompt
from sumone.reward.score import Judge, Score
from sumone.reward.verdicts import VerdictCache, verdict_key
from sumone.types import ChatMessage

__all__ = ["VERDICT_SCHEMA", "Judge", "LlmJudge", "Score", "parse_verdict"]

_NUMBER = {"type": "number", "minimum": 0, "maximum": 1}
VERDICT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"precision": _NUMBER, "recall": _NUMBER},
    "required": ["precision", "recall"],
    "additionalProperties": False,
}
"""The form of a verdict, for endpoints that can enforce one."""

_ATTEMPTS = 2
"""A verdict that is invalid or did not come is asked for once more."""


class LlmJudge:
    """A judge model at temperature 0 that sees only truth and prediction, never the summary."""

    def __init__(
        self,
        model: ChatModel,
        *,
        max_output_tokens: int,
        cache: VerdictCache,
        prompt: Callable[..., list[ChatMessage]] = judge_prompt,
    ) -> None:
        """`prompt(truth, prediction, nonce=...)` is the rubric filled in."""
        self.name = model.name
        self._prompt = prompt
        self._model = model
        self._max_output_tokens = max_output_tokens
        self._cache = cache
        # The wording of the prompt is part of the key: a changed rubric is a new judge.
        empty = prompt("", "", nonce="")
        self._rubric = "\n".join(message["content"] for message in empty)
        self._running: dict[str, asyncio.Task[Score | None]] = {}
        self.num_calls = 0
        """Calls made to the model."""
        self.num_cached = 0
        """Verdicts found in the cache or shared with an equal question under way."""
        self.num_invalid = 0
        """Answers that were no valid verdict."""

    async def score(self, truth: str, prediction: str) -> Score | None:
        """The verdict, from the cache where it is known; None after two invalid answers.

        Equal questions under way share one call, so equal reconstructions score equally.
        Raises ModelError when both calls failed.
        """
        if not prediction.strip():
            return Score(0.0, 0.0)
        key = verdict_key(self.name, self._rubric, truth, prediction)
        known = self._cache.get(key)
        if known is not None:
            self.num_cached += 1
            return known
        task = self._running.get(key)
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            task = asyncio.create_task(self._ask(key, truth, prediction))
            self._running[key] = task
            task.add_done_callback(lambda done: self._finished(key, done))
        else:
            self.num_cached += 1
        # Shielded: a rollout that gives up must not take the verdict from the others.
        return await asyncio.shield(task)

    def _finished(self, key: str, task: "asyncio.Task[Score | None]") -> None:
        if self._running.get(key) is task:
            del self._running[key]
        if not task.cancelled():
            task.exception()  # all who waited may have gone; then nobody else looks at it

    async def _ask(self, key: str, truth: str, prediction: str) -> Score | None:
        prompt = self._prompt(truth, prediction, nonce=_data_nonce(truth, prediction))
        for attempt in range(_ATTEMPTS):
            self.num_calls += 1
            try:
                answer = await self._model.complete(
                    prompt, max_tokens=self._max_output_tokens, schema=VERDICT_SCHEMA
                )
            except ModelError:
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            score = parse_verdict(answer.text)
            if score is not None:
                self._cache.put(key, score)
                return score
            self.num_invalid += 1
        return None

    def counters(self) -> dict[str, float]:
        """Calls, verdicts known without a call, invalid answers, cache faults."""
        return {
            "calls": self.num_calls,
            "cached": self.num_cached,
            "invalid": self.num_invalid,
            "cache_faults": self._cache.num_faults,
        }

    async def aclose(self) -> None:
        """Give up the calls under way; close the model and the cache."""
        for task in list(self._running.values()):
            task.cancel()
        await self._model.aclose()
        self._cache.close()


def _data_nonce(*texts: str) -> str:
    """Key of the tags around data: fixed by the texts, and occurring in none of them."""
    digest = hashlib.sha256("\0".join(texts).encode("utf-8", "replace")).hexdigest()
    length = 6
    while any(digest[:length] in text for text in texts) and length < len(digest):
        length += 1
    return digest[:length]


_FENCE = re.compile(r"^\s*```[a-zA-Z]*\s*$", re.MULTILINE)
_DECODER = json.JSONDecoder()


def parse_verdict(text: str) -> Score | None:
    """The first balanced JSON object that has the needed keys; None if it is no valid verdict.

    A value outside [0, 1], NaN, a boolean or a string makes the verdict invalid: clamping or
    guessing would reward the judge's noise.
    """
    for candidate in _objects(_FENCE.sub("", text)):
        if "precision" in candidate and "recall" in candidate:
            precision = _share(candidate["precision"])
            recall = _share(candidate["recall"])
            if precision is None or recall is None:
                return None
            return Score(precision, recall)
    return None


def _objects(text: str) -> Iterator[dict[str, object]]:
    start = text.find("{")
    while start >= 0:
        try:
            value, _ = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            yield value
        # Not behind the object: the verdict may be nested in it.
        start = text.find("{", start + 1)


def _share(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and 0 <= number <= 1 else None

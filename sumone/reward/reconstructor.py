"""The frozen reconstructor D: C, masked history and S in, a guess per hidden block out
(Section 3.2, Equation 3)."""

import asyncio
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sumone.config import ReconstructorSettings
from sumone.errors import ModelError
from sumone.masking import Block, missing_marker
from sumone.models.chat import ChatModel
from sumone.prompts import UNRECOVERABLE, Style, reconstruct_prompt
from sumone.reward.masked import MaskedHistory
from sumone.types import ChatMessage

__all__ = ["Reconstructor", "is_unrecoverable", "parse_answer"]

_TAG_TOKENS = 48
"""Room for the two tags around a block."""

OnGuess = Callable[[Block, str | None], None]
"""Called with each block's guess as soon as it is known; None: the block is lost."""


@dataclass(slots=True)
class Reconstructor:
    """Asks a model for the hidden blocks, a few in each call."""

    model: ChatModel
    settings: ReconstructorSettings
    style: Style
    warm_prefix: bool = False
    """Await a rollout's first call before the others, so that they find its prefix in the
    server's cache."""
    num_calls: int = 0
    """Calls made to the model."""
    num_failed: int = 0
    """Calls that failed or were cut."""

    async def fill(self, masked: MaskedHistory, summary: str, on_guess: OnGuess) -> None:
        """Guess every hidden block; `on_guess` gets each one once.

        A call that ended normally without text for a block makes it empty (""). A block lost to a
        failed or cut call is asked for once more alone, then it is lost (None).
        """
        size = self.settings.blocks_per_call
        calls = [masked.hidden[i : i + size] for i in range(0, len(masked.hidden), size)]
        if self.warm_prefix and len(calls) > 1:
            first = calls.pop(0)
            async with asyncio.TaskGroup() as group:
                # The blocks it lost need not hold up the other calls.
                lost = await self._ask(masked, summary, first, on_guess)
                for block in lost:
                    group.create_task(self._again(masked, summary, block, on_guess))
                for call in calls:
                    group.create_task(self._call(masked, summary, call, on_guess))
            return
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(self._call(masked, summary, call, on_guess))

    async def _call(
        self, masked: MaskedHistory, summary: str, blocks: Sequence[Block], on_guess: OnGuess
    ) -> None:
        lost = await self._ask(masked, summary, blocks, on_guess)
        async with asyncio.TaskGroup() as group:
            for block in lost:
                group.create_task(self._again(masked, summary, block, on_guess))

    async def _again(
        self, masked: MaskedHistory, summary: str, block: Block, on_guess: OnGuess
    ) -> None:
        # With more room: a greedy model would be cut at the same place again.
        for lost in await self._ask(masked, summary, [block], on_guess, room=2):
            on_guess(lost, None)

    async def _ask(
        self,
        masked: MaskedHistory,
        summary: str,
        blocks: Sequence[Block],
        on_guess: OnGuess,
        *,
        room: int = 1,
    ) -> list[Block]:
        """One call; reports the guesses it brought and returns the blocks it lost."""
        self.num_calls += 1
        prompt = self.prompt(masked, summary, blocks)
        try:
            limit = room * self.max_tokens(blocks)
            answer = await self.model.complete(prompt, max_tokens=limit)
        except ModelError:
            self.num_failed += 1
            return list(blocks)
        ended = answer.finish_reason == "stop"
        self.num_failed += not ended
        found = parse_answer(
            answer.text, [block.index for block in blocks], masked.nonce, ended=ended
        )
        lost: list[Block] = []
        for block in blocks:
            guess = found.get(block.index)
            if guess is None:
                lost.append(block)
            else:
                on_guess(block, guess)
        return lost

    def prompt(
        self, masked: MaskedHistory, summary: str, blocks: Sequence[Block]
    ) -> list[ChatMessage]:
        """Instructions, C, masked history, S, and the request last."""
        return reconstruct_prompt(
            masked.context,
            masked.text,
            summary,
            style=self.style,
            markers=[missing_marker(block.index, masked.nonce) for block in blocks],
            nonce=masked.nonce,
        )

    def max_tokens(self, blocks: Sequence[Block]) -> int:
        """Allowed output: a multiple of the hidden tokens, with room for the tags."""
        hidden = sum(block.num_tokens for block in blocks)
        room = math.ceil(hidden * self.settings.output_ratio)
        if self.style == "standard":
            room += _TAG_TOKENS * len(blocks)
        return max(1, min(room, self.settings.max_model_tokens))


def is_unrecoverable(guess: str) -> bool:
    """Whether the reconstructor said that it cannot recover the block."""
    return guess.strip() == UNRECOVERABLE


def parse_answer(text: str, requested: Sequence[int], nonce: str, *, ended: bool) -> dict[int, str]:
    """Guess of each requested block that the answer settles; blocks it does not are absent.

    `ended`: the answer ended normally. Then a block without tags is empty (""), a tag that was
    not closed ends with the answer or at the next opening tag, and a lone requested block without
    any tag is the whole text. In a cut answer only closed blocks count. The first answer for a
    block counts, and tags of blocks that were not requested are ignored.
    """
    opening = re.compile(rf'<block-{re.escape(nonce)}\s+index="?(\d+)"?\s*>')
    closing = f"</block-{nonce}>"
    marks = list(opening.finditer(text))
    guesses: dict[int, str] = {}
    for number, mark in enumerate(marks):
        stop = marks[number + 1].start() if number + 1 < len(marks) else len(text)
        end = text.find(closing, mark.end(), stop)
        if end < 0 and not ended and number + 1 == len(marks):
            continue  # cut inside this block
        body = text[mark.end() : end if end >= 0 else stop]
        digits = mark.group(1)
        if len(digits) < 10 and int(digits) in requested:
            guesses.setdefault(int(digits), body.strip("\n"))
    if not ended:
        return guesses
    if not marks and len(requested) == 1:
        return {requested[0]: text.replace(closing, "").strip("\n")}
    return {index: guesses.get(index, "") for index in requested}

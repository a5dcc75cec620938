"""Exercises without meaning that come before the task: copying, and finding a line by its number.

From the task alone the pair does not learn to read a summary (measured); after these it does.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sumone.models.chat_text import PromptEncoder
from sumone.training.warmup_examples import IGNORED, Batch, Example, fork

__all__ = ["Exercises"]


@dataclass(frozen=True, slots=True)
class Exercises:
    """Draws the exercises."""

    encoder: PromptEncoder
    """Encodes the form of a request."""
    vocabulary: Sequence[int]
    """Tokens that occur in the world: what the exercises are made of."""
    end_id: int
    """Token that ends an answer."""

    def copying(self, rng: random.Random, *, rows: int, level: int) -> Batch:
        """A random sequence, something between, then the same again, which is learned.

        `level`, 1 to 8: how far apart the two may be. At the last level a row may be made of few
        different tokens, so that one token of context does not tell the next.
        """
        size, between = rng.randint(8, 24), rng.randint(0, 16)
        kinds = rng.choice((24, 48, len(self.vocabulary))) if level == 8 else len(self.vocabulary)
        ids: list[list[int]] = []
        positions: list[list[int]] = []
        for _ in range(rows):
            own = rng.sample(self.vocabulary, kinds)
            first = rng.choices(own, k=size)
            ids.append([*first, *rng.choices(own, k=between), *first])
            start, gap = rng.randrange(25 * level), rng.randrange(20 * level)
            again = start + size + between + gap
            positions.append([*range(start, start + size + between), *range(again, again + size)])
        width, head = 2 * size + between, size + between
        labels = [[IGNORED] * head + row[head + 1 :] + [IGNORED] for row in ids]
        seen = torch.ones(width, width, dtype=torch.bool).tril().expand(rows, 1, width, width)
        return Batch(torch.tensor(ids), torch.tensor(positions), seen, torch.tensor(labels))

    def finding(self, rng: random.Random, *, rows: int, lines: int) -> Batch:
        """Numbered lines of random tokens, then a request for one, in the form of the task."""
        return fork([self._line(rng, lines) for _ in range(rows)])

    def _line(self, rng: random.Random, lines: int) -> Example:
        own = rng.sample(self.vocabulary, rng.randint(30, min(200, len(self.vocabulary))))
        numbers = sorted(rng.sample(range(10), lines))
        newline = self.encoder.text("\n")
        texts = {n: rng.choices(own, k=rng.randint(5, 14)) + newline for n in numbers}
        wanted = rng.choice(numbers)
        request = f'[fill]\n<missing block="{wanted}" key="{rng.getrandbits(16):04x}"/>'
        [form] = self.encoder.prompts([[{"role": "user", "content": request}]])
        prompt: list[int] = []
        for number, text in texts.items():
            prompt += self.encoder.text(str(number)) + text
        answer = self.encoder.text(f"[assistant]\n{wanted}") + texts[wanted]
        return Example([prompt + form], [[*answer, self.end_id]])

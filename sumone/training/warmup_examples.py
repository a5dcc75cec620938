"""What the tiny models read in their warm-up: episodes, imperfect summaries, and batches in which
several answers share one prompt.

Prompts are the ones of the reward and the trainer, to the letter: rendered by `sumone.prompts` and
encoded as a model in this process encodes them.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sumone.config import TrainConfig
from sumone.data.incident_world import Entry, Episode, make_instance
from sumone.masking import apply_mask, mask_nonce, missing_marker, partition, sample_mask
from sumone.models.chat_text import PromptEncoder
from sumone.prompts import reconstruct_prompt, summarize_prompt
from sumone.render import render_text
from sumone.tokens import Tokens
from sumone.types import ChatMessage, CompactionInstance

__all__ = ["Batch", "Example", "ExampleMaker", "fork", "vague_line", "weak_extract"]

IGNORED = -100
"""Label of a token that is not learned."""


class Example(NamedTuple):
    """Prompts that share a beginning, each with its answer."""

    prompts: list[list[int]]
    """Token ids, up to where the answer starts."""
    answers: list[list[int]]
    """Token ids of the answers, end token included."""
    informative: tuple[bool, ...] = ()
    """Of each answer, whether it carries a fact (reconstruction only)."""


class Batch(NamedTuple):
    """Examples as tensors; all of shape (rows, width) but for `seen`."""

    ids: Tensor
    """Token ids."""
    positions: Tensor
    """Positions: each answer goes on where the shared beginning ends."""
    seen: Tensor
    """(rows, 1, width, width), boolean: which token sees which."""
    labels: Tensor
    """The next token where it is learned, else -100."""


def fork(examples: Sequence[Example]) -> Batch:
    """Each example as one row: the shared beginning once, then every branch behind it, blind to
    the other branches. Equal to one row per prompt, at about a third of the work."""
    rows: list[tuple[list[int], list[int], list[int], list[int]]] = []
    for prompts, answers, _ in examples:
        shared = _shared_length(prompts)
        ids = prompts[0][:shared]
        positions, branch = list(range(shared)), [0] * shared
        labels = [IGNORED] * shared
        for number, (prompt, answer) in enumerate(zip(prompts, answers, strict=True), 1):
            tail = prompt[shared:]
            ids = ids + tail + answer
            positions += range(shared, shared + len(tail) + len(answer))
            branch += [number] * (len(tail) + len(answer))
            labels += [IGNORED] * (len(tail) - 1) + answer + [IGNORED]
        rows.append((ids, positions, branch, labels))
    width = max(len(row[0]) for row in rows)

    def padded(column: int, filler: int) -> Tensor:
        return torch.tensor([row[column] + [filler] * (width - len(row[column])) for row in rows])

    branches = padded(2, -1)
    same = branches[:, :, None] == branches[:, None, :]
    trunk = (branches[:, None, :] == 0) & (branches[:, :, None] > 0)
    seen = (same | trunk) & torch.ones(width, width, dtype=torch.bool).tril()
    return Batch(padded(0, 0), padded(1, 0), seen[:, None], padded(3, IGNORED))


def _shared_length(prompts: Sequence[list[int]]) -> int:
    """Common beginning of the prompts, at least one token short of the shortest."""
    first, limit = prompts[0], min(map(len, prompts)) - 1
    shared = 0
    while shared < limit and all(prompt[shared] == first[shared] for prompt in prompts):
        shared += 1
    return shared


def vague_line(number: int) -> str:
    """A summary line that says nothing about its entry."""
    return f"{number} checked"


def weak_extract(
    entries: Sequence[Entry], rng: random.Random, *, fact_share: float, vague_share: float
) -> str:
    """A poor summary: of each entry the fact (where it has one), a vague line, or nothing."""
    lines: list[str] = []
    for entry in entries:
        draw = rng.random()
        if draw < fact_share:
            if entry.fact:
                lines.append(entry.fact)
        elif draw < fact_share + vague_share:
            lines.append(vague_line(entry.number))
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ExampleMaker:
    """Draws examples of the warm-up split, endlessly."""

    config: TrainConfig
    """Blocks, masks, prompts and cut: as the training job uses them."""
    tokens: Tokens
    """Counts for blocks and cut."""
    encoder: PromptEncoder
    """Encodes prompts and answers."""
    end_id: int
    """Token that ends an answer."""
    memory_share: float
    """Share of the episodes that start with a memory."""
    value_ids: frozenset[int]
    """Tokens that carry values: numbers and names."""

    def reconstruction(
        self,
        rng: random.Random,
        *,
        window: int,
        summary: Callable[[Sequence[Entry], random.Random], str] | None,
    ) -> Example:
        """Masked blocks of an episode to be restored, one prompt a block.

        `window`: only so many consecutive blocks of the history, for a start with short prompts.
        `summary` writes the summary from the entries; None: the perfect extract.
        """
        instance, episode = self._draw(rng)
        size = self.config.masking.block_tokens
        blocks = partition(instance.expired, block_tokens=size, tokens=self.tokens)
        entries = episode.entries
        start = rng.randrange(max(1, len(blocks) - window + 1))
        blocks, entries = blocks[start : start + window], entries[start : start + window]
        key = {"seed": rng.getrandbits(32), "instance_id": instance.id, "step": 0}
        ratio = self.config.masking.ratio
        mask = {start + place for place in sample_mask(len(blocks), ratio=ratio, **key)}  # type: ignore[arg-type]
        nonce = mask_nonce(render_text(instance.expired), **key)  # type: ignore[arg-type]
        text = "\n".join(entry.fact for entry in entries if entry.fact)
        if summary is not None:
            text = summary(entries, rng)
        hidden = [block for block in blocks if block.index in mask]
        prompts = [
            reconstruct_prompt(
                instance.context,
                apply_mask(blocks, mask, nonce),
                text,
                style=self.config.prompts,
                markers=[missing_marker(block.index, nonce)],
                nonce=nonce,
            )
            for block in hidden
        ]
        facts = {entry.number for entry in entries if entry.fact}
        return self._example(
            prompts,
            [block.text for block in hidden],
            tuple(block.index in facts for block in hidden),
        )

    def imperfect(self, entries: Sequence[Entry], rng: random.Random) -> str:
        """A summary as the reconstructor may meet it: often incomplete or vague, sometimes none or
        another episode's."""
        kind = rng.random()
        if kind < 0.07:
            return ""
        if kind < 0.14:
            return self._draw(rng)[1].extract
        facts = 1.0 if kind < 0.45 else rng.random()
        return weak_extract(entries, rng, fact_share=facts, vague_share=(1 - facts) * rng.random())

    def summary(self, rng: random.Random, *, fact_share: float, vague_share: float) -> Example:
        """An episode with a weak extract, as the policy reads and writes it."""
        instance, episode = self._draw(rng)
        prompt = summarize_prompt(
            instance,
            style=self.config.prompts,
            budget_tokens=self.config.reward.budget_tokens,
        )
        text = weak_extract(episode.entries, rng, fact_share=fact_share, vague_share=vague_share)
        return self._example([prompt], [text])

    def _draw(self, rng: random.Random) -> tuple[CompactionInstance, Episode]:
        return make_instance(
            "warmup",
            rng.getrandbits(40),
            memory_share=self.memory_share,
            settings=self.config.compaction,
            tokens=self.tokens,
        )

    def _example(
        self,
        prompts: Sequence[Sequence[ChatMessage]],
        answers: Sequence[str],
        informative: tuple[bool, ...] = (),
    ) -> Example:
        return Example(
            self.encoder.prompts(prompts),
            [[*self.encoder.text(answer), self.end_id] for answer in answers],
            informative,
        )

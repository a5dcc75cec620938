"""The masked history that a summary is tested on (Section 3.2, Equations 2 and 3).

The memory rule decides what is masked: with `replace`, blocks are drawn from old memory and
history, and the reconstructor's context has no memory; with `keep`, Equation 1 to the letter.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal

from sumone.config import MaskingSettings
from sumone.masking import Block, apply_mask, mask_nonce, partition, sample_mask
from sumone.render import render_text
from sumone.tokens import Tokens
from sumone.types import CompactionInstance, Message

__all__ = ["MaskedHistory", "Masker"]

_REMEMBERED = 512
"""Instances whose blocks are kept."""


@dataclass(frozen=True, slots=True)
class MaskedHistory:
    """One instance at one step: the same for all G samples, on every rank."""

    context: tuple[Message, ...]
    """C, as the reconstructor sees it."""
    text: str
    """The history with markers in place of the hidden blocks."""
    hidden: tuple[Block, ...]
    """The hidden blocks, in order."""
    nonce: str
    """Key of the markers and answer tags."""


class Masker:
    """Partitions and masks instances; remembers what it has cut."""

    def __init__(
        self,
        settings: MaskingSettings,
        tokens: Tokens,
        *,
        seed: int,
        memory: Literal["replace", "keep"],
    ) -> None:
        self._settings = settings
        self._tokens = tokens
        self._seed = seed
        self._memory = memory
        self._blocks: OrderedDict[str, tuple[CompactionInstance, tuple[Block, ...]]]
        self._blocks = OrderedDict()
        self._masked: OrderedDict[tuple[str, int], tuple[CompactionInstance, MaskedHistory]]
        self._masked = OrderedDict()

    def blocks(self, instance: CompactionInstance) -> tuple[Block, ...]:
        """All blocks of the instance's expired text, in order."""
        known = self._blocks.get(instance.id)
        if known is not None and _same(known[0], instance):
            return known[1]
        expired = instance.expired if self._memory == "replace" else instance.history
        blocks = partition(expired, block_tokens=self._settings.block_tokens, tokens=self._tokens)
        self._blocks[instance.id] = (instance, blocks)
        if len(self._blocks) > _REMEMBERED:
            self._blocks.popitem(last=False)
        return blocks

    def mask(self, instance: CompactionInstance, step: int) -> MaskedHistory:
        """The instance as the reconstructor sees it at this step.

        Raises ValueError for an instance without a history.
        """
        known = self._masked.get((instance.id, step))
        if known is not None and _same(known[0], instance):
            return known[1]
        blocks = self.blocks(instance)
        key = {"seed": self._seed, "instance_id": instance.id, "step": step}
        mask = sample_mask(len(blocks), ratio=self._settings.ratio, **key)  # type: ignore[arg-type]
        context = instance.context
        if self._memory == "keep":
            context = instance.preamble + instance.memory + instance.recent
        everything = render_text(context) + "".join(block.text for block in blocks)
        nonce = mask_nonce(everything, **key)  # type: ignore[arg-type]
        masked = MaskedHistory(
            context=context,
            text=apply_mask(blocks, mask, nonce),
            hidden=tuple(block for block in blocks if block.index in mask),
            nonce=nonce,
        )
        self._masked[instance.id, step] = (instance, masked)
        if len(self._masked) > _REMEMBERED:
            self._masked.popitem(last=False)
        return masked


def _same(known: CompactionInstance, instance: CompactionInstance) -> bool:
    return known is instance or known == instance

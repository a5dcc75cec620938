"""Which blocks are hidden, and the history with markers in their place (Equation 2).

The mask is a pure function of instance, seed and step, so all G samples of a prompt see the same
one on every rank. Markers carry a nonce, so a history that itself contains markers cannot be
confused with a masked one.
"""

import hashlib
import math
import random
from collections.abc import Sequence, Set

from sumone.masking.blocks import Block

__all__ = ["apply_mask", "mask_nonce", "missing_marker", "sample_mask"]

_NONCE_CHARACTERS = 4


def _generator(purpose: str, instance_id: str, seed: int, step: int) -> random.Random:
    key = f"{purpose}\0{instance_id}\0{seed}\0{step}".encode()
    return random.Random(int.from_bytes(hashlib.sha256(key).digest(), "big"))


def sample_mask(
    num_blocks: int, *, ratio: float, seed: int, instance_id: str, step: int
) -> frozenset[int]:
    """Indices of the hidden blocks (Omega): ceil(n x ratio), at least 1, never all when n > 1.

    Raises ValueError for no blocks or a ratio outside (0, 1].
    """
    if num_blocks < 1:
        raise ValueError("a mask needs at least one block")
    if not 0 < ratio <= 1:
        raise ValueError(f"the mask ratio must be in (0, 1], got {ratio}")
    # The tolerance keeps 10 x 0.3 at 3: the product is 3.0000000000000004.
    size = max(1, math.ceil(num_blocks * ratio - 1e-9))
    if num_blocks > 1:
        size = min(size, num_blocks - 1)
    return frozenset(_generator("mask", instance_id, seed, step).sample(range(num_blocks), size))


def mask_nonce(text: str, *, seed: int, instance_id: str, step: int) -> str:
    """Short hexadecimal key of this mask's markers that does not occur in `text`."""
    generator = _generator("nonce", instance_id, seed, step)
    length = _NONCE_CHARACTERS
    while True:
        for _ in range(8):
            nonce = f"{generator.getrandbits(4 * length):0{length}x}"
            if nonce not in text:
                return nonce
        length += 1


def missing_marker(index: int, nonce: str) -> str:
    """Marker that stands where block `index` was."""
    return f'<missing block="{index}" key="{nonce}"/>'


def apply_mask(blocks: Sequence[Block], mask: Set[int], nonce: str) -> str:
    """The history with each masked block replaced by a marker on a line of its own."""
    parts: list[str] = []
    for block in blocks:
        if block.index not in mask:
            parts.append(block.text)
            continue
        if parts and not parts[-1].endswith("\n"):
            parts.append("\n")
        parts.append(missing_marker(block.index, nonce) + "\n")
    return "".join(parts)

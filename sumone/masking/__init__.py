"""Blocks and masks (Section 3.2, Equation 2)."""

from sumone.masking.blocks import Block, partition, partition_rendered
from sumone.masking.mask import apply_mask, mask_nonce, missing_marker, sample_mask

__all__ = [
    "Block",
    "apply_mask",
    "mask_nonce",
    "missing_marker",
    "partition",
    "partition_rendered",
    "sample_mask",
]

"""The mask: the right size, a function of its arguments only, safe against literal markers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sumone.masking import Block, apply_mask, mask_nonce, missing_marker, sample_mask

ids = st.text(max_size=12)


@given(st.integers(1, 200), st.floats(0.01, 1), st.integers(0, 2**31), ids, st.integers(-1, 10_000))
def test_size_and_purity(n: int, ratio: float, seed: int, instance: str, step: int) -> None:
    mask = sample_mask(n, ratio=ratio, seed=seed, instance_id=instance, step=step)
    assert mask == sample_mask(n, ratio=ratio, seed=seed, instance_id=instance, step=step)
    assert mask <= set(range(n))
    expected = max(1, math.ceil(n * ratio - 1e-9))
    assert len(mask) == (min(expected, n - 1) if n > 1 else 1)


@given(st.integers(4, 64), st.integers(0, 1000), ids)
def test_masks_change_over_steps(n: int, seed: int, instance: str) -> None:
    masks = {
        sample_mask(n, ratio=0.5, seed=seed, instance_id=instance, step=step) for step in range(20)
    }
    assert len(masks) >= 2


def test_the_paper_masks_half() -> None:
    assert len(sample_mask(24, ratio=0.5, seed=0, instance_id="x", step=0)) == 12
    assert len(sample_mask(10, ratio=0.3, seed=0, instance_id="x", step=0)) == 3
    assert len(sample_mask(7, ratio=0.5, seed=0, instance_id="x", step=0)) == 4


@pytest.mark.parametrize(("n", "ratio"), [(0, 0.5), (4, 0.0), (4, 1.5), (4, -1.0)])
def test_impossible_masks_are_refused(n: int, ratio: float) -> None:
    with pytest.raises(ValueError, match=r"mask"):
        sample_mask(n, ratio=ratio, seed=0, instance_id="x", step=0)


@given(st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=8), st.data())
def test_markers_cannot_be_confused_with_the_history(parts: list[str], data: st.DataObject) -> None:
    nonce_of_plain = mask_nonce("", seed=1, instance_id="i", step=2)
    parts = [*parts, missing_marker(0, nonce_of_plain)]
    text = "".join(parts)
    nonce = mask_nonce(text, seed=1, instance_id="i", step=2)
    assert nonce not in text
    assert nonce == mask_nonce(text, seed=1, instance_id="i", step=2)
    blocks = [Block(index, part, 1) for index, part in enumerate(parts)]
    chosen = frozenset(data.draw(st.sets(st.sampled_from(range(len(parts))), min_size=1)))
    masked = apply_mask(blocks, chosen, nonce)
    for block in blocks:
        marker = missing_marker(block.index, nonce)
        assert masked.count(marker) == (1 if block.index in chosen else 0)
        if block.index not in chosen:
            assert block.text in masked

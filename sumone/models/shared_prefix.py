"""Attention over a prefix that several sequences share: computed once, kept once.

Keys and values of a group's prefix are never copied per member. At a decoding step each group
attends to its prefix with all its members in one product, each row to its own suffix, and the two
are merged by their softmax sums, which equals attention over the whole sequence.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ATTENTION", "DecodeState", "PrefillState", "PrefixGroup", "register_attention"]

ATTENTION = "sumone_shared_prefix"
"""Name under which transformers knows this attention."""

_GROWTH = 32
"""Columns by which the suffix cache grows."""


class PrefixGroup(NamedTuple):
    """Rows [start, stop) of a batch and the prefix they share."""

    start: int
    stop: int
    layers: Sequence[tuple["Tensor", "Tensor"]]
    """Keys and values of each layer: (key heads, prefix tokens, head size)."""


def register_attention() -> None:
    """Make `ATTENTION` known to transformers."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, _attention)


def _attention(
    module: Any,
    query: "Tensor",
    key: "Tensor",
    value: "Tensor",
    attention_mask: object,
    scaling: float,
    dropout: float = 0.0,
    *,
    attention_state: "PrefillState | DecodeState",
    **_: object,
) -> tuple["Tensor", None]:
    """What transformers calls: (batch, heads, tokens, head size) in, (batch, tokens, ...) out."""
    out = attention_state.attend(module.layer_idx, query, key, value, scaling)
    return out.transpose(1, 2), None


class PrefillState:
    """Rows of equal width, behind an optional prefix; keeps the keys and values it sees."""

    def __init__(
        self, prefix: Sequence[tuple["Tensor", "Tensor"]] | None, mask: "Tensor | None"
    ) -> None:
        self.prefix = prefix
        self.mask = mask
        """Which columns a row sees: (rows, 1, tokens, prefix + tokens); None: causal."""
        self.layers: list[tuple[Tensor, Tensor]] = []

    def attend(
        self, layer: int, query: "Tensor", key: "Tensor", value: "Tensor", scaling: float
    ) -> "Tensor":
        """Attention output: (rows, heads, tokens, head size)."""
        import torch
        from torch.nn.functional import scaled_dot_product_attention

        self.layers.append((key, value))
        rows = query.shape[0]
        if self.prefix is not None:
            keys, values = self.prefix[layer]
            key = torch.cat([keys.expand(rows, -1, -1, -1), key], dim=2)
            value = torch.cat([values.expand(rows, -1, -1, -1), value], dim=2)
        return scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=self.mask,
            is_causal=self.mask is None,
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )


class DecodeState:
    """One new token per row: own suffixes in a growing cache, prefixes by group."""

    def __init__(
        self,
        layers: Sequence[tuple["Tensor", "Tensor"]],
        hidden: "Tensor",
        groups: Sequence[PrefixGroup],
    ) -> None:
        self.layers = list(layers)
        """Keys and values of the suffixes: (rows, key heads, columns, head size)."""
        self.hidden = hidden
        """0 where a row has a token, -inf where it has padding: (rows, columns)."""
        self.groups = list(groups)
        self.length = hidden.shape[1]

    def advance(self) -> None:
        """Make room for one more token per row."""
        import torch

        self.length += 1
        missing = self.length - self.hidden.shape[1]
        if missing <= 0:
            return
        rows = self.hidden.shape[0]
        self.hidden = torch.cat([self.hidden, self.hidden.new_zeros(rows, _GROWTH)], dim=1)
        self.layers = [(_grown(keys), _grown(values)) for keys, values in self.layers]

    def keep(self, rows: "Tensor", groups: Sequence[PrefixGroup]) -> None:
        """Drop all rows but these (indices, increasing)."""
        self.hidden = self.hidden[rows]
        self.layers = [(keys[rows], values[rows]) for keys, values in self.layers]
        self.groups = list(groups)

    def attend(
        self, layer: int, query: "Tensor", key: "Tensor", value: "Tensor", scaling: float
    ) -> "Tensor":
        """Attention output: (rows, heads, 1, head size)."""
        import torch

        keys, values = self.layers[layer]
        keys[:, :, self.length - 1] = key[:, :, 0]
        values[:, :, self.length - 1] = value[:, :, 0]
        rows, heads, _, size = query.shape
        kv_heads = keys.shape[1]
        # Query heads that share a key head stand together: (rows, key heads, share, head size).
        query = query.reshape(rows, kv_heads, heads // kv_heads, size)
        scores = torch.matmul(query, keys[:, :, : self.length].transpose(2, 3)).float() * scaling
        scores += self.hidden[:, None, None, : self.length]
        top = scores.amax(dim=-1, keepdim=True)
        weights = torch.exp(scores - top)
        total = weights.sum(dim=-1, keepdim=True)
        out = torch.matmul(weights.to(values.dtype), values[:, :, : self.length]).float()
        for group in self.groups:
            rows_of = slice(group.start, group.stop)
            part, part_top, part_total = _over_prefix(query[rows_of], group.layers[layer], scaling)
            joint = torch.maximum(top[rows_of], part_top)
            own, other = torch.exp(top[rows_of] - joint), torch.exp(part_top - joint)
            out[rows_of] = out[rows_of] * own + part * other
            total[rows_of] = total[rows_of] * own + part_total * other
        return (out / total).to(query.dtype).reshape(rows, heads, 1, size)


def _grown(cache: "Tensor") -> "Tensor":
    import torch

    rows, heads, _, size = cache.shape
    return torch.cat([cache, cache.new_zeros(rows, heads, _GROWTH, size)], dim=2)


def _over_prefix(
    query: "Tensor", prefix: tuple["Tensor", "Tensor"], scaling: float
) -> tuple["Tensor", "Tensor", "Tensor"]:
    """Attention of a group's members to their prefix: sum, top score and softmax total."""
    import torch

    members, kv_heads, share, size = query.shape
    keys, values = prefix
    flat = query.transpose(0, 1).reshape(kv_heads, members * share, size)
    scores = torch.matmul(flat, keys.transpose(1, 2)).float() * scaling
    top = scores.amax(dim=-1, keepdim=True)
    weights = torch.exp(scores - top)
    total = weights.sum(dim=-1, keepdim=True)
    out = torch.matmul(weights.to(values.dtype), values).float()

    def by_member(tensor: "Tensor") -> "Tensor":
        return tensor.reshape(kv_heads, members, share, -1).transpose(0, 1)

    return by_member(out), by_member(top), by_member(total)

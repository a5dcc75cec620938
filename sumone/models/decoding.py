"""Decoding and teacher-forced likelihoods of batches that share beginnings; greedy as a rule."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sumone.models.prefixes import plan_groups
from sumone.models.shared_prefix import DecodeState, PrefillState, PrefixGroup

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Decoded", "SharedPrefixDecoder"]

_PREFILL_TOKENS = 16384
"""Tokens of one prefill pass: bounds the memory of scores and activations."""
_LOGIT_NUMBERS = 1 << 26
"""Logits computed at a time for likelihoods."""
_CALL_FLOPS = 1e9
"""Arithmetic that takes as long as what one more group costs in overhead, here and in decoding."""
_Layers = list[tuple["Tensor", "Tensor"]]


class _Leaf(NamedTuple):
    """Rows [start, stop) of a sorted batch behind the prefix they share."""

    start: int
    stop: int
    shared: int
    prefix: "_Layers | None"


class Decoded(NamedTuple):
    """What a sequence was continued with."""

    ids: list[int]
    """New tokens without the end token."""
    ended: bool
    """True if the model ended it, False if it was cut at its limit."""
    end_id: int | None = None
    """The token that ended it."""


class SharedPrefixDecoder:
    """Runs a causal transformers model whose attention is `shared_prefix.ATTENTION`."""

    def __init__(
        self,
        model: Any,
        end_ids: frozenset[int],
        choose: "Callable[[Tensor], Tensor] | None" = None,
    ) -> None:
        self.model = model
        self.end_ids = end_ids
        self._choose = choose or _likeliest
        """Next tokens, one a row, from logits of shape (rows, vocabulary)."""
        size = sum(parameter.numel() for parameter in model.parameters())
        self._call_cost = max(8, round(_CALL_FLOPS / (2 * size)))

    def generate(self, prompts: Sequence[Sequence[int]], limits: Sequence[int]) -> list[Decoded]:
        """Continue each prompt by at most `limits[i]` tokens; one result per prompt."""
        import torch

        order = sorted(range(len(prompts)), key=lambda i: list(prompts[i]))
        with torch.inference_mode():
            logits, state = self._prefill([prompts[i] for i in order])
            positions = torch.tensor([[len(prompts[i])] for i in order], device=logits.device)
            done = self._decode(logits, state, positions, [limits[i] for i in order])
        results: list[Decoded] = [Decoded([], False)] * len(prompts)
        for index, decoded in zip(order, done, strict=True):
            results[index] = decoded
        return results

    def log_likelihoods(
        self, prompts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]]
    ) -> list[float]:
        """Natural log-likelihood of each continuation, in one pass (teacher forcing)."""
        import torch

        whole = [[*p, *c] for p, c in zip(prompts, continuations, strict=True)]
        order = sorted(range(len(whole)), key=lambda i: whole[i])
        caps = [len(prompts[i]) - 1 for i in order]
        results = [0.0] * len(whole)
        vocabulary = int(self.model.config.vocab_size)
        with torch.inference_mode():
            for leaf in self._leaves([whole[i] for i in order], caps):
                members = order[leaf.start : leaf.stop]
                for rows in self._slices(
                    [len(whole[i]) - leaf.shared for i in members],
                    [(len(continuations[i]) + 1) * vocabulary for i in members],
                ):
                    part = members[rows]
                    width = max(len(continuations[i]) for i in part) + 1
                    suffixes = [whole[i][leaf.shared :] for i in part]
                    logits, _ = self._rows(suffixes, leaf.prefix, leaf.shared, keep=width)
                    for index, row in zip(part, logits, strict=True):
                        target = torch.tensor(continuations[index], device=row.device)
                        used = row[width - 1 - len(target) : width - 1].float()
                        chosen = used.log_softmax(-1).gather(1, target[:, None])
                        results[index] = float(chosen.double().sum())
        return results

    def _prefill(self, prompts: Sequence[Sequence[int]]) -> tuple["Tensor", DecodeState]:
        """Next-token logits of sorted prompts, and the state to go on from."""
        import torch

        leaves = list(self._leaves(prompts, [len(prompt) - 1 for prompt in prompts]))
        width = max(len(prompts[i]) - x.shared for x in leaves for i in range(x.start, x.stop))
        logits: list[Tensor] = []
        parts: list[_Layers] = []
        padding: list[int] = []
        kept: list[PrefixGroup] = []
        for leaf in leaves:
            suffixes = [prompts[i][leaf.shared :] for i in range(leaf.start, leaf.stop)]
            for rows in self._slices([len(suffix) for suffix in suffixes]):
                part = suffixes[rows]
                last, layers = self._rows(part, leaf.prefix, leaf.shared, keep=1)
                logits.append(last[:, -1])
                extra = width - layers[0][0].shape[2]
                pad = (0, 0, extra, 0)
                parts.append(
                    [
                        (torch.nn.functional.pad(k, pad), torch.nn.functional.pad(v, pad))
                        for k, v in layers
                    ]
                )
                padding += [width - len(suffix) for suffix in part]
            if leaf.prefix is not None:
                bare = [
                    (keys[0].contiguous(), values[0].contiguous()) for keys, values in leaf.prefix
                ]
                kept.append(PrefixGroup(leaf.start, leaf.stop, bare))
        layers = [
            (torch.cat([p[n][0] for p in parts]), torch.cat([p[n][1] for p in parts]))
            for n in range(len(parts[0]))
        ]
        columns = torch.arange(width, device=logits[0].device)
        empty = columns[None, :] < torch.tensor(padding, device=columns.device)[:, None]
        hidden = torch.zeros(empty.shape, device=columns.device).masked_fill_(empty, -torch.inf)
        return torch.cat(logits), DecodeState(layers, hidden, kept)

    def _leaves(self, sequences: Sequence[Sequence[int]], caps: Sequence[int]) -> Iterator[_Leaf]:
        """Groups of sorted sequences with their shared prefixes, each computed once: context and
        history for a group, the summary for one rollout's calls."""

        def descend(start: int, stop: int, known: int, prefix: _Layers | None) -> Iterator[_Leaf]:
            groups = plan_groups(
                sequences[start:stop], caps[start:stop], known=known, call_cost=self._call_cost
            )
            for group in groups:
                first, last = start + group.start, start + group.stop
                if group.shared == known:
                    yield _Leaf(first, last, known, prefix)
                    continue
                more = self._extended(prefix, sequences[first][known : group.shared], known)
                yield from descend(first, last, group.shared, more)

        return descend(0, len(sequences), 0, None)

    def _extended(self, prefix: _Layers | None, ids: Sequence[int], known: int) -> _Layers:
        """Keys and values of a prefix and further tokens behind it."""
        import torch

        _, layers = self._rows([ids], prefix, known, keep=1)
        if prefix is None:
            return layers
        return [
            (torch.cat([a, c], dim=2), torch.cat([b, d], dim=2))
            for (a, b), (c, d) in zip(prefix, layers, strict=True)
        ]

    def _rows(
        self, rows: Sequence[Sequence[int]], prefix: _Layers | None, shared: int, *, keep: int
    ) -> tuple["Tensor", _Layers]:
        """One pass over rows behind a prefix of `shared` tokens, padded on the left.

        Returns the logits of the last `keep` tokens and the rows' keys and values.
        """
        import torch

        device = self.model.device
        width = max(map(len, rows))
        ids = torch.tensor([[0] * (width - len(row)) + list(row) for row in rows], device=device)
        padding = torch.tensor([width - len(row) for row in rows], device=device)
        columns = torch.arange(width, device=device)
        positions = (columns[None, :] - padding[:, None]).clamp_(min=0) + shared
        mask = None
        if shared or bool(padding.any()):
            seen = (columns[None, :, None] >= columns[None, None, :]) & (
                columns[None, None, :] >= padding[:, None, None]
            )
            # Padding sees itself: a row of no columns would turn into NaN and spread.
            seen = seen | torch.eye(width, dtype=torch.bool, device=device)
            mask = torch.nn.functional.pad(seen, (shared, 0), value=True)[:, None]
        state = PrefillState(prefix, mask)
        out = self.model(
            input_ids=ids,
            position_ids=positions,
            use_cache=False,
            logits_to_keep=keep,
            attention_state=state,
        )
        return out.logits, state.layers

    def _decode(
        self, logits: "Tensor", state: DecodeState, positions: "Tensor", limits: Sequence[int]
    ) -> list[Decoded]:
        import torch

        written: list[list[int]] = [[] for _ in limits]
        ends: list[int | None] = [None] * len(limits)
        rows = list(range(len(limits)))  # which sequence each row of the batch is
        live = set(rows)
        while True:
            chosen = self._choose(logits)
            for row, token in zip(rows, chosen.tolist(), strict=True):
                if row not in live:
                    continue
                if token in self.end_ids:
                    ends[row] = token
                    live.discard(row)
                    continue
                written[row].append(token)
                if len(written[row]) >= limits[row]:
                    live.discard(row)
            if not live:
                return [
                    Decoded(ids, end is not None, end)
                    for ids, end in zip(written, ends, strict=True)
                ]
            if len(live) <= 0.75 * len(rows):
                kept = [place for place, row in enumerate(rows) if row in live]
                state.keep(torch.tensor(kept, device=chosen.device), _regroup(state.groups, kept))
                chosen, positions = chosen[kept], positions[kept]
                rows = [rows[place] for place in kept]
            state.advance()
            logits = self.model(
                input_ids=chosen[:, None],
                position_ids=positions,
                use_cache=False,
                logits_to_keep=1,
                attention_state=state,
            ).logits[:, -1]
            positions = positions + 1

    def _slices(self, lengths: Sequence[int], numbers: Sequence[int] | None = None) -> list[slice]:
        """Runs of rows whose padded size stays within the bounds (at least one row each)."""
        slices: list[slice] = []
        start = width = most = 0
        for index, length in enumerate(lengths):
            width = max(width, length)
            most = max(most, numbers[index]) if numbers else 0
            count = index - start + 1
            if count > 1 and (width * count > _PREFILL_TOKENS or most * count > _LOGIT_NUMBERS):
                slices.append(slice(start, index))
                start, width, most = index, length, numbers[index] if numbers else 0
        slices.append(slice(start, len(lengths)))
        return slices


def _likeliest(logits: "Tensor") -> "Tensor":
    return logits.argmax(dim=-1)


def _regroup(groups: Sequence[PrefixGroup], kept: Sequence[int]) -> list[PrefixGroup]:
    """Groups over the rows that stay; `kept` increases."""
    result: list[PrefixGroup] = []
    for group in groups:
        places = [new for new, old in enumerate(kept) if group.start <= old < group.stop]
        if places:
            result.append(PrefixGroup(places[0], places[-1] + 1, group.layers))
    return result

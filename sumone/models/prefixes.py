"""Which sequences of a batch share a beginning worth computing once."""

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Group", "plan_groups"]


class Group(NamedTuple):
    """Neighbours [start, stop) in the sorted batch that share their first `shared` tokens."""

    start: int
    stop: int
    shared: int


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    length = min(len(first), len(second))
    if first[:length] == second[:length]:
        return length
    low, high = 0, length  # the first `low` agree, the first `high` do not
    while high - low > 1:
        middle = (low + high) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle
    return low


def plan_groups(
    sequences: Sequence[Sequence[int]], caps: Sequence[int], *, known: int, call_cost: int
) -> list[Group]:
    """Divide sorted sequences into groups that save the most tokens.

    `caps[i]` is the longest part of sequence i that may be shared; the first `known` tokens are
    computed already. A group costs `call_cost`: one more forward pass, in tokens of the passes it
    saves. Neighbours that share nothing further are one group with `shared` = `known`.
    """
    count = len(sequences)
    common = [
        min(caps[i], caps[i + 1], _common(sequences[i], sequences[i + 1])) for i in range(count - 1)
    ]
    # best[i]: tokens saved by the best division of the first i sequences.
    best = [0] * (count + 1)
    choice = [(0, known)] * (count + 1)
    for stop in range(1, count + 1):
        best[stop], choice[stop] = best[stop - 1], (stop - 1, known)
        shared = caps[stop - 1]
        for start in range(stop - 2, -1, -1):
            shared = min(shared, common[start])
            if (shared - known) * (stop - 1) <= call_cost:
                break  # it only gets shorter
            saved = best[start] + (shared - known) * (stop - start - 1) - call_cost
            if saved > best[stop]:
                best[stop], choice[stop] = saved, (start, shared)
    groups: list[Group] = []
    stop = count
    while stop:
        start, shared = choice[stop]
        if groups and shared == known and groups[-1].shared == known:
            groups[-1] = groups[-1]._replace(start=start)
        else:
            groups.append(Group(start, stop, shared))
        stop = start
    return groups[::-1]

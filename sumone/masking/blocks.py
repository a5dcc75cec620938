"""The partition of a history into approximately equal blocks (Section 3.2).

Cuts prefer natural boundaries: role changes, tool calls, paragraphs, lines, words. The text is
counted once, line by line in one batch; only lines too long to be placed whole are looked up
token by token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sumone.render import Boundary, Rendered, render
from sumone.tokens import Tokens
from sumone.types import Message

__all__ = ["Block", "partition", "partition_rendered"]

MIN_SIZE, MAX_SIZE = 0.5, 1.25
"""Bounds of a block's size as shares of the target; only the last block may be smaller."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block h_i of the history."""

    index: int
    """Position in the history, from 0."""
    text: str
    """Its text; all blocks joined are the rendered history, byte for byte."""
    num_tokens: int
    """Its size: the sum over its lines, each counted alone."""


class _Piece(NamedTuple):
    end: int
    """Offset behind the piece."""
    num_tokens: int
    rank: Boundary
    """How natural a cut behind the piece is."""


def partition(
    messages: Sequence[Message], *, block_tokens: int, tokens: Tokens
) -> tuple[Block, ...]:
    """Cut the rendered messages into blocks of about `block_tokens` tokens.

    Sizes stay within [0.5, 1.25] x `block_tokens` but for the last block, which may be smaller.
    A code point is never cut. No messages give no blocks.
    """
    return partition_rendered(render(messages), block_tokens=block_tokens, tokens=tokens)


def partition_rendered(
    rendered: Rendered, *, block_tokens: int, tokens: Tokens
) -> tuple[Block, ...]:
    """`partition` on text that is already rendered."""
    if block_tokens < 4:
        raise ValueError(f"block_tokens must be at least 4, got {block_tokens}")
    pieces = _pieces(rendered, block_tokens, tokens)
    blocks: list[Block] = []
    first, start = 0, 0
    for last in _cuts(pieces, block_tokens):
        end = pieces[last].end
        size = sum(piece.num_tokens for piece in pieces[first : last + 1])
        blocks.append(Block(len(blocks), rendered.text[start:end], size))
        first, start = last + 1, end
    return tuple(blocks)


def _cuts(pieces: Sequence[_Piece], target: int) -> list[int]:
    """Index of the last piece of each block."""
    low, high = MIN_SIZE * target, MAX_SIZE * target
    remaining = sum(piece.num_tokens for piece in pieces)
    cuts: list[int] = []
    first = 0
    while first < len(pieces):
        if remaining <= high:
            cuts.append(len(pieces) - 1)
            break
        size, best, best_key = 0, first, (len(Boundary), 0.0)
        for index in range(first, len(pieces)):
            size += pieces[index].num_tokens
            if size > high:
                break
            key = (int(pieces[index].rank), abs(size - target))
            if size >= low and key < best_key:
                best, best_key = index, key
        cuts.append(best)
        remaining -= sum(piece.num_tokens for piece in pieces[first : best + 1])
        first = best + 1
    return cuts


def _pieces(rendered: Rendered, target: int, tokens: Tokens) -> list[_Piece]:
    """Lines with their sizes; a line too long to fit between the bounds comes in parts."""
    text = rendered.text
    lines = _lines(text)
    counts = tokens.count_batch(lines)
    ranks = dict(rendered.parts)
    # Pieces of at most half the target leave at least one cut between the two bounds.
    limit = max(1, target // 2)
    pieces: list[_Piece] = []
    start = 0
    for line, count in zip(lines, counts, strict=True):
        end = start + len(line)
        rank = ranks.get(end)
        if rank is None:
            rank = Boundary.PARAGRAPH if line == "\n" else Boundary.LINE
        if count > limit:
            pieces += _split_line(line, start, count, limit, rank, tokens)
        else:
            pieces.append(_Piece(end, count, rank))
        start = end
    return pieces


def _lines(text: str) -> list[str]:
    # Not str.splitlines: it also cuts at carriage returns, form feeds and Unicode separators.
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _split_line(
    line: str, offset: int, count: int, limit: int, last_rank: Boundary, tokens: Tokens
) -> list[_Piece]:
    """Parts of at most `limit` tokens, cut after white space where there is any."""
    starts = tokens.starts(line)
    per_start = count / len(starts)  # more than 1 where code points take several tokens
    step = max(1, int(limit / per_start))
    pieces: list[_Piece] = []
    first = 0
    while first < len(starts):
        last = min(first + step, len(starts))
        rank = last_rank
        if last < len(starts):
            rank = Boundary.TOKEN
            for candidate in range(last, first + max(1, (last - first) // 2), -1):
                if line[starts[candidate] - 1].isspace() or line[starts[candidate]].isspace():
                    last, rank = candidate, Boundary.WORD
                    break
        begin = 0 if first == 0 else starts[first]
        while True:
            end = len(line) if last == len(starts) else starts[last]
            size = tokens.count(line[begin:end])
            if size <= limit or last - first == 1:
                break
            # Denser than the line's average (emoji between ASCII): take less of it.
            last, rank = first + max(1, (last - first) // 2), Boundary.TOKEN
        pieces.append(_Piece(offset + end, size, rank))
        first = last
    return pieces

"""Messages as text, with the natural boundaries at which a block may end (Section 3.2).

One message renders as headed parts, each ending with a newline:

    [assistant]
    Checking the ledger.
    [call read_ledger]
    {"page": 3}
    [result read_ledger]
    ...

Call ids appear only where one assistant message makes several calls: order tells the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from sumone.types import Message

__all__ = ["Boundary", "Rendered", "render", "render_text"]


class Boundary(IntEnum):
    """How natural a cut is; lower is better."""

    ROLE = 0
    """Before a message that is not a tool result: a new step begins."""
    CALL = 1
    """Before a tool call or a tool result."""
    PARAGRAPH = 2
    """After an empty line."""
    LINE = 3
    """After a line."""
    WORD = 4
    """After white space inside a line."""
    TOKEN = 5
    """Between two tokens, never inside a code point."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered list of messages."""

    text: str
    """The whole text."""
    parts: tuple[tuple[int, Boundary], ...]
    """Offset in characters at which each headed part starts, increasing, with its rank."""


def _ids_to_show(messages: Sequence[Message]) -> set[str]:
    return {call.id for message in messages if len(message.calls) > 1 for call in message.calls}


def _heading(message: Message, shown: set[str]) -> str:
    if message.memory:
        return "[memory]\n"
    if message.role != "tool":
        return f"[{message.role}]\n"
    name = f" {message.name}" if message.name else ""
    tag = f" #{message.call_id}" if message.call_id in shown and message.call_id else ""
    error = " error" if message.is_error else ""
    return f"[result{name}{tag}{error}]\n"


def _line(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def render(messages: Sequence[Message]) -> Rendered:
    """Render messages for models and for masking; pure, and the same everywhere.

    An assistant message without text and with calls starts at its first call: no empty heading.
    """
    shown = _ids_to_show(messages)
    pieces: list[str] = []
    parts: list[tuple[int, Boundary]] = []
    offset = 0
    for message in messages:
        rank = Boundary.CALL if message.role == "tool" else Boundary.ROLE
        if message.text or not message.calls:
            parts.append((offset, rank))
            rank = Boundary.CALL
            piece = _heading(message, shown) + _line(message.text)
            pieces.append(piece)
            offset += len(piece)
        for call in message.calls:
            parts.append((offset, rank))
            rank = Boundary.CALL
            tag = f" #{call.id}" if call.id and call.id in shown else ""
            piece = f"[call {call.name}{tag}]\n" + _line(call.arguments)
            pieces.append(piece)
            offset += len(piece)
    return Rendered("".join(pieces), tuple(parts))


def render_text(messages: Sequence[Message]) -> str:
    """Only the text of `render`."""
    return render(messages).text

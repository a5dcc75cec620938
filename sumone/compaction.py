"""The one cut: dividing messages into (C, H) and putting the summary in H's place (Sections 3.1
and 3.4).

Training data and deployment use the same two functions, so they cannot drift apart. The memory
rule: a compaction replaces H **and** the old memory by the new summary, and `rejoin` leaves
exactly one memory message.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from sumone.config import CompactionSettings
from sumone.render import render_text
from sumone.tokens import Tokens
from sumone.types import CompactionInstance, Message

__all__ = [
    "MEMORY_HEADING",
    "Pairing",
    "count_messages",
    "is_memory",
    "memory_message",
    "pairing",
    "rejoin",
    "split",
]

MEMORY_HEADING = "Memory of this conversation so far (it replaces the earlier messages):\n"
"""First line of a memory message: how one is recognised in a live message list."""


def memory_message(summary: str) -> Message:
    """The message that carries a summary. It is a user message: strict chat templates refuse a
    second system message, and an assistant message here would break alternation."""
    return Message(role="user", text=f"{MEMORY_HEADING}{summary}", genuine=False, memory=True)


def is_memory(message: Message) -> bool:
    """Whether a message is a memory, by its mark or by its heading."""
    return message.memory or (message.role == "user" and message.text.startswith(MEMORY_HEADING))


def count_messages(messages: Sequence[Message], tokens: Tokens) -> list[int]:
    """Tokens of each message, each rendered alone."""
    return tokens.count_batch([render_text([message]) for message in messages])


@dataclass(frozen=True, slots=True)
class Pairing:
    """Which results answer which calls, and what in a message list is broken."""

    units: tuple[range, ...]
    """Atomic units in order, covering all messages: a message with calls and all their results
    (and whatever stands between them) are one unit."""
    orphan_results: tuple[int, ...] = ()
    """Indices of results without an earlier call."""
    unanswered_calls: tuple[int, ...] = ()
    """Indices of assistant messages with a call that nobody answers."""
    repeated_results: tuple[int, ...] = ()
    """Indices of results whose call was already answered."""


@dataclass(slots=True)
class _OpenCall:
    message: int
    answered: bool = False


@dataclass(slots=True)
class _Pairer:
    """One pass over a message list; ids may be reused, so the latest call with an id counts."""

    by_id: dict[str, _OpenCall] = field(default_factory=dict)
    nameless: list[_OpenCall] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    orphans: list[int] = field(default_factory=list)
    repeated: list[int] = field(default_factory=list)
    calls: list[_OpenCall] = field(default_factory=list)

    def add_calls(self, index: int, message: Message) -> None:
        opened = [_OpenCall(index) for _ in message.calls]
        self.calls += opened
        # Only the nearest message's calls can be answered without an id.
        self.nameless = [
            open_call for open_call, call in zip(opened, message.calls, strict=True) if not call.id
        ]
        for open_call, call in zip(opened, message.calls, strict=True):
            if call.id:
                self.by_id[call.id] = open_call

    def add_result(self, index: int, message: Message) -> None:
        if message.call_id:
            call = self.by_id.get(message.call_id)
        else:
            call = self.nameless.pop(0) if self.nameless else None
        if call is None:
            self.orphans.append(index)
            return
        if call.answered:
            self.repeated.append(index)
        call.answered = True
        self.spans.append((call.message, index))


def pairing(messages: Sequence[Message]) -> Pairing:
    """Pair results with calls by id; without ids, in order, with the nearest message's calls."""
    pairer = _Pairer()
    for index, message in enumerate(messages):
        if message.role == "assistant":
            if message.calls:
                pairer.add_calls(index, message)
            else:
                pairer.nameless = []
        elif message.role == "tool":
            pairer.add_result(index, message)
    unanswered = dict.fromkeys(call.message for call in pairer.calls if not call.answered)
    return Pairing(
        units=_units(len(messages), pairer.spans),
        orphan_results=tuple(pairer.orphans),
        unanswered_calls=tuple(unanswered),
        repeated_results=tuple(pairer.repeated),
    )


def _units(count: int, spans: Iterable[tuple[int, int]]) -> tuple[range, ...]:
    reach = list(range(count))
    for first, last in spans:
        reach[first] = max(reach[first], last)
    units: list[range] = []
    start, end = 0, -1
    for index in range(count):
        if index > end:
            if end >= 0:
                units.append(range(start, end + 1))
            start, end = index, index
        end = max(end, reach[index])
    if count:
        units.append(range(start, end + 1))
    return tuple(units)


def split(
    messages: Sequence[Message],
    settings: CompactionSettings,
    tokens: Tokens,
    *,
    keep: Callable[[Message], bool] | None = None,
    instance_id: str = "",
) -> CompactionInstance | None:
    """Divide messages into context and expired history; None when nothing would expire.

    Preamble: the leading system message, the first genuine user message, then, in order, the
    messages that `keep` accepts (default: pinned ones and genuine user messages, the latest
    first, up to `keep_user_tokens`). Recent: the last atomic units up to `recent_tokens`, at
    least one. All memory messages become `memory`. A call and its results are never separated.
    """
    if not messages:
        return None
    sizes = count_messages(messages, tokens)
    tail = _recent_start(messages, sizes, settings.recent_tokens)
    if any(is_memory(message) for message in messages[tail:]):
        return None  # nothing has happened since the last compaction
    head = _head(messages, tail)
    memory = [i for i in range(tail) if i not in head and is_memory(messages[i])]
    middle = [i for i in range(tail) if i not in head and i not in memory]
    kept = _kept(messages, middle, sizes, settings, keep)
    history = tuple(messages[i] for i in middle if i not in kept)
    if not history:
        return None
    return CompactionInstance(
        id=instance_id or _content_id(messages),
        preamble=tuple(messages[i] for i in (*head, *kept)),
        memory=tuple(messages[i] for i in memory),
        history=history,
        recent=tuple(messages[tail:]),
    )


def rejoin(instance: CompactionInstance, summary: str) -> list[Message]:
    """The messages with which the agent goes on: preamble, one memory, recent (Section 3.4)."""
    return [*instance.preamble, memory_message(summary), *instance.recent]


def _recent_start(messages: Sequence[Message], sizes: Sequence[int], recent_tokens: int) -> int:
    """Index of the first recent message: whole units from the end while they fit."""
    units = pairing(messages).units
    start, used = units[-1].start, sum(sizes[i] for i in units[-1])
    for unit in reversed(units[:-1]):
        used += sum(sizes[i] for i in unit)
        if used > recent_tokens or any(is_memory(messages[i]) for i in unit):
            break
        start = unit.start
    return start


def _head(messages: Sequence[Message], tail: int) -> tuple[int, ...]:
    head: list[int] = []
    if tail and messages[0].role == "system":
        head.append(0)
    for index in range(tail):
        if _is_genuine_user(messages[index]):
            head.append(index)
            break
    return tuple(head)


def _is_genuine_user(message: Message) -> bool:
    return (
        message.role == "user"
        and message.genuine
        and not is_memory(message)
        and bool(message.text.strip())
    )


def _kept(
    messages: Sequence[Message],
    middle: Sequence[int],
    sizes: Sequence[int],
    settings: CompactionSettings,
    keep: Callable[[Message], bool] | None,
) -> tuple[int, ...]:
    if keep is not None:
        return tuple(i for i in middle if keep(messages[i]) and not _is_paired(messages[i]))
    kept, used = [], 0
    for index in reversed(middle):
        message = messages[index]
        if message.pinned and not _is_paired(message):
            kept.append(index)
        elif _is_genuine_user(message) and used + sizes[index] <= settings.keep_user_tokens:
            used += sizes[index]
            kept.append(index)
    return tuple(sorted(kept))


def _is_paired(message: Message) -> bool:
    """Calls and results stay with their partners: they cannot be moved one by one."""
    return bool(message.calls) or message.role == "tool"


def _content_id(messages: Sequence[Message]) -> str:
    digest = hashlib.sha256()
    for message in messages:
        digest.update(message.model_dump_json(exclude={"source_index"}).encode())
        digest.update(b"\n")
    return digest.hexdigest()[:16]

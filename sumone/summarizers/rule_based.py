"""A summary without a model: call signatures, short results, human text (a baseline of ours).

Every word is taken from the conversation, so nothing is invented. Tool output appears only as
quoted data behind its call, never as a request. The previous memory is merged: its lines are read
back into the section they stand in and compete with the new ones for the budget.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from sumone.compaction import MEMORY_HEADING, pairing
from sumone.tokens import Tokens
from sumone.types import CompactionInstance, Message, ToolCall

__all__ = ["RuleBasedSummarizer"]

_LINE_CHARACTERS = 160
_ARGUMENT_CHARACTERS = 72
_QUOTE_CHARACTERS = 480
_REPLY_CHARACTERS = 200


class _Section(IntEnum):
    """Sections in the order of their importance; each has a share of a budget that is short."""

    REQUESTS = 0
    ASSETS = 1
    PROBLEMS = 2
    NOTES = 3
    STEPS = 4


_HEADINGS = {
    _Section.REQUESTS: "## User's requests",
    _Section.ASSETS: "## Key assets",
    _Section.PROBLEMS: "## Risks and open issues",
    _Section.NOTES: "## Learned facts and procedures",
    _Section.STEPS: "## Steps taken",
}
_SHARES = {
    _Section.REQUESTS: 0.25,
    _Section.ASSETS: 0.2,
    _Section.PROBLEMS: 0.15,
    _Section.NOTES: 0.3,
    _Section.STEPS: 1.0,
}
_BY_HEADING = {heading.lower(): section for section, heading in _HEADINGS.items()}

_ANSI = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]")
_SAVED = re.compile(
    r"(?i)\b(?:saved|written|wrote|stored|exported|downloaded|output|created|log)\b[^\n]{0,80}?"
    r"(?:/|\\|\b[\w-]{1,60}\.[a-z]{1,5}\b)"
)
_ERROR = re.compile(
    r"\b(?:[A-Z]\w{0,40}(?:Error|Exception)\b|Traceback|FAILED\b|FAIL\b|fatal:|[Ee]rror:"
    r"|ERROR\b|[Nn]o such file|[Pp]ermission denied|not found\b|timed out)"
)
"""Lines that report a failure; a line that only speaks of errors ("error rate") does not."""
_TAG_LINE = re.compile(r"</?\w[^<>]*>|<(\w+)>[^<>]*</\1>")
_EXIT = re.compile(
    r"(?i)(?:exit(?:ed)?(?: with)?(?: code| status)?\s?[:=]?\s?|returncode>\s?)(-?\d{1,3})\b"
)


@dataclass(frozen=True, slots=True)
class _Entry:
    section: _Section
    line: str


class RuleBasedSummarizer:
    """Writes the same summary for the same instance, always; `tokens` measures the budget."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def summarize(self, instance: CompactionInstance, *, budget_tokens: int) -> str:
        """See `Summarizer.summarize`. The newest lines of each section are kept when not all
        fit; human text and saved outputs come before steps."""
        entries = [
            *(entry for message in instance.memory for entry in _read_memory(message.text)),
            *_entries(instance.history),
        ]
        return self._fit(list(dict.fromkeys(entries)), budget_tokens)

    def _fit(self, entries: Sequence[_Entry], budget_tokens: int) -> str:
        sizes = self._tokens.count_batch([entry.line + "\n" for entry in entries])
        headings = {section: self._tokens.count(_HEADINGS[section] + "\n") for section in _Section}
        chosen: set[int] = set()
        used, opened = 0, set()
        # First each section within its share, then whatever room is left, in the same order.
        for share in (_SHARES, dict.fromkeys(_Section, 1.0)):
            for section in _Section:
                limit = min(budget_tokens, used + int(share[section] * budget_tokens))
                for index in range(len(entries) - 1, -1, -1):
                    if entries[index].section != section or index in chosen:
                        continue
                    size = sizes[index] + (0 if section in opened else headings[section])
                    if used + size <= limit:
                        chosen.add(index)
                        opened.add(section)
                        used += size
        text = _lay_out(entries, chosen)
        # Counts of parts add up only nearly: make sure of the whole, oldest steps first.
        for index in sorted(chosen, key=lambda i: (-entries[i].section, i)):
            if self._tokens.count(text) <= budget_tokens:
                break
            chosen.discard(index)
            text = _lay_out(entries, chosen)
        return text or self._cut(entries, budget_tokens)

    def _cut(self, entries: Sequence[_Entry], budget_tokens: int) -> str:
        """A budget smaller than any line: the start of the most important one."""
        line = min(entries, key=lambda entry: entry.section).line
        length = len(line)
        while length > 1 and self._tokens.count(line[:length]) > budget_tokens:
            length //= 2
        return line[:length]


def _lay_out(entries: Sequence[_Entry], chosen: Iterable[int]) -> str:
    kept = [entries[index] for index in sorted(chosen)]
    parts = []
    for section in _Section:
        lines = [entry.line for entry in kept if entry.section == section]
        if lines:
            parts.append("\n".join([_HEADINGS[section], *lines]))
    return "\n".join(parts)


def _read_memory(text: str) -> list[_Entry]:
    """Lines of an earlier summary in the sections they stand in; foreign text becomes notes."""
    entries, section = [], _Section.NOTES
    for line in text.removeprefix(MEMORY_HEADING).split("\n"):
        stripped = line.strip()
        if stripped.startswith("#"):
            section = _BY_HEADING.get(stripped.lower(), _Section.NOTES)
        elif stripped:
            entries.append(_Entry(section, stripped))
    return entries


def _entries(history: Sequence[Message]) -> list[_Entry]:
    answers = _answers(history)
    entries: list[_Entry] = []
    for index, message in enumerate(history):
        if message.role == "tool":
            if index in answers.orphans:
                entries += _result_entries("(result)", [message])
        elif message.calls:
            for number, call in enumerate(message.calls):
                found = [history[i] for i in answers.by_call.get((index, number), [])]
                entries += _result_entries(_signature(call), found)
        elif message.text.strip():
            entries.append(_spoken(message))
    return entries or [_Entry(_Section.NOTES, "- (messages without text)")]


def _spoken(message: Message) -> _Entry:
    if message.role == "user" and message.genuine:
        return _Entry(_Section.REQUESTS, f"- user: {_clip(message.text, _QUOTE_CHARACTERS)}")
    who = "agent" if message.role == "assistant" else message.role
    return _Entry(_Section.STEPS, f"- {who} said: {_clip(message.text, _REPLY_CHARACTERS)}")


@dataclass(frozen=True, slots=True)
class _Answers:
    by_call: dict[tuple[int, int], list[int]]
    """(message, position of the call) -> indices of its results."""
    orphans: frozenset[int]


def _answers(history: Sequence[Message]) -> _Answers:
    """Results by the call they answer: by id where there is one, in order otherwise."""
    pairs = pairing(history)
    orphans = frozenset(pairs.orphan_results)
    by_call: dict[tuple[int, int], list[int]] = {}
    by_id: dict[str, tuple[int, int]] = {}
    waiting: list[tuple[int, int]] = []
    for index, message in enumerate(history):
        if message.calls:
            waiting = [(index, n) for n, call in enumerate(message.calls) if not call.id]
            by_id |= {call.id: (index, n) for n, call in enumerate(message.calls) if call.id}
        elif message.role == "tool" and index not in orphans:
            key = by_id.get(message.call_id) if message.call_id else None
            if key is None and waiting:
                key = waiting.pop(0)
            if key is not None:
                by_call.setdefault(key, []).append(index)
    return _Answers(by_call, orphans)


def _signature(call: ToolCall) -> str:
    try:
        values = json.loads(call.arguments) if call.arguments.strip() else {}
    except ValueError:
        values = call.arguments  # cut or invalid arguments stay what they are: text
    if not isinstance(values, dict):
        return f"{call.name}({_clip(call.arguments, _ARGUMENT_CHARACTERS)})"
    shown = [f"{name}={_value(value)}" for name, value in values.items()]
    return f"{call.name}({_clip(', '.join(shown), 3 * _ARGUMENT_CHARACTERS)})"


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _clip(text, _ARGUMENT_CHARACTERS)


def _result_entries(signature: str, results: Sequence[Message]) -> list[_Entry]:
    if not results:
        return [_Entry(_Section.STEPS, f"- {signature}: started, no result seen")]
    text = "\n".join(message.text for message in results)
    lines = _informative(text)
    shown = _ends(lines)
    failure = next((line for line in reversed(lines) if _ERROR.search(line)), "")
    code = _EXIT.search(text)
    failed = any(message.is_error for message in results) or bool(failure)
    status = f" [exit {code[1]}]" if code else " [error]" if failed else ""
    said = f" -> {shown}" if shown else " -> (empty)"
    entries = [_Entry(_Section.STEPS, f"- {signature}{status}{said}")]
    name = signature.partition("(")[0]
    if failed or (code and code[1] != "0"):
        line = _clip(failure or shown, _LINE_CHARACTERS)
        entries.append(_Entry(_Section.PROBLEMS, f"- {name}{status}: {line}"))
    entries += [
        _Entry(_Section.ASSETS, f"- {name}: {_clip(line, _LINE_CHARACTERS)}")
        for line in lines
        if _SAVED.search(line)
    ][-2:]
    return entries


def _informative(text: str) -> list[str]:
    """Lines that carry a word or a number, without terminal colours and a harness's own tags."""
    lines = (line.strip() for line in _ANSI.sub("", text).split("\n"))
    spoken = [line for line in lines if any(c.isalnum() for c in line)]
    return [line for line in spoken if not _TAG_LINE.fullmatch(line)]


def _ends(lines: Sequence[str]) -> str:
    if not lines:
        return ""
    first = _clip(lines[0], _LINE_CHARACTERS)
    if len(lines) == 1:
        return first
    between = " ... " if len(lines) > 2 else " / "
    return first + between + _clip(lines[-1], _LINE_CHARACTERS)


def _clip(text: str, limit: int) -> str:
    """One line of at most `limit` characters; what is left out is marked."""
    start = text[: 8 * limit]
    flat = " ".join(start.split())
    if len(flat) <= limit and len(start) == len(text):
        return flat
    return flat[: limit - 4].rstrip() + " ..."

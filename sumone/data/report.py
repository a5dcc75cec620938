"""What was read from a transcript file, and the proof that no character was lost on the way.

For every file: characters in (all string values of its records, keys excluded) = characters out
(message text, call names and call arguments) + characters dropped, by reason. Adapters state what
they drop; characters out are counted from the trajectories alone, so the two sides are
independent and a wrong adapter shows.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sumone.compaction import pairing
from sumone.types import Message, Trajectory, clean_text

__all__ = ["REASONS", "Drops", "Report", "Skipped", "message_characters", "string_characters"]

REASONS = {
    "branch": "turns that the user took back: an abandoned branch of the session",
    "copy": "text that stands elsewhere in the record again",
    "gold": "reference answers, patches, rewards: must never reach a model",
    "id": "identifiers that link records, calls and results",
    "image": "images and other media, data URLs included",
    "markup": "tags and white space around calls and results found in text, parameter names",
    "metadata": "facts about the run that nobody said in it: roles, types, models, usage, paths",
    "noise": "records of the harness that are no part of the conversation",
    "reasoning": "thinking that the source keeps apart from the text",
    "signature": "signatures and encrypted blobs",
    "tools": "tool definitions outside the messages",
    "unreadable": "parts of a known record that do not fit its format",
}
"""Every reason for which an adapter may drop characters."""


_NOTE_CHARACTERS = 120


def string_characters(value: object) -> int:
    """Characters of all string values inside a JSON value; keys do not count."""
    total = 0
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list | tuple):
            stack.extend(item)
    return total


def message_characters(messages: Iterable[Message]) -> int:
    """Characters of text, call names and call arguments.

    Arguments that the source held as an object count its string values, as they did going in.
    """
    total = 0
    for message in messages:
        total += len(message.text)
        for call in message.calls:
            total += len(call.name)
            if call.from_object:
                total += string_characters(json.loads(call.arguments))
            else:
                total += len(call.arguments)
    return total


@dataclass(slots=True)
class Drops:
    """What an adapter leaves out of one record."""

    dropped: Counter[str] = field(default_factory=Counter)
    """Characters by reason."""
    notes: Counter[str] = field(default_factory=Counter)
    """Odd things met, with how often."""

    def drop(self, reason: str, value: object) -> None:
        """Leave out a JSON value: all its string values count under the reason."""
        self.drop_characters(reason, string_characters(value))

    def drop_characters(self, reason: str, count: int) -> None:
        """Leave out so many characters of a text."""
        if reason not in REASONS:
            raise KeyError(f"{reason!r} is no reason of REASONS")
        if count:
            self.dropped[reason] += count

    def note(self, text: str) -> None:
        """Remember something odd that the user should know."""
        self.notes[clean_text(text[:_NOTE_CHARACTERS])] += 1

    def merge(self, other: "Drops") -> None:
        """Add what another record left out."""
        self.dropped += other.dropped
        self.notes += other.notes


@dataclass(frozen=True, slots=True)
class Skipped:
    """One line or row that could not be read."""

    line: int
    """Line of the file, from 1; row for a JSON list or parquet file."""
    reason: str
    """What was wrong with it."""


@dataclass(slots=True)
class Report:
    """What was read from one file."""

    source: str = ""
    """The file."""
    format: str = ""
    """Name of the format it was read as."""
    trajectories: int = 0
    """Trajectories given out."""
    messages: int = 0
    """Messages in them."""
    calls: int = 0
    """Tool calls in them."""
    results: int = 0
    """Tool results in them."""
    calls_without_result: int = 0
    """Calls that no result answers."""
    results_without_call: int = 0
    """Results that no earlier call asked for."""
    repeated_results: int = 0
    """Results of a call that already had one."""
    skipped: list[Skipped] = field(default_factory=list)
    """Lines and rows that could not be read."""
    characters_in: int = 0
    """Characters of all string values of the file's records."""
    characters_out: int = 0
    """Characters of the messages given out."""
    drops: Drops = field(default_factory=Drops)
    """What the adapter left out."""

    @property
    def conserved(self) -> bool:
        """Whether every character that came in went out or was dropped for a stated reason."""
        return self.characters_in == self.characters_out + self.drops.dropped.total()

    def take_in(self, record: dict[str, Any]) -> None:
        """Count a record that an adapter is about to read."""
        self.characters_in += string_characters(record)

    def skip(self, line: int, reason: str) -> None:
        """Count a line or row that could not be read."""
        self.skipped.append(Skipped(line, reason))

    def give_out(self, trajectory: Trajectory) -> None:
        """Count a trajectory that was read."""
        messages = trajectory.messages
        calls = sum(len(message.calls) for message in messages)
        results = sum(message.role == "tool" for message in messages)
        pairs = pairing(messages)
        orphans, repeated = len(pairs.orphan_results), len(pairs.repeated_results)
        self.trajectories += 1
        self.messages += len(messages)
        self.calls += calls
        self.results += results
        self.results_without_call += orphans
        self.repeated_results += repeated
        self.calls_without_result += calls - (results - orphans - repeated)
        self.characters_out += message_characters(messages)

"""The small world of the embedded default: incident cases, made from a seed.

An episode is a trajectory in the surface grammar of the incident environment: calls with JSON
arguments, artifact ids, notes with times, amounts, codes and names, and calls whose result says
nothing. The agent numbers its steps as it goes; after a compaction it numbers its log anew, the
memory's lines first. So the number of an entry is the index of its block, and a summary line that
carries the number says which block it is about.

Pure: everything follows from (split, index); no clock, no global random state.
"""

import hashlib
import json
import random
from dataclasses import dataclass
from typing import Literal

from sumone.compaction import memory_message, split
from sumone.config import CompactionSettings
from sumone.tokens import Tokens
from sumone.types import CompactionInstance, Message, ToolCall, Trajectory

__all__ = ["Entry", "Episode", "Split", "make_episode", "make_instance"]

Split = Literal["warmup", "train", "heldout"]

_CASES: dict[Split, tuple[int, int]] = {
    "warmup": (1000, 6999),
    "train": (7000, 8999),
    "heldout": (9000, 9999),
}
"""Case numbers of each split: no case, and so no task, is in two splits."""

NAMES = (
    "Abel", "Bea", "Cato", "Dina", "Emil", "Fay", "Gus", "Hana", "Igor", "Jana", "Karl", "Lena",
    "Mira", "Nico", "Olga", "Pia", "Quin", "Rosa", "Sven", "Tara", "Udo", "Vera", "Wim", "Yara",
)  # fmt: skip
DOMAINS = ("support", "incident", "reliability")
NOTES = (
    "{time} {name} {amount} EUR refund",
    "{time} {name} {amount} EUR charge",
    "{time} {name} {code} login denied",
    "{time} {name} {code} rollback done",
    "{time} {code} outage of service",
)
"""Notes of an artifact: two or three values each, in the manner of a ledger."""
ROUTINE = (
    ("read_state", "state", "stage analysis, the queue is quiet"),
    ("list_artifacts", "list", "the list is as before"),
)
"""Calls that tell nothing: tool, what the agent says, result."""
ROUTINE_WEIGHTS = (3, 1)
"""How often each occurs."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the agent's log: a memory line or a step."""

    number: int
    """Its number, which is the index of its block."""
    fact: str
    """The summary line that keeps it; empty for an entry without information."""
    values: tuple[str, ...]
    """The values in it: artifact, then those of the note."""


@dataclass(frozen=True, slots=True)
class Episode:
    """A trajectory with what a perfect summary of its expired part would say."""

    trajectory: Trajectory
    entries: tuple[Entry, ...]
    """Entries that expire, in order (memory lines, then steps), without the last step."""

    @property
    def extract(self) -> str:
        """The perfect extract: the line of each informative entry."""
        return "\n".join(entry.fact for entry in self.entries if entry.fact)


def make_episode(split: Split, index: int, *, memory_share: float) -> Episode:
    """Episode `index` of a split; about `memory_share` of the episodes start with a memory."""
    rng = _generator(split, index)
    first, last = _CASES[split]
    case = first + index if split != "warmup" else rng.randint(first, last)
    if case > last:
        raise ValueError(f"{split} has only {last - first + 1} episodes, asked for {index}")
    entries: list[Entry] = []
    messages = [
        Message(role="system", text="You handle incidents."),
        Message(role="user", text=f"Report on case {case // 100}-{case % 100:02d}."),
    ]
    if rng.random() < memory_share:
        entries = [_fact(number, rng)[0] for number in range(rng.randint(1, 3))]
        messages.append(memory_message("\n".join(entry.fact for entry in entries)))
    total = rng.randint(7, 9)
    informative = set(
        rng.sample(range(len(entries), total), max(1, rng.randint(4, 5) - len(entries)))
    )
    for number in range(len(entries), total + 1):
        if number in informative or number == total:
            entry, step = _fact(number, rng)
        else:
            entry, step = _routine(number, rng)
        entries.append(entry)
        messages += step
    trajectory = Trajectory(
        id=f"{split}-{index}",
        format="incident-world",
        source=f"incident-world/{split}/{index}",
        domain="operations",
        task=f"case-{case}",
        messages=tuple(messages),
    )
    return Episode(trajectory, tuple(entries[:-1]))


def make_instance(
    split_name: Split,
    index: int,
    *,
    memory_share: float,
    settings: CompactionSettings,
    tokens: Tokens,
) -> tuple[CompactionInstance, Episode]:
    """The compaction instance of an episode, cut as every other conversation is."""
    episode = make_episode(split_name, index, memory_share=memory_share)
    trajectory = episode.trajectory
    cut = split(trajectory.messages, settings, tokens, instance_id=trajectory.id)
    if cut is None:
        raise AssertionError(f"episode {trajectory.id} left nothing to compact")
    instance = cut.model_copy(
        update={
            "source": trajectory.source,
            "domain": trajectory.domain,
            "task": trajectory.task,
            "extract": episode.extract,
        }
    )
    return instance, episode


def _generator(split_name: str, index: int) -> random.Random:
    key = hashlib.sha256(f"incident-world\0{split_name}\0{index}".encode()).digest()
    return random.Random(int.from_bytes(key, "big"))


def _fact(number: int, rng: random.Random) -> tuple[Entry, list[Message]]:
    artifact = f"{rng.choice(DOMAINS)}_{rng.randint(0, 99):02d}"
    values = {
        "amount": f"{rng.randint(10, 99)}.{rng.randint(0, 99):02d}",
        "name": rng.choice(NAMES),
        "time": f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}",
        "code": f"{rng.choice('KLTX')}{rng.randint(10, 99)}",
    }
    note = rng.choice(NOTES)
    shown = [value for name, value in values.items() if "{" + name + "}" in note]
    text = note.format(**values)
    entry = Entry(number, f"{number} {artifact} {text}", (artifact, *shown))
    said, result = f"{number} {artifact}", f"{artifact} {text}"
    return entry, _step("inspect_artifact", {"artifact_id": artifact}, said, result)


def _routine(number: int, rng: random.Random) -> tuple[Entry, list[Message]]:
    tool, said, text = rng.choices(ROUTINE, weights=ROUTINE_WEIGHTS)[0]
    return Entry(number, "", ()), _step(tool, {}, f"{number} {said}", text)


def _step(tool: str, arguments: dict[str, str], said: str, result: str) -> list[Message]:
    call = ToolCall(name=tool, arguments=json.dumps(arguments), from_object=True)
    return [
        Message(role="assistant", text=said, calls=(call,)),
        Message(role="tool", name=tool, text=result),
    ]

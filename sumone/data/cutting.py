"""From one trajectory to compaction instances: where the context first passes a size, it is cut.

A second or third compaction goes on from the first: its summary is put in place, the trajectory
continues, and the next time the context is full it is cut again. Such an instance contains a
memory, as the policy will meet it in deployment (the memory rule of Section 3.1).
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from sumone.compaction import count_messages, rejoin, split
from sumone.config import DataConfig
from sumone.redaction import redact, redact_message
from sumone.render import render_text
from sumone.summarizers import Summarizer
from sumone.tokens import Tokens
from sumone.types import CompactionInstance, Message, Trajectory

__all__ = ["Candidate", "Cutter", "unit_hash"]

_PROGRESS = 10
"""After a cut that changed little, the context must grow by a tenth of the threshold first."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An instance that may be chosen."""

    instance: CompactionInstance
    """The instance; its id is the hash of what a model will see of it."""
    context_tokens: int
    """The threshold at which it was cut."""


def unit_hash(*parts: object) -> float:
    """A number in [0, 1) that depends on the parts alone."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:8], "big") / 2.0**64


@dataclass(slots=True)
class Cutter:
    """Cuts trajectories one after another and counts what it met."""

    config: DataConfig
    """Sizes, shares and bounds."""
    tokens: Tokens
    """What counts."""
    summarizer: Summarizer
    """What writes the memory of an instance that has one."""
    counts: Counter[str] = field(default_factory=Counter)
    """Why cuts gave no instance: `too_large`, `small_history`; trajectories `too_short`."""
    redactions: Counter[str] = field(default_factory=Counter)
    """What was taken out, by type."""

    async def cut(self, trajectory: Trajectory) -> list[Candidate]:
        """Instances of a trajectory, at most `max_per_trajectory`; ModelError if the summarizer
        failed for good."""
        trajectory = self._prepared(trajectory)
        sizes = count_messages(trajectory.messages, self.tokens)
        found: list[Candidate] = []
        for context_tokens, quota in self._quotas(trajectory.id):
            if sum(sizes) < context_tokens:
                continue
            found += await self._rounds(trajectory, sizes, context_tokens, quota)
        if sum(sizes) < min(self.config.context_tokens):
            self.counts["too_short"] += 1
        return found

    def _prepared(self, trajectory: Trajectory) -> Trajectory:
        """Redacted before anything else, then long messages shortened where so configured."""
        messages = trajectory.messages
        values = {name: getattr(trajectory, name) for name in ("id", "source", "task")}
        if self.config.redact:
            pairs = [redact_message(message) for message in messages]
            messages = tuple(message for message, _ in pairs)
            for _, counts in pairs:
                self.redactions.update(counts)
            values = {name: redact(value).text for name, value in values.items()}
        limit = self.config.max_message_tokens
        if limit is not None:
            messages = tuple(_shorten(message, limit, self.tokens) for message in messages)
        values["task"] = values["task"] or _task_of(messages) or values["id"]
        return trajectory.model_copy(update={**values, "messages": messages})

    def _quotas(self, trajectory_id: str) -> list[tuple[int, int]]:
        """How many instances each size may give; the odd ones go round by trajectory."""
        sizes = list(dict.fromkeys(self.config.context_tokens))
        base, extra = divmod(self.config.max_per_trajectory, len(sizes))
        first = int(unit_hash(self.config.seed, "size", trajectory_id) * len(sizes))
        rotated = sizes[first:] + sizes[:first]
        quotas = {size: base + (place < extra) for place, size in enumerate(rotated)}
        return [(size, quotas[size]) for size in sizes if quotas[size]]

    async def _rounds(
        self, trajectory: Trajectory, sizes: Sequence[int], context_tokens: int, quota: int
    ) -> list[Candidate]:
        """One compaction after another of the same trajectory at one threshold."""
        settings = self.config.compaction.model_copy(update={"threshold_tokens": context_tokens})
        only_memory = quota == 1 and (
            unit_hash(self.config.seed, "memory", trajectory.id) < self.config.memory_share
        )
        wanted = 2 if only_memory else quota
        found: list[Candidate] = []
        context: list[Message] = []
        total, next_try = 0, context_tokens
        for index, message in enumerate(trajectory.messages):
            context.append(message)
            total += sizes[index]
            if total < next_try or not _is_request(trajectory.messages, index):
                continue
            instance = split(context, settings, self.tokens)
            if instance is None:
                next_try = total + max(1, context_tokens // _PROGRESS)
                continue
            if self._is_usable(instance, total, context_tokens):
                found.append(Candidate(_identified(instance, trajectory), context_tokens))
                if len(found) == wanted:
                    break
            if self.config.memory_share == 0 or index == len(trajectory.messages) - 1:
                break
            summary = await self.summarizer.summarize(
                instance, budget_tokens=self.config.memory_budget_tokens
            )
            context = rejoin(instance, summary)
            total = sum(count_messages(context, self.tokens))
            next_try = max(context_tokens, total + context_tokens // _PROGRESS)
        return found[-1:] if only_memory else found

    def _is_usable(self, instance: CompactionInstance, total: int, context_tokens: int) -> bool:
        if total > context_tokens * (1 + self.config.overshoot_ratio):
            self.counts["too_large"] += 1  # one huge message went far past the threshold
            return False
        history = sum(count_messages(instance.history, self.tokens))
        if history < self.config.min_history_tokens:
            self.counts["small_history"] += 1
            return False
        return True


def _is_request(messages: Sequence[Message], index: int) -> bool:
    """Whether the agent asks its model after this message: only then does a compaction happen."""
    if messages[index].role not in ("user", "tool"):
        return False
    return index + 1 == len(messages) or messages[index + 1].role == "assistant"


def _identified(instance: CompactionInstance, trajectory: Trajectory) -> CompactionInstance:
    digest = hashlib.sha256()
    for part in (instance.preamble, instance.memory, instance.history, instance.recent):
        digest.update(render_text(part).encode("utf-8", "replace") + b"\0")
    return instance.model_copy(
        update={
            "id": digest.hexdigest()[:16],
            "source": trajectory.source,
            "domain": trajectory.domain,
            "task": trajectory.task,
        }
    )


def _task_of(messages: Sequence[Message]) -> str:
    """For a source that names no task: the words of the first request, hashed."""
    for message in messages:
        if message.role == "user" and message.genuine and message.text.strip():
            words = " ".join(message.text.split()).encode("utf-8", "replace")
            return f"request-{hashlib.sha256(words).hexdigest()[:16]}"
    return ""


def _shorten(message: Message, limit: int, tokens: Tokens) -> Message:
    text = _middle_out(message.text, limit, tokens)
    calls = tuple(
        call.model_copy(update={"arguments": short, "from_object": False})
        if (short := _middle_out(call.arguments, limit, tokens)) != call.arguments
        else call
        for call in message.calls
    )
    return message.model_copy(update={"text": text, "calls": calls})


def _middle_out(text: str, limit: int, tokens: Tokens) -> str:
    """Beginning and end of a text that is too long, with a note of what is left out."""
    if len(text) <= limit:
        return text  # a token has at least one character
    starts = tokens.starts(text)
    if len(starts) <= limit:
        return text
    head, tail = limit * 2 // 3, limit - limit * 2 // 3
    note = f"\n[... {len(starts) - limit} tokens left out ...]\n"
    return text[: starts[head]] + note + text[starts[-tail] :]

"""One compaction of a finished transcript: `sumone compress` (Section 3.4)."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sumone.compaction import count_messages, rejoin, split
from sumone.config import CompactionSettings
from sumone.errors import DataError
from sumone.redaction import redact, redact_message
from sumone.render import render_text
from sumone.summarizers.model import OpenedSummarizer, open_summarizer
from sumone.tokens import Tokens
from sumone.types import CompactionInstance, Message, Trajectory

__all__ = ["Compressed", "compress", "compress_async"]

_KEPT_SHARE = 4
"""Where nobody says how much stays, it is at most a quarter of what follows the task."""


@dataclass(frozen=True, slots=True)
class Compressed:
    """A transcript before and after a compaction."""

    source: str
    """The transcript."""
    summarizer: str
    """What wrote the summary, as it was named."""
    tokens: str
    """What counted; an estimate says so."""
    summary: str
    """S."""
    messages: tuple[Message, ...]
    """What the agent would see next: preamble, one memory, recent."""
    num_messages: int
    """Messages before."""
    num_expired: int
    """Messages that the summary replaces."""
    tokens_before: int
    """Size of all messages before."""
    tokens_after: int
    """Size of all messages after."""
    expired_tokens: int
    """Size of what the summary replaces: |H| and the old memory."""
    summary_tokens: int
    """|S|."""
    redactions: Mapping[str, int]
    """What was taken out before the summarizer saw it, by type."""

    def text(self) -> str:
        """For a terminal: the numbers, the summary, the compacted messages."""
        saved = 1 - self.tokens_after / self.tokens_before
        lines = [
            f"{self.source}: {self.num_messages} messages, summarized by {self.summarizer}",
            f"context  {self.tokens_before} tokens before, {self.tokens_after} after "
            f"({saved:.0%} saved); tokens: {self.tokens}",
            f"history  {self.num_expired} messages of {self.expired_tokens} tokens, replaced by a "
            f"summary of {self.summary_tokens}",
        ]
        if self.tokens_after >= self.tokens_before:
            lines.append("the summary is no shorter than what it replaces: nothing is gained here")
        if self.redactions:
            shown = ", ".join(f"{name} {count}" for name, count in self.redactions.items())
            lines.append(f"redacted {shown}")
        lines += ["", "--- summary ---", self.summary, "", "--- compacted messages ---"]
        return "\n".join([*lines, render_text(self.messages).rstrip("\n")])


def compress(
    transcript: Trajectory,
    summarizer: str,
    *,
    model_name: str = "",
    api_key_env: str = "",
    recent_tokens: int | None = None,
    budget_tokens: int | None = None,
    tokens: Tokens | None = None,
) -> Compressed:
    """`compress_async`, for callers without an event loop."""
    return asyncio.run(
        compress_async(
            transcript,
            summarizer,
            model_name=model_name,
            api_key_env=api_key_env,
            recent_tokens=recent_tokens,
            budget_tokens=budget_tokens,
            tokens=tokens,
        )
    )


async def compress_async(
    transcript: Trajectory,
    summarizer: str,
    *,
    model_name: str = "",
    api_key_env: str = "",
    recent_tokens: int | None = None,
    budget_tokens: int | None = None,
    tokens: Tokens | None = None,
) -> Compressed:
    """Compact a transcript once, now, whatever its size.

    `summarizer`: a run folder, a model folder, an address (with `model_name`) or `rule-based`.
    `recent_tokens` and `budget_tokens` default to what a trained folder says; elsewhere at most a
    quarter of what follows the task stays. `tokens` counts where the summarizer has no tokenizer.
    Secrets are redacted before the summarizer sees them; kept messages stay verbatim.

    Raises DataError where there is nothing to compact, ConfigError where there is no such
    summarizer, ModelError where it gave no summary.
    """
    opened = open_summarizer(
        summarizer, model_name=model_name, api_key_env=api_key_env, tokens=tokens
    )
    try:
        sizes = count_messages(transcript.messages, opened.tokens)
        settings = _settings(opened, _behind_the_task(transcript, sizes), recent_tokens)
        instance = split(transcript.messages, settings, opened.tokens)
        if instance is None:
            raise DataError(_nothing(transcript, sum(sizes), settings))
        redacted, counts = _redacted(instance)
        summary = await opened.summarizer.summarize(
            redacted, budget_tokens=budget_tokens or opened.card.budget_tokens
        )
    finally:
        await opened.aclose()
    summary = redact(summary).text
    messages = rejoin(instance, summary)
    return Compressed(
        source=transcript.source,
        summarizer=opened.name,
        tokens=opened.tokens.name,
        summary=summary,
        messages=tuple(messages),
        num_messages=len(transcript.messages),
        num_expired=len(instance.expired),
        tokens_before=sum(sizes),
        tokens_after=sum(count_messages(messages, opened.tokens)),
        expired_tokens=sum(count_messages(instance.expired, opened.tokens)),
        summary_tokens=opened.tokens.count(summary),
        redactions=counts,
    )


def _behind_the_task(transcript: Trajectory, sizes: Sequence[int]) -> int:
    """Tokens behind the system message and the first request."""
    for index, message in enumerate(transcript.messages):
        if message.role == "user" and message.genuine:
            return sum(sizes[index + 1 :])
    return sum(sizes)


def _settings(
    opened: OpenedSummarizer, available: int, recent_tokens: int | None
) -> CompactionSettings:
    """As trained; a summarizer without settings must not keep most of a short transcript."""
    settings = opened.card.compaction
    if recent_tokens is not None:
        return settings.model_copy(update={"recent_tokens": recent_tokens})
    if settings != CompactionSettings():
        return settings
    room = available // _KEPT_SHARE
    return settings.model_copy(
        update={
            "recent_tokens": min(settings.recent_tokens, room),
            "keep_user_tokens": min(settings.keep_user_tokens, room),
        }
    )


def _nothing(transcript: Trajectory, total: int, settings: CompactionSettings) -> str:
    return (
        f"{transcript.source}: nothing to compact: of its {len(transcript.messages)} messages "
        f"({total} tokens), system message, task, kept user messages and the last steps (up to "
        f"{settings.recent_tokens} tokens, at least one step) are all there is. A longer "
        "transcript or a smaller --recent-tokens would leave something"
    )


def _redacted(instance: CompactionInstance) -> tuple[CompactionInstance, Mapping[str, int]]:
    counts: Counter[str] = Counter()

    def clean(messages: Sequence[Message]) -> tuple[Message, ...]:
        pairs = [redact_message(message) for message in messages]
        for _, found in pairs:
            counts.update(found)
        return tuple(message for message, _ in pairs)

    parts = ("preamble", "memory", "history", "recent")
    update = {name: clean(getattr(instance, name)) for name in parts}
    return instance.model_copy(update=update), dict(sorted(counts.items()))

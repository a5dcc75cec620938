"""What turns (C, H) into a summary S: a model, or rules that need none."""

from typing import Protocol

from sumone.types import CompactionInstance

__all__ = ["Summarizer"]


class Summarizer(Protocol):
    """The deployed summarizer (Section 3.4)."""

    async def summarize(self, instance: CompactionInstance, *, budget_tokens: int) -> str:
        """The summary that replaces memory and history: never empty, at most `budget_tokens`
        tokens. Raises ModelError when there is none to be had."""
        ...

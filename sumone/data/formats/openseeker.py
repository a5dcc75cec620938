"""OpenSeeker and WebDancer rows: thinking, calls and answers in tags inside assistant text, the
results in the next user turn.

Columns of OpenSeeker have spaces (`number of tool calls`); WebDancer's `tool_calls` column is an
empty list. The first user prompt shows the tags with invalid JSON, so only assistant turns are
searched. `<think>` text stays text: it is part of what the agent wrote openly.
"""

from collections.abc import Mapping
from typing import Any

from sumone.data.formats.calls_in_text import recover, tagged_calls, tagged_results
from sumone.data.formats.fields import (
    RecordError,
    as_list,
    as_text,
    drop_rest,
    prompt_task,
    trajectory_of,
)
from sumone.data.formats.openai_chat import read_messages
from sumone.data.report import Drops
from sumone.data.source import Record
from sumone.types import Message, Trajectory

__all__ = ["NAME", "matches", "read_row"]

NAME = "openseeker"

_QUESTION_HEAD = "\nUser: "


def matches(record: Mapping[str, Any]) -> bool:
    """Whether a record has a question and its trajectory, or calls only in assistant text."""
    if isinstance(record.get("question"), str) and isinstance(record.get("trajectory"), str | list):
        return True
    items = [item for item in as_list(record.get("messages")) if isinstance(item, dict)]
    if any(item.get("tool_calls") or item.get("role") == "tool" for item in items):
        return False
    return any(
        item.get("role") == "assistant"
        and any(tag in as_text(item.get("content")) for tag in ("<tool_call>", "<answer>"))
        for item in items
    )


def read_row(record: Record, drops: Drops) -> Trajectory:
    """One search; the task is the question."""
    row = record.value
    column = "trajectory" if row.get("trajectory") is not None else "messages"
    if not isinstance(row.get(column), list):
        raise RecordError(f"`{column}` is neither a list nor the JSON of one")
    messages = recover(
        read_messages(row[column], drops), drops, find_calls=tagged_calls, results=tagged_results
    )
    drop_rest(
        row,
        drops,
        used=(column,),
        reasons={"answer": "gold", "question": "copy", "tag": "metadata"},
    )
    task = as_text(row.get("question")).strip() or _asked(messages) or prompt_task(messages)
    return trajectory_of(messages, record, format=NAME, domain="search", task=task)


def _asked(messages: list[Message]) -> str:
    """The question at the end of the first prompt, where the prompt marks it."""
    first = next((message.text for message in messages if message.role == "user"), "")
    _, head, question = first.rpartition(_QUESTION_HEAD)
    return question.strip() if head else ""

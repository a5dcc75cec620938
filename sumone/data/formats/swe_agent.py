"""SWE-agent `.traj` files: `history` is the conversation, the rest are copies of it.

Every step repeats the messages so far (`messages` or `query`), so reading the steps would count
the text twenty times; history processors shorten old observations there, never in `history`.
Where `history` is missing, the steps' `response` and `observation` stand in. Old versions write
the action as a code fence and the observation as a user turn.
"""

from collections.abc import Mapping
from typing import Any

from sumone.data.formats.calls_in_text import (
    command_call,
    function_calls,
    observation,
    recover,
)
from sumone.data.formats.fields import (
    RecordError,
    as_list,
    as_text,
    drop_rest,
    repository_of,
    text_of,
    trajectory_of,
)
from sumone.data.formats.openai_chat import read_messages
from sumone.data.report import Drops
from sumone.data.source import Record
from sumone.types import Message, Trajectory

__all__ = ["NAME", "matches", "read_history", "read_row"]

NAME = "swe-agent"

_COPIES = {"messages": "copy", "query": "copy"}


def matches(record: Mapping[str, Any]) -> bool:
    """Whether a record has SWE-agent's history or steps."""
    return any(
        isinstance(item, dict) and "role" in item and ("agent" in item or "message_type" in item)
        for item in as_list(record.get("history"))
    ) or any(
        isinstance(step, dict) and "observation" in step and "action" in step
        for step in as_list(record.get("trajectory"))
    )


def read_row(record: Record, drops: Drops) -> Trajectory:
    """One run. The task is the repository that the environment's or the file's name tells."""
    row = record.value
    if as_list(row.get("history")):
        messages = read_history(row["history"], drops)
        used = ["history"]
    elif isinstance(row.get("trajectory"), list):
        messages = _read_steps(row["trajectory"], drops)
        used = ["trajectory"]
    else:
        raise RecordError("neither history nor trajectory is a list")
    reasons = {"trajectory": "copy", "info": "gold"}
    drop_rest(row, drops, used=used, reasons=reasons)
    instance = as_text(row.get("environment"))
    if "__" not in instance:
        instance = record.path.name.split(".traj")[0]
    return trajectory_of(
        messages, record, format=NAME, domain="coding", task=repository_of(instance), name=instance
    )


def read_history(items: list[Any], drops: Drops) -> list[Message]:
    """Messages of a history, with calls and observations recovered from text."""
    demonstrations = {
        index
        for index, item in enumerate(items)
        if isinstance(item, dict) and item.get("is_demo") is True
    }
    return _recovered(
        [
            message.model_copy(update={"pinned": True, "genuine": message.role != "user"})
            if message.source_index in demonstrations
            else message
            for message in read_messages(items, drops)
        ],
        drops,
    )


def _recovered(messages: list[Message], drops: Drops) -> list[Message]:
    in_tags = any("<function=" in m.text for m in messages if m.role == "assistant")
    find_calls = function_calls if in_tags else command_call
    return recover(messages, drops, find_calls=find_calls, results=observation)


def _read_steps(steps: list[Any], drops: Drops) -> list[Message]:
    """Messages of the steps alone: their answers and observations."""
    messages: list[Message] = []
    for index, step in enumerate(steps):
        if not isinstance(step, dict):
            drops.drop("unreadable", step)
            continue
        response = text_of(step.get("response"), drops)
        seen = text_of(step.get("observation"), drops)
        if response:
            messages.append(Message(role="assistant", text=response, source_index=index))
        if response or seen:
            messages.append(Message(role="user", text=seen, source_index=index))
        drop_rest(step, drops, used=("response", "observation"), reasons=_COPIES)
    return _recovered(messages, drops)

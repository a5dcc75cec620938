"""mini-swe-agent runs: `trajectory_format`, or the bare message list of its first versions.

Text models act in one fenced command and read the observation in the next user turn; a turn
with another number of commands is answered by a complaint of the harness. Tool models use chat
calls. Responses models store raw answers without a role.
"""

from collections.abc import Mapping
from typing import Any

from sumone.data.formats.calls_in_text import fenced_command, observation, recover
from sumone.data.formats.fields import (
    RecordError,
    as_list,
    as_text,
    call_of,
    drop_rest,
    repository_of,
    text_of,
    text_parts,
    trajectory_of,
)
from sumone.data.formats.openai_chat import read_message
from sumone.data.report import Drops
from sumone.data.source import Record
from sumone.types import Message, ToolCall, Trajectory

__all__ = ["NAME", "matches", "read_row"]

NAME = "mini-swe-agent"


def matches(record: Mapping[str, Any]) -> bool:
    """Whether a record names the format, or its messages act in the format's fences."""
    if as_text(record.get("trajectory_format")).startswith("mini-swe-agent"):
        return True
    items = [item for item in as_list(record.get("messages")) if isinstance(item, dict)]
    return any(
        item.get("role") == "assistant" and "```mswea_bash_command" in as_text(item.get("content"))
        for item in items
    ) or any(
        item.get("role") == "user" and as_text(item.get("content")).startswith("<returncode>")
        for item in items
    )


def read_row(record: Record, drops: Drops) -> Trajectory:
    """One run; the task is told by the file's name."""
    row = record.value
    items = row.get("messages")
    if not isinstance(items, list):
        raise RecordError("the messages are no list")
    chat = [m for index, item in enumerate(items) for m in _read_item(item, index, drops)]
    messages = recover(chat, drops, find_calls=fenced_command, results=observation)
    drop_rest(row, drops, used=("messages",), reasons={"info": "gold"})
    instance = as_text(row.get("instance_id")) or record.path.name.split(".traj")[0]
    return trajectory_of(
        messages, record, format=NAME, domain="coding", task=repository_of(instance), name=instance
    )


def _read_item(item: object, index: int, drops: Drops) -> list[Message]:
    """A chat message, a raw turn of a Responses model, or the closing `exit`."""
    if isinstance(item, dict):
        if item.get("object") == "response" and isinstance(item.get("output"), list):
            return _response_turn(item, index, drops)
        if item.get("role") == "exit":
            text = text_of(item.get("content"), drops)
            drop_rest(item, drops, used=("content",))
            return [Message(role="user", text=text, source_index=index)]
        if item.get("type") == "function_call_output":
            text = text_of(item.get("output"), drops)
            drop_rest(item, drops, used=("output",))
            call_id = as_text(item.get("call_id"))
            return [Message(role="tool", text=text, call_id=call_id, source_index=index)]
    return read_message(item, index, drops)


def _response_turn(item: Mapping[str, Any], index: int, drops: Drops) -> list[Message]:
    """One raw answer of the Responses API as an assistant message."""
    texts: list[str] = []
    calls: list[ToolCall] = []
    for part in item["output"]:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "message":
            texts += text_parts(part.get("content"), drops)
            drop_rest(part, drops, used=("content",))
        elif kind == "function_call":
            calls.append(
                call_of(part.get("call_id"), part.get("name"), part.get("arguments"), drops)
            )
            drop_rest(part, drops, used=("call_id", "name", "arguments"))
        elif kind == "reasoning":
            drop_rest(part, drops, default="reasoning")
        else:
            drops.drop("unreadable", part)
            drops.note(f"response item of type {kind!r} left out")
    drop_rest(item, drops, used=("output",))
    text = "".join(texts)
    if not text and not calls:
        return []
    return [Message(role="assistant", text=text, calls=tuple(calls), source_index=index)]

"""Anthropic Messages: `system` beside the list, content blocks, results in user turns.

Thinking is dropped (`reasoning`), its signatures too (`signature`): signed thinking may not be
shortened or moved, so a summary never holds it. In a user turn the results come first, then each
text block as a message of its own, because a harness adds blocks that nobody typed.
"""

import re
from collections.abc import Mapping
from typing import Any

from sumone.data.formats.fields import (
    RecordError,
    as_list,
    as_text,
    call_of,
    drop_rest,
    prompt_task,
    text_of,
    text_parts,
    trajectory_of,
)
from sumone.data.report import Drops
from sumone.data.source import Record
from sumone.types import Message, ToolCall, Trajectory

__all__ = ["NAME", "assistant_message", "is_typed", "matches", "read_row", "user_messages"]

NAME = "anthropic-messages"

_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use")
_CALL_BLOCKS = ("tool_use", "server_tool_use", "mcp_tool_use")
_RESULT_BLOCKS = ("tool_result", "mcp_tool_result")
_INJECTED = re.compile(r"\s*(?:<([a-zA-Z][\w-]*)>.*?</\1>\s*)+", re.DOTALL)
_TYPED_TAGS = re.compile(r"<bash-input>\s*\S|<command-args>\s*[^\s<]")
_HARNESS_TEXT = ("[Request interrupted by user", "Caveat: The messages below were generated")


def matches(record: Mapping[str, Any]) -> bool:
    """Whether a record holds messages with Anthropic blocks, or a `system` beside them."""
    items = [item for item in as_list(record.get("messages")) if isinstance(item, dict)]
    if any(item.get("tool_calls") or item.get("role") == "tool" for item in items):
        return False
    return any(
        isinstance(block, dict) and block.get("type") in _BLOCKS
        for item in items
        for block in as_list(item.get("content"))
    ) or (
        isinstance(record.get("system"), str | list)
        and any(item.get("role") in ("user", "assistant") for item in items)
    )


def read_row(record: Record, drops: Drops) -> Trajectory:
    """One request or conversation."""
    row = record.value
    items = row.get("messages")
    if not isinstance(items, list):
        raise RecordError("the messages are no list")
    messages: list[Message] = []
    if text := text_of(row.get("system"), drops):
        messages.append(Message(role="system", text=text))
    for index, item in enumerate(items):
        role = item.get("role") if isinstance(item, dict) else None
        if role == "assistant":
            if (said := assistant_message(item, index, drops)) is not None:
                messages.append(said)
        elif role == "user":
            messages += user_messages(item, index, drops)
        elif role == "system":
            text = text_of(item.get("content"), drops)
            drop_rest(item, drops, used=("content",))
            messages.append(Message(role="system", text=text, source_index=index))
        else:
            drops.drop("unreadable", item)
            drops.note(f"message with role {role!r} left out")
    drop_rest(row, drops, used=("messages", "system"))
    return trajectory_of(messages, record, format=NAME, domain="", task=prompt_task(messages))


def is_typed(text: str) -> bool:
    """Whether a person typed a user text: not one made only of a harness's tags or notices."""
    if text.lstrip().startswith(_HARNESS_TEXT):
        return False
    if _INJECTED.fullmatch(text):
        return _TYPED_TAGS.search(text) is not None
    return bool(text.strip())


def assistant_message(item: Mapping[str, Any], index: int, drops: Drops) -> Message | None:
    """An assistant turn: its texts joined, its calls; None where it says and does nothing."""
    texts: list[str] = []
    calls: list[ToolCall] = []
    content = item.get("content")
    for block in content if isinstance(content, list) else [content]:
        if not isinstance(block, dict):
            texts += text_parts(block, drops)
            continue
        kind = block.get("type")
        if kind in _CALL_BLOCKS:
            calls.append(call_of(block.get("id"), block.get("name"), block.get("input"), drops))
            drop_rest(block, drops, used=("id", "name", "input"))
        elif kind == "thinking":
            drop_rest(block, drops)
        elif kind == "redacted_thinking":
            drop_rest(block, drops, reasons={"data": "signature"})
        else:
            texts += text_parts(block, drops)
    drop_rest(item, drops, used=("content",))
    text = "".join(texts)
    if not text and not calls:
        return None
    return Message(role="assistant", text=text, calls=tuple(calls), source_index=index)


def user_messages(item: Mapping[str, Any], index: int, drops: Drops) -> list[Message]:
    """A user turn: `tool` messages for its results, then its texts."""
    results: list[Message] = []
    texts: list[str] = []
    content = item.get("content")
    for block in content if isinstance(content, list) else [content]:
        if isinstance(block, dict) and block.get("type") in _RESULT_BLOCKS:
            results.append(
                Message(
                    role="tool",
                    text=text_of(block.get("content"), drops),
                    call_id=as_text(block.get("tool_use_id")),
                    is_error=block.get("is_error") is True,
                    source_index=index,
                )
            )
            drop_rest(block, drops, used=("content",))
        else:
            texts += text_parts(block, drops)
    drop_rest(item, drops, used=("content",))
    if not results and not texts:
        # A turn of images alone: it stays as a turn, but holds no request in words.
        return [Message(role="user", genuine=False, source_index=index)]
    return results + [
        Message(role="user", text=text, genuine=is_typed(text), source_index=index)
        for text in texts
    ]

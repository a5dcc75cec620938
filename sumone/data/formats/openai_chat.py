"""OpenAI chat messages: `{"messages": [...]}` rows, bare lists, or one message a line.

Content is a string, null or a list of parts; calls are `tool_calls`, or the older
`function_call` with role `function`, or stand in the text of models that have neither.
`developer` is a system role.
"""

from collections.abc import Mapping
from typing import Any

from sumone.data.formats import anthropic_messages
from sumone.data.formats.calls_in_text import (
    function_calls,
    observation,
    recover,
    tagged_calls,
    tagged_results,
)
from sumone.data.formats.fields import (
    RecordError,
    as_list,
    as_text,
    call_of,
    drop_rest,
    prompt_task,
    text_parts,
    trajectory_of,
)
from sumone.data.report import Drops
from sumone.data.source import Record
from sumone.types import Message, Role, ToolCall, Trajectory

__all__ = ["NAME", "matches", "read_message", "read_messages", "read_row"]

NAME = "openai-chat"

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


def matches(record: Mapping[str, Any]) -> bool:
    """Whether a record holds a list with at least one chat message."""
    return any(
        isinstance(item, dict)
        and as_text(item.get("role")) in _ROLES
        and ("content" in item or "tool_calls" in item or "function_call" in item)
        for item in as_list(record.get("messages"))
    )


def read_row(record: Record, drops: Drops) -> Trajectory:
    """One conversation. Rows with Anthropic blocks are read as such."""
    row = record.value
    if anthropic_messages.matches(row):
        return anthropic_messages.read_row(record, drops)
    messages = _with_calls(read_messages(row.get("messages"), drops, split_user=True), drops)
    drop_rest(row, drops, used=("messages",))
    return trajectory_of(messages, record, format=NAME, domain="", task=prompt_task(messages))


def _with_calls(messages: list[Message], drops: Drops) -> list[Message]:
    """Models without native calls write them in tags; then the next user turn is the result."""
    said = [message for message in messages if message.role == "assistant"]
    if any(message.calls for message in said):
        return messages
    if any("<function=" in message.text for message in said):
        return recover(messages, drops, find_calls=function_calls, results=_after_call)
    if any("<tool_call>" in message.text for message in said):
        return recover(messages, drops, find_calls=tagged_calls, results=_in_tags)
    return messages


def _after_call(message: Message, pending: tuple[ToolCall, ...], drops: Drops) -> list[Message]:
    return observation(message, pending, drops) if pending else [message]


def _in_tags(message: Message, pending: tuple[ToolCall, ...], drops: Drops) -> list[Message]:
    if "<tool_response>" in message.text:
        return tagged_results(message, pending, drops)
    return [message]


def read_messages(items: object, drops: Drops, *, split_user: bool = False) -> list[Message]:
    """Chat messages in order; several text parts of a user turn are one message, or several.

    Raises RecordError where the items are no list.
    """
    if not isinstance(items, list):
        drops.drop("unreadable", items)
        raise RecordError("the messages are no list")
    return [
        message
        for index, item in enumerate(items)
        for message in read_message(item, index, drops, split_user=split_user)
    ]


def read_message(
    item: object, index: int, drops: Drops, *, split_user: bool = False
) -> list[Message]:
    """One chat message; none where it is empty or fits no role."""
    if not isinstance(item, dict):
        drops.drop("unreadable", item)
        drops.note("message that is no object left out")
        return []
    role = _ROLES.get(as_text(item.get("role")))
    if role is None:
        drops.drop("unreadable", item)
        drops.note(f"message with role {item.get('role')!r} left out")
        return []
    used = ["content"]
    content = item.get("content")
    if content is None and role == "assistant" and isinstance(item.get("refusal"), str):
        used.append("refusal")
        content = item["refusal"]
    texts = text_parts(content, drops)
    if role == "user":
        drop_rest(item, drops, used=used)
        if split_user and len(texts) > 1:
            return [Message(role=role, text=text, source_index=index) for text in texts]
        # A turn of images alone holds no request in words.
        return [Message(role=role, text="".join(texts), genuine=bool(texts), source_index=index)]
    if role == "tool":
        call_ids = [item.get("tool_call_id"), *as_list(item.get("tool_call_ids"))]
        drop_rest(item, drops, used=used)
        return [
            Message(
                role=role,
                text="".join(texts),
                call_id=next((value for value in call_ids if isinstance(value, str)), ""),
                name=as_text(item.get("name")),
                source_index=index,
            )
        ]
    calls: tuple[ToolCall, ...] = ()
    if role == "assistant":
        used += ["tool_calls", "function_call"]
        calls = _calls(item, drops)
        if not calls and not any(texts):
            drop_rest(item, drops, used=used)
            drops.note("empty assistant message left out")
            return []
    drop_rest(item, drops, used=used)
    return [Message(role=role, text="".join(texts), calls=calls, source_index=index)]


def _calls(item: Mapping[str, Any], drops: Drops) -> tuple[ToolCall, ...]:
    calls: list[ToolCall] = []
    given = item.get("tool_calls")
    if given is not None and not isinstance(given, list):
        drops.drop("unreadable", given)
        drops.note("calls that are no list left out")
    for call in as_list(given):
        body = None
        if isinstance(call, dict):
            key = "custom" if isinstance(call.get("custom"), dict) else "function"
            body = call.get(key)
        if not isinstance(body, dict):
            drops.drop("unreadable", call)
            drops.note("call that does not fit the format left out")
            continue
        argument_key = "input" if key == "custom" else "arguments"
        calls.append(call_of(call.get("id"), body.get("name"), body.get(argument_key), drops))
        drop_rest(body, drops, used=("name", argument_key))
        drop_rest(call, drops, used=("id", key))
    legacy = item.get("function_call")
    if isinstance(legacy, dict):
        calls.append(call_of(None, legacy.get("name"), legacy.get("arguments"), drops))
        drop_rest(legacy, drops, used=("name", "arguments"))
    else:
        drops.drop("unreadable", legacy)
    return tuple(calls)

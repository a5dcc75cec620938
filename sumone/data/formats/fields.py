"""Untyped JSON fields as text, with every character that is left out accounted for.

Adapters add no text of their own: parts of one message are joined without a separator, images
leave nothing behind, numbers are not spelled out.
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sumone.data.report import Drops
from sumone.data.source import Record
from sumone.types import Message, ToolCall, Trajectory, clean_text

__all__ = [
    "RecordError",
    "as_list",
    "as_text",
    "call_of",
    "drop_rest",
    "prompt_task",
    "repository_of",
    "text_of",
    "text_parts",
    "trajectory_of",
]

_REASON_OF_KEY = {
    **dict.fromkeys(
        (
            "id", "uuid", "parentUuid", "logicalParentUuid", "sessionId", "session_id",
            "requestId", "promptId", "agentId", "messageId", "tool_call_id", "tool_call_ids",
            "tool_use_id", "call_id", "instance_id", "traj_id", "sourceToolAssistantUUID",
        ),
        "id",
    ),
    **dict.fromkeys(("toolUseResult", "thought", "action"), "copy"),
    **dict.fromkeys(
        ("thinking", "reasoning", "reasoning_content", "thinking_blocks"), "reasoning"
    ),
    **dict.fromkeys(("signature", "encrypted_content"), "signature"),
    **dict.fromkeys(("tools", "functions", "tool_definitions"), "tools"),
}  # fmt: skip
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
_MEDIA_PARTS = (
    "image", "image_url", "input_image", "input_audio", "audio", "video", "document", "file",
    "input_file",
)  # fmt: skip
_DATA_URL = re.compile(r"(?<=;base64,)[A-Za-z0-9+/=_-]{64,}")
_SMITH_ID = re.compile(r"(?P<owner>.+?)__(?P<name>.+)\.[0-9a-f]{8}\b.*")
_BENCH_ID = re.compile(r"(?P<owner>.+?)__(?P<name>.+)-\d+")


class RecordError(Exception):
    """This record does not fit the format; the loader skips and reports it."""


def as_list(value: object) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: object) -> str:
    """The value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def text_parts(content: object, drops: Drops) -> list[str]:
    """The texts of a `content` field: a string, a list of parts, one part, or null."""
    if isinstance(content, str):
        return [_without_data_urls(content, drops)]
    texts: list[str] = []
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            texts.append(_without_data_urls(part, drops))
            continue
        if not isinstance(part, Mapping):
            drops.drop("unreadable", part)
            continue
        kind = part.get("type", "text")
        key = "refusal" if kind == "refusal" else "text"
        if kind in _TEXT_PARTS and isinstance(text := part.get(key), str):
            texts.append(_without_data_urls(text, drops))
            drop_rest(part, drops, used=(key,))
        elif kind in _MEDIA_PARTS:
            drops.drop("image", part)
        elif kind == "tool_reference":
            drops.drop("metadata", part)
        else:
            drops.drop("unreadable", part)
            drops.note(f"content part of type {kind!r} left out")
    return texts


def text_of(content: object, drops: Drops) -> str:
    """The texts of a `content` field, joined without a separator."""
    return "".join(text_parts(content, drops))


def _without_data_urls(text: str, drops: Drops) -> str:
    """A data URL keeps its head; the bytes behind it would only be counted as words."""
    if ";base64," not in text:
        return text
    short = _DATA_URL.sub("", text)
    drops.drop_characters("image", len(text) - len(short))
    return short


def call_of(call_id: object, name: object, arguments: object, drops: Drops) -> ToolCall:
    """A call from its fields; arguments that are no string become the JSON of the object."""
    drops.drop("id", call_id)
    if not isinstance(name, str):
        drops.drop("unreadable", name)
        drops.note("call without a name")
    text, from_object = "", False
    if isinstance(arguments, str):
        text = arguments
    elif arguments is not None:
        text = json.dumps(arguments, ensure_ascii=False, default=lambda _: None)
        from_object = True
    return ToolCall(
        id=as_text(call_id), name=as_text(name), arguments=text, from_object=from_object
    )


def drop_rest(
    record: Mapping[str, Any],
    drops: Drops,
    *,
    used: Collection[str] = (),
    reasons: Mapping[str, str] | None = None,
    default: str = "metadata",
) -> None:
    """Drop every field that is not used, under the reason of its key."""
    for key, value in record.items():
        if key not in used:
            reason = (reasons or {}).get(key) or _REASON_OF_KEY.get(key, default)
            drops.drop(reason, value)


def repository_of(instance_id: str) -> str:
    """`owner/name` of a SWE instance id, or the id itself where it names no repository.

    `pandas-dev__pandas.95280573.pr_53652` (SWE-smith) and `pydicom__pydicom-1458` (SWE-bench).
    """
    match = _SMITH_ID.fullmatch(instance_id) or _BENCH_ID.fullmatch(instance_id)
    return f"{match['owner']}/{match['name']}" if match else instance_id


def prompt_task(messages: Sequence[Message]) -> str:
    """A task name from the first genuine request, for sources that name no task."""
    for message in messages:
        if message.role == "user" and message.genuine and message.text.strip():
            return "prompt:" + hashlib.sha256(message.text.encode()).hexdigest()[:16]
    return ""


def trajectory_of(
    messages: Sequence[Message],
    record: Record,
    *,
    format: str,
    domain: str,
    task: str,
    name: str = "",
    unique: bool = False,
) -> Trajectory:
    """A trajectory with a stable id: the source's own name, plus a content hash unless that name
    is unique.

    Raises RecordError where there is no message.
    """
    if not messages:
        raise RecordError("no message that could be read")
    messages = _with_tool_names(messages)
    digest = hashlib.sha256()
    for message in messages:
        digest.update(message.model_dump_json(exclude={"source_index"}).encode())
    parts = [clean_text(name)] if name else []
    if not (unique and name):
        parts.append(digest.hexdigest()[:16])
    return Trajectory(
        id=".".join(parts),
        format=format,
        source=record.source,
        domain=domain,
        task=clean_text(task),
        messages=tuple(messages),
    )


def _with_tool_names(messages: Sequence[Message]) -> list[Message]:
    """Results named after the call that they answer, where only its id was given."""
    names: dict[str, str] = {}
    named: list[Message] = []
    for message in messages:
        names.update({call.id: call.name for call in message.calls if call.id})
        if message.role == "tool" and not message.name and message.call_id in names:
            named.append(message.model_copy(update={"name": names[message.call_id]}))
        else:
            named.append(message)
    return named

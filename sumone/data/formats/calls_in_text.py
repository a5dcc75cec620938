"""Calls and results that stand inside text, turned into calls and `tool` messages.

Only assistant turns are searched for calls: prompts show examples of the same tags. A call that
is malformed stays text; nothing is repaired by guess. Calls found in text have no id: results
answer the calls of the directly preceding assistant message in order.
"""

import json
import re
from collections.abc import Callable, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from sumone.data.report import Drops, string_characters
from sumone.types import Message, ToolCall

__all__ = [
    "Found",
    "command_call",
    "fenced_command",
    "function_calls",
    "observation",
    "recover",
    "tagged_calls",
    "tagged_results",
]

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"\s*")
_CALL_WRAPPERS = re.compile(r"\s*</?tool_calls_(?:begin|end)>\s*")
_FUNCTION = re.compile(r"<function=([^>\n]+)>")
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>")
_PARAMETER_END = re.compile(r"</parameter>(?=\s*(?:<parameter=|</function>))")
_TICKS = re.compile(r"^```([^\s`]*)[^\S\n]*\n(.*?)^```[^\S\n]*$", re.DOTALL | re.MULTILINE)
_MINI_TICKS = re.compile(r"```(mswea_bash_command|bash)[^\S\n]*\n(.*?)\n```", re.DOTALL)
_COMMAND = re.compile(r"<command>\n?(.*?)</command>", re.DOTALL)
_OBSERVATION_HEADS = ("OBSERVATION:\n", "Observation: ")
# The SWE-smith rendering puts these values on lines of their own.
_PADDED_PARAMETERS = ("old_str", "new_str", "file_text")


class Found(NamedTuple):
    """What is left of an assistant text once its calls are taken out."""

    text: str
    calls: tuple[ToolCall, ...]


def recover(
    messages: Sequence[Message],
    drops: Drops,
    *,
    find_calls: Callable[[str, Drops], Found],
    results: Callable[[Message, tuple[ToolCall, ...], Drops], list[Message]],
) -> list[Message]:
    """Calls from assistant texts, and the user turns that answer them as `tool` messages.

    Messages before the first assistant turn are prompts and stay as they are.
    """
    found: list[Message] = []
    pending: tuple[ToolCall, ...] = ()
    started = False
    for message in messages:
        if message.role == "assistant":
            started, pending = True, ()
            if not message.calls:
                text, pending = find_calls(message.text, drops)
                _drop_markup(message.text, text, pending, drops)
                found.append(message.model_copy(update={"text": text, "calls": pending}))
            else:
                found.append(message)
        elif message.role == "user" and started and not message.pinned:
            found += results(message, pending, drops)
            pending = ()
        else:
            found.append(message)
    return found


def _drop_markup(before: str, after: str, calls: tuple[ToolCall, ...], drops: Drops) -> None:
    kept = len(after)
    for call in calls:
        kept += len(call.name)
        arguments = json.loads(call.arguments) if call.from_object else call.arguments
        kept += string_characters(arguments)
    drops.drop_characters("markup", len(before) - kept)


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


class _Value(NamedTuple):
    value: object
    source: str


def _object_at(text: str, start: int) -> tuple[dict[str, _Value], int] | None:
    """A JSON object at an offset: its values with their source text, and the offset behind it."""
    position = _skip_space(text, start)
    if not text.startswith("{", position):
        return None
    fields: dict[str, _Value] = {}
    position = _skip_space(text, position + 1)
    try:
        while not text.startswith("}", position):
            if fields:
                if not text.startswith(",", position):
                    return None
                position = _skip_space(text, position + 1)
            key, position = _DECODER.raw_decode(text, position)
            position = _skip_space(text, position)
            if not isinstance(key, str) or key in fields or not text.startswith(":", position):
                return None
            begin = _skip_space(text, position + 1)
            value, position = _DECODER.raw_decode(text, begin)
            fields[key] = _Value(value, text[begin:position])
            position = _skip_space(text, position)
    except (ValueError, RecursionError):
        return None
    return fields, position + 1


def tagged_calls(text: str, drops: Drops) -> Found:
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, after the thinking.

    The arguments keep the source's own JSON text.
    """
    kept: list[str] = []
    calls: list[ToolCall] = []
    position = 0
    search_from = text.rfind("</think>") + 1
    while (start := text.find("<tool_call>", search_from)) >= 0:
        search_from = inside = start + len("<tool_call>")
        parsed = _object_at(text, inside)
        end = _skip_space(text, parsed[1]) if parsed else 0
        name = parsed[0].get("name") if parsed else None
        if (
            parsed is None
            or name is None
            or not isinstance(name.value, str)
            or not text.startswith("</tool_call>", end)
        ):
            drops.note("malformed call kept as text")
            continue
        given = parsed[0].get("arguments", _Value("", ""))
        arguments = given.value if isinstance(given.value, str) else given.source
        calls.append(ToolCall(name=name.value, arguments=arguments))
        kept.append(text[position:start].rstrip())
        position = search_from = end + len("</tool_call>")
    if not calls:
        return Found(text, ())
    left = "".join([*kept, text[position:].rstrip()])
    return Found(_CALL_WRAPPERS.sub("", left), tuple(calls))


def function_calls(text: str, drops: Drops) -> Found:
    """`<function=name>` with `<parameter=key>value</parameter>` lines and `</function>`.

    The arguments become the JSON of the parameters.
    """
    kept: list[str] = []
    calls: list[ToolCall] = []
    position = 0
    for match in _FUNCTION.finditer(text):
        if match.start() < position:
            continue
        parsed = _parameters_at(text, match.end())
        if parsed is None:
            drops.note("malformed call kept as text")
            continue
        arguments = json.dumps(parsed[0], ensure_ascii=False)
        calls.append(ToolCall(name=match[1], arguments=arguments, from_object=True))
        kept.append(text[position : match.start()].rstrip())
        position = parsed[1]
    if not calls:
        return Found(text, ())
    return Found("".join([*kept, text[position:].rstrip()]), tuple(calls))


def _parameters_at(text: str, position: int) -> tuple[dict[str, str], int] | None:
    parameters: dict[str, str] = {}
    while True:
        position = _skip_space(text, position)
        if text.startswith("</function>", position):
            return parameters, position + len("</function>")
        begin = _PARAMETER.match(text, position)
        end = _PARAMETER_END.search(text, begin.end()) if begin else None
        if begin is None or end is None or begin[1] in parameters:
            return None
        value = text[begin.end() : end.start()]
        if begin[1] in _PADDED_PARAMETERS:
            value = value.removeprefix("\n").removesuffix("\n")
        parameters[begin[1]] = value
        position = end.end()


def command_call(text: str, drops: Drops) -> Found:
    """SWE-agent text action: the last code fence, or `<command>`; the first word is the tool."""
    pattern = _COMMAND if "<command>" in text else _TICKS
    matches = list(pattern.finditer(text))
    if not matches:
        return Found(text, ())
    match = matches[-1]
    if pattern is _COMMAND:
        return _taken_out(text, match, "", match[1])
    return _taken_out(text, match, match[1], match[2])


def fenced_command(text: str, drops: Drops) -> Found:
    """mini-swe-agent action: exactly one fenced command; its harness refuses any other number."""
    matches = list(_MINI_TICKS.finditer(text))
    if len(matches) != 1:
        drops.note(f"turn with {len(matches)} fenced commands: no call")
        return Found(text, ())
    return _taken_out(text, matches[0], matches[0][1], matches[0][2])


def _taken_out(text: str, match: re.Match[str], language: str, body: str) -> Found:
    name, arguments = language, body
    if not language:
        words = body.split(None, 1)
        name = words[0] if words else ""
        arguments = words[1].rstrip() if len(words) > 1 else ""
    if not name:
        return Found(text, ())
    before, after = text[: match.start()].rstrip(), text[match.end() :].rstrip()
    return Found(before + after, (ToolCall(name=name, arguments=arguments),))


def observation(message: Message, pending: tuple[ToolCall, ...], drops: Drops) -> list[Message]:
    """A user turn after an action is its observation; without one, a harness's complaint."""
    if not pending:
        return [message.model_copy(update={"genuine": False})]
    text = message.text
    for head in _OBSERVATION_HEADS:
        if text.startswith(head):
            text = text.removeprefix(head)
            drops.drop_characters("markup", len(head))
            break
    return [
        Message(role="tool", text=text, name=pending[0].name, source_index=message.source_index)
    ]


def tagged_results(message: Message, pending: tuple[ToolCall, ...], drops: Drops) -> list[Message]:
    """`<tool_response>` blocks of a user turn; what stands around them is the harness's."""
    opening, closing = "<tool_response>", "</tool_response>"
    first, *blocks = message.text.split(opening)
    if not blocks:
        return [message.model_copy(update={"genuine": False})]
    results: list[Message] = []
    outside = [first]
    markup = len(opening) * len(blocks)
    for block, call in zip(blocks, chain(pending, repeat(None)), strict=False):
        inside, closed, after = block.rpartition(closing)
        if not closed:
            inside, after = block, ""
        text = inside.removeprefix("\n").removesuffix("\n")
        markup += len(closed) + len(inside) - len(text)
        outside.append(after)
        results.append(
            Message(
                role="tool",
                text=text,
                name=call.name if call else "",
                source_index=message.source_index,
            )
        )
    for text in outside:
        if text.strip():
            results.append(message.model_copy(update={"text": text, "genuine": False}))
        else:
            markup += len(text)
    drops.drop_characters("markup", markup)
    return results

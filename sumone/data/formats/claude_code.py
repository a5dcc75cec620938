"""Claude Code sessions: JSON lines, one event a line, a tree by `parentUuid`.

One answer stands on several lines with the same message id and becomes one message, so parallel
calls stay together with their results. Turns that the user took back leave a dead branch, which
is dropped. Subagent lines are trajectories of their own. `toolUseResult` repeats each result in
another form.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sumone.data.formats.anthropic_messages import assistant_message, user_messages
from sumone.data.formats.fields import as_text, drop_rest, trajectory_of
from sumone.data.report import Drops, Report, message_characters
from sumone.data.source import Record
from sumone.types import Message, Trajectory

__all__ = ["NAME", "matches", "read_session"]

NAME = "claude-code"

_COMMAND = "<command-name>"


@dataclass(slots=True)
class _Line:
    """One line of the conversation, or a link between two of them."""

    uuid: str
    parent: str
    answer: str
    """Id of the answer that an assistant line is part of."""
    agent: str = ""
    """Subagent that the line belongs to, empty for the main session."""
    messages: list[Message] = field(default_factory=list)

    @property
    def is_prompt(self) -> bool:
        """A request that somebody typed: no result, no command of the harness."""
        return any(m.role == "user" and m.genuine for m in self.messages) and not any(
            m.text.lstrip().startswith("<") for m in self.messages
        )


def matches(record: Mapping[str, Any]) -> bool:
    """Whether a record is a line of a session that somebody says something in."""
    return record.get("type") in ("user", "assistant") and isinstance(record.get("message"), dict)


def read_session(records: Iterable[Record], report: Report) -> Iterator[Trajectory]:
    """The main conversation, then each subagent's that stands in the same file."""
    lines: list[_Line] = []
    agents: dict[str, str] = {}
    session = project = ""
    last: Record | None = None
    for record in records:
        value = record.value
        report.take_in(value)
        last = record
        session = as_text(value.get("sessionId") or value.get("session_id")) or session
        project = project or _last_part(as_text(value.get("cwd")))
        uuid = as_text(value.get("uuid"))
        if uuid and uuid in agents:
            report.drops.drop("copy", value)
            continue
        after_command = bool(lines) and any(_COMMAND in m.text for m in lines[-1].messages)
        line = _read_line(record, report.drops, after_command=after_command)
        line.agent = _agent_of(value, line, agents)
        agents[uuid] = line.agent
        lines.append(line)
    if last is None:
        return
    _drop_branches(lines, report.drops)
    by_agent: dict[str, list[_Line]] = defaultdict(list)
    for line in lines:
        if line.messages:
            by_agent[line.agent].append(line)
    for agent, own in sorted(by_agent.items(), key=lambda item: item[0] != ""):
        yield trajectory_of(
            _merged(own),
            last._replace(alone=True),
            format=NAME,
            domain="coding",
            task=project,
            name=".".join(part for part in (session, agent) if part),
            unique=bool(session),
        )


def _last_part(folder: str) -> str:
    return folder.replace("\\", "/").rstrip("/").rpartition("/")[2]


def _agent_of(value: Mapping[str, Any], line: _Line, agents: Mapping[str, str]) -> str:
    """The subagent of a line; old sessions tell it only by the tree."""
    parent_call = as_text(value.get("parent_tool_use_id"))
    if value.get("isSidechain") is not True and not parent_call:
        return ""
    named = as_text(value.get("agentId")) or parent_call
    return named or agents.get(line.parent) or line.uuid or "sidechain"


def _read_line(record: Record, drops: Drops, *, after_command: bool) -> _Line:
    value = record.value
    message = value.get("message")
    line = _Line(
        uuid=as_text(value.get("uuid")),
        parent=as_text(value.get("parentUuid")) or as_text(value.get("logicalParentUuid")),
        answer=as_text(message.get("id")) if isinstance(message, dict) else "",
    )
    # The harness writes its own error notices as assistant turns.
    synthetic = value.get("isApiErrorMessage") is True or (
        isinstance(message, dict) and message.get("model") == "<synthetic>"
    )
    if not isinstance(message, dict) or not matches(value) or synthetic:
        drops.drop("noise", value)
        return line
    index = record.line - 1
    if value["type"] == "assistant":
        said = assistant_message(message, index, drops)
        line.messages = [said] if said else []
    else:
        line.messages = user_messages(message, index, drops)
    if value.get("isCompactSummary") is True:
        line.messages = [
            m.model_copy(update={"genuine": False, "memory": m.role == "user"})
            for m in line.messages
        ]
    elif value.get("isMeta") is True and not after_command:
        # Right after a slash command such a line is the prompt that the command stands for.
        line.messages = [m.model_copy(update={"genuine": m.role != "user"}) for m in line.messages]
    drop_rest(value, drops, used=("message",))
    return line


def _drop_branches(lines: list[_Line], drops: Drops) -> None:
    """Empty the lines below a prompt that the user replaced by a later one at the same place.

    Lines of one answer and their results also branch the tree, but none of them is a prompt.
    """
    children: dict[str, list[_Line]] = defaultdict(list)
    for line in lines:
        if line.parent:
            children[line.parent].append(line)
    dead: list[_Line] = []
    for siblings in children.values():
        prompts = [line for line in siblings if line.is_prompt]
        dead += prompts[:-1]
    while dead:
        line = dead.pop()
        drops.drop_characters("branch", message_characters(line.messages))
        line.messages = []
        if line.uuid:
            dead += children.pop(line.uuid, [])


def _merged(lines: list[_Line]) -> list[Message]:
    """Messages in file order; the lines of one answer become one message.

    Results may stand between the lines of an answer: they follow the whole answer.
    """
    messages: list[Message] = []
    answer, place = "", -1
    for line in lines:
        for message in line.messages:
            if message.role == "assistant":
                if line.answer and line.answer == answer:
                    before = messages[place]
                    messages[place] = before.model_copy(
                        update={
                            "text": before.text + message.text,
                            "calls": before.calls + message.calls,
                        }
                    )
                    continue
                answer, place = line.answer, len(messages)
            elif message.role == "user":
                answer = ""
            messages.append(message)
    return messages

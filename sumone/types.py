"""The nouns that cross files and networks: messages, trajectories, compaction instances.

Section 3.1 of the paper: a trajectory is an agent's messages in order; at a compaction it is
divided into the retained context C and the expired history H.
"""

import re
from typing import Literal, TypedDict

from pydantic import BaseModel, ConfigDict, field_validator

__all__ = [
    "ChatMessage",
    "CompactionInstance",
    "Message",
    "Role",
    "ToolCall",
    "Trajectory",
    "clean_text",
]

Role = Literal["system", "user", "assistant", "tool"]

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def clean_text(text: str) -> str:
    """Replace every lone surrogate by U+FFFD, one for one, so that the text can be encoded."""
    return _LONE_SURROGATE.sub("\ufffd", text)


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ChatMessage(TypedDict):
    """One message of a prompt to a model of ours (never an agent's own message)."""

    role: Literal["system", "user", "assistant"]
    content: str


class ToolCall(_Frozen):
    """One call of a tool by the assistant."""

    id: str = ""
    """Identifier that the result refers to; empty where the source has none."""
    name: str
    """Name of the tool, as the source spells it."""
    arguments: str = ""
    """Arguments as text: the source's own string (JSON on most wires, maybe invalid), or the
    JSON of the source's object."""
    from_object: bool = False
    """True where the source held the arguments as an object and `arguments` is its JSON."""

    @field_validator("id", "name", "arguments")
    @classmethod
    def _clean(cls, value: str) -> str:
        return clean_text(value)


class Message(_Frozen):
    """One message of an agent's conversation: the canonical record of every adapter."""

    role: Role
    """Who speaks. Observations are `tool` messages even where the source files them as user."""
    text: str = ""
    """What was said, without call markup, opaque blobs and images."""
    calls: tuple[ToolCall, ...] = ()
    """Calls made by an assistant message, in order."""
    call_id: str = ""
    """For a `tool` message: id of the call that it answers; empty where the source has none."""
    name: str = ""
    """For a `tool` message: name of the tool, where known."""
    is_error: bool = False
    """For a `tool` message: the source marks the result as an error."""
    genuine: bool = True
    """For a `user` message: typed by a person or the task; False for what a harness injects."""
    memory: bool = False
    """This message is a memory: the summary of an earlier compaction."""
    pinned: bool = False
    """Belongs to the retained context whatever its age (for example a demonstration)."""
    source_index: int = -1
    """Position of the record in its source (line or list index, from 0); -1 if made here."""

    @field_validator("text", "call_id", "name")
    @classmethod
    def _clean(cls, value: str) -> str:
        return clean_text(value)


class Trajectory(_Frozen):
    """An agent's messages in order, with where they came from."""

    id: str
    """Stable identifier: the source's own, or a hash of the contents."""
    format: str
    """Name of the adapter that read it, for example `swe-agent`."""
    source: str
    """File (and row) it was read from."""
    domain: str = ""
    """What the agent was doing: `coding`, `search`, `operations`, `support`, ... ; may be empty."""
    task: str = ""
    """What splits train from held-out: repository, question or task id; empty if unknown."""
    messages: tuple[Message, ...]
    """The conversation in order."""


class CompactionInstance(_Frozen):
    """One compaction: the context C that stays and the history H that is replaced (Equation 1)."""

    id: str
    """Stable identifier (content hash for training data)."""
    source: str = ""
    """Where the trajectory came from."""
    domain: str = ""
    """Domain of the trajectory."""
    task: str = ""
    """Task of the trajectory; train and held-out never share one."""
    preamble: tuple[Message, ...]
    """System message, first genuine user task, kept messages: stays verbatim, first."""
    memory: tuple[Message, ...] = ()
    """Summary of the previous compaction (none or one message); replaced by the next summary."""
    history: tuple[Message, ...]
    """The expired history H."""
    recent: tuple[Message, ...] = ()
    """The last messages; stay verbatim, last."""
    extract: str | None = None
    """The perfect extract, where the generator of the data knows one: the upper reference of an
    evaluation. Training never reads it."""

    @property
    def context(self) -> tuple[Message, ...]:
        """C without the memory: what the reconstructor and the agent see verbatim."""
        return self.preamble + self.recent

    @property
    def expired(self) -> tuple[Message, ...]:
        """Memory, then H: what a compaction replaces, and what the blocks are drawn from."""
        return self.memory + self.history

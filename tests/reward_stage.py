"""A small instance, a configuration, and a server that plays reconstructor and judge."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fake_openai import FakeOpenAI, Received, Reply

from sumone.config import TrainConfig
from sumone.masking import Block, partition
from sumone.prompts import answer_tags
from sumone.tokens import ByteEstimate
from sumone.types import CompactionInstance, Message

TOKENS = ByteEstimate()
BLOCK_TOKENS = 16

Part = Callable[[Received], Reply]


def make_instance(number: int = 0, *, steps: int = 16, memory: str = "") -> CompactionInstance:
    history = tuple(
        Message(role="assistant", text=f"step {n}: value {number * 1000 + n * 37} was seen")
        for n in range(steps)
    )
    return CompactionInstance(
        id=f"instance-{number}",
        preamble=(
            Message(role="system", text="You operate."),
            Message(role="user", text="Find the fault."),
        ),
        memory=(Message(role="user", text=memory, memory=True),) if memory else (),
        history=history,
        recent=(Message(role="user", text="go on"),),
    )


def blocks_of(instance: CompactionInstance) -> tuple[Block, ...]:
    return partition(instance.expired, block_tokens=BLOCK_TOKENS, tokens=TOKENS)


def requested(request: Received) -> tuple[list[int], str]:
    """Blocks that a reconstruction prompt asks for, and the nonce."""
    line = request.body["messages"][-1]["content"].rsplit("Restore:", 1)[1]
    found = re.findall(r'<missing block="(\d+)" key="([0-9a-f]+)"/>', line)
    return [int(index) for index, _ in found], found[0][1]


def tagged(guesses: dict[int, str], nonce: str) -> str:
    parts = []
    for index, guess in guesses.items():
        opening, closing = answer_tags(index, nonce)
        parts.append(f"{opening}\n{guess}\n{closing}")
    return "\n".join(parts)


def perfect(*instances: CompactionInstance) -> Part:
    """A reconstructor that knows the truth of these instances."""
    known = {instance.history[0].text: blocks_of(instance) for instance in instances}

    def answer(request: Received) -> Reply:
        indices, nonce = requested(request)
        (blocks,) = [b for b in known.values() if any(_seen(x.text, request) for x in b)][:1]
        return tagged({index: blocks[index].text for index in indices}, nonce)

    def _seen(text: str, request: Received) -> bool:
        return text in request.body["messages"][-1]["content"]

    return answer


def verdict(precision: float = 0.6, recall: float = 0.8) -> Part:
    return lambda _: f'{{"precision": {precision}, "recall": {recall}}}'


class Stage:
    """The server, and a configuration that uses it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reconstruct: Part = perfect(make_instance())
        self.judge: Part = verdict()
        self.server = FakeOpenAI(self._answer)

    def _answer(self, request: Received) -> Reply:
        return (self.judge if request.body["model"] == "judge" else self.reconstruct)(request)

    def calls(self, model: str) -> list[Received]:
        return [r for r in self.server.requests if r.body.get("model") == model]

    def config(self, **changes: Any) -> TrainConfig:
        """Changes by dotted names, with `__` for the dots."""
        limits = {"call_timeout_seconds": 60, "max_retries": 0}
        tree: dict[str, Any] = {
            "output_dir": str(self.folder),
            "policy": {"path": "none"},
            "reconstructor": {
                "endpoint": {"base_url": self.server.url, "model": "recon"},
                "limits": dict(limits),
            },
            "judge": {
                "model": {
                    "endpoint": {"base_url": self.server.url, "model": "judge"},
                    "limits": dict(limits),
                }
            },
            "data": {"train": "none", "heldout": "none"},
            "masking": {"block_tokens": BLOCK_TOKENS},
            "reward": {"budget_tokens": 100},
        }
        for name, value in changes.items():
            *path, last = name.split("__")
            place = tree
            for part in path:
                place = place.setdefault(part, {})
            place[last] = value
        return TrainConfig.model_validate(tree)

"""What the engine scores and what it says: rollouts, their blocks, their scores."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from sumone.types import CompactionInstance

__all__ = ["BlockScore", "BlockStatus", "Measured", "Objective", "Rollout", "RolloutScore"]

BlockStatus = Literal["judged", "unrecoverable", "empty", "lost", "invalid", "missing"]
"""judged: by the judge; unrecoverable, empty: (0, 0) without a judge; lost: no reconstruction
after the second try; invalid: no valid verdict after the second try; missing: the deadline came
first."""


class Rollout(NamedTuple):
    """One summary to score."""

    instance: CompactionInstance
    """What was compacted."""
    summary: str
    """S."""
    num_tokens: int
    """|S| in the policy's tokens."""
    step: int
    """Training step: fixes the mask together with instance and seed."""


@dataclass(frozen=True, slots=True)
class BlockScore:
    """One hidden block of one rollout."""

    index: int
    """Position of the block in the history."""
    truth: str
    """Its text."""
    prediction: str | None
    """The reconstruction; None if there is none."""
    precision: float | None
    """p_i; None if the block has no valid verdict."""
    recall: float | None
    """r_i; None if the block has no valid verdict."""
    status: BlockStatus
    """How the block ended."""


@dataclass(frozen=True, slots=True)
class RolloutScore:
    """The reward of one rollout, or why there is none."""

    value: float | None
    """R(S) (Equation 6) on a grid of 2^-16; None: it could not be computed, which is never a 0."""
    quality: float | None = None
    """Q(S) (Equation 5), or the gain in nats per token; None without a reward."""
    penalty: float | None = None
    """lambda |S| / L_max."""
    precision: float | None = None
    """Mean p_i over the judged blocks."""
    recall: float | None = None
    """Mean r_i over the judged blocks."""
    num_summary_tokens: int = 0
    """|S|."""
    blocks: tuple[BlockScore, ...] = ()
    """The hidden blocks, in order; empty for an objective without blocks."""
    failure: str | None = None
    """Why there is no reward."""
    latency: float = 0.0
    """Seconds from the start of the rollout's scoring to its score."""


@dataclass(slots=True)
class Measured:
    """What an objective found out about a summary, filled while it works: a deadline leaves what
    was known by then."""

    quality: float | None = None
    """Q(S) or what stands for it; None: not measured."""
    precision: float | None = None
    recall: float | None = None
    blocks: list[BlockScore] = field(default_factory=list)
    failure: str | None = None


class Objective(Protocol):
    """One of the rewards: measures the quality of a summary."""

    async def start(self) -> None:
        """Check that it can work; ConfigError says why not."""
        ...

    async def measure(self, rollout: Rollout, into: Measured) -> None:
        """Fill `into`. Raises ModelError when a call failed for good."""
        ...

    def conclude(self, into: Measured) -> None:
        """Turn what was filled in into a quality, or a failure that says why there is none."""
        ...

    def counters(self) -> dict[str, float]:
        """Counts since the start, by metric name."""
        ...

    async def aclose(self) -> None:
        """Close models and caches."""
        ...

"""A scorer whose values a test chooses: what the reward engine would say, said by hand."""

from collections.abc import Callable, Sequence

from sumone.reward import Rollout, RolloutScore


class ScriptedScorer:
    """Scores the k-th rollout of a call with the k-th value, over and over; None is a failure."""

    def __init__(self, values: Sequence[float | None], length_penalty: float = 0.0) -> None:
        self.values = list(values)
        self.length_penalty = length_penalty
        self.seen: list[Rollout] = []

    async def score(self, rollouts: Sequence[Rollout]) -> list[RolloutScore]:
        self.seen += rollouts
        return [self._score(self.values[k % len(self.values)], r) for k, r in enumerate(rollouts)]

    def _score(self, value: float | None, rollout: Rollout) -> RolloutScore:
        if value is None:
            return RolloutScore(None, num_summary_tokens=rollout.num_tokens, failure="scripted")
        return RolloutScore(
            value,
            quality=value + self.length_penalty,
            penalty=self.length_penalty,
            precision=0.5,
            recall=0.25,
            num_summary_tokens=rollout.num_tokens,
        )

    def metrics(self) -> dict[str, float]:
        return {"rollouts": float(len(self.seen))}


ScorerFactory = Callable[..., ScriptedScorer]

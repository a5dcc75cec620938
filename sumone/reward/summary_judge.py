"""The ablation of Table 5: the judge grades the summary itself, nothing is reconstructed."""

from sumone.models.chat import ChatModel
from sumone.prompts import summary_judge_prompt
from sumone.render import render_text
from sumone.reward.judge import LlmJudge
from sumone.reward.reconstruction import quality
from sumone.reward.rollout import Measured, Rollout
from sumone.reward.verdicts import VerdictCache

__all__ = ["SummaryJudge"]


class SummaryJudge:
    """Q(S) = precision + recall of the summary against the expired text, as the judge sees it."""

    def __init__(self, model: ChatModel, *, max_output_tokens: int, cache: VerdictCache) -> None:
        self._judge = LlmJudge(
            model,
            max_output_tokens=max_output_tokens,
            cache=cache,
            prompt=summary_judge_prompt,
        )

    async def start(self) -> None:
        """Nothing to check: the model is opened when it is built."""

    async def measure(self, rollout: Rollout, into: Measured) -> None:
        """Ask for the grade; an empty summary has precision and recall 0."""
        expired = render_text(rollout.instance.expired)
        score = await self._judge.score(expired, rollout.summary)
        if score is None:
            into.failure = "the judge gave no valid verdict in two tries"
            return
        into.precision, into.recall = score
        into.quality = quality([score])

    def conclude(self, into: Measured) -> None:
        """Nothing to add: there are no blocks."""

    def counters(self) -> dict[str, float]:
        """Calls and verdicts."""
        return {f"judge/{name}": count for name, count in self._judge.counters().items()}

    async def aclose(self) -> None:
        """Close the judge."""
        await self._judge.aclose()

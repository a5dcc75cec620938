"""Beyond the paper: how many nats per token the summary adds to the hidden blocks (Equation 4).

The reconstructor's teacher-forced log-likelihood of the hidden blocks with S minus without S, by
prefill instead of decoding: a one-sample estimate of the mutual information of Equation 4.
"""

import asyncio
from collections import OrderedDict

from sumone.models.likelihood import Answer, Likelihood, likelihood_model
from sumone.prompts import answer_tags
from sumone.reward.masked import MaskedHistory, Masker
from sumone.reward.reconstructor import Reconstructor
from sumone.reward.rollout import BlockScore, Measured, Rollout

__all__ = ["InformationGain"]

_REMEMBERED = 4096
"""Masked histories whose likelihood without a summary is kept."""

_Task = asyncio.Task[list[Likelihood]]


class InformationGain:
    """Gain in nats per token of the hidden blocks; may be negative for a misleading summary."""

    def __init__(self, reconstructor: Reconstructor, masker: Masker) -> None:
        """ConfigError if the reconstructor is a model that cannot score answers."""
        self.reconstructor = reconstructor
        self.masker = masker
        self._model = likelihood_model(reconstructor.model)
        self._without: OrderedDict[tuple[str, int], _Task] = OrderedDict()
        self.num_scored = 0
        """Blocks whose likelihood was asked for."""

    async def start(self) -> None:
        """ConfigError if the endpoint does not give the likelihoods of a prompt."""
        await self._model.check_likelihoods()

    async def measure(self, rollout: Rollout, into: Measured) -> None:
        """Gain over all hidden blocks together: every token weighs the same."""
        masked = self.masker.mask(rollout.instance, rollout.step)
        without = self._without_summary((rollout.instance.id, rollout.step), masked)
        # Shielded: other samples of the prompt wait for it too.
        before, after = await asyncio.gather(
            asyncio.shield(without), self._score(masked, rollout.summary)
        )
        num_tokens = sum(one.num_tokens for one in after)
        if not num_tokens:
            into.failure = "the hidden blocks have no tokens"
            return
        into.quality = sum(a.nats - b.nats for a, b in zip(after, before, strict=True)) / num_tokens
        into.blocks = [
            BlockScore(block.index, block.text, None, None, None, "judged")
            for block in masked.hidden
        ]

    def _without_summary(self, key: tuple[str, int], masked: MaskedHistory) -> _Task:
        task = self._without.get(key)
        failed = task is not None and task.done() and (task.cancelled() or task.exception())
        if task is None or failed or task.get_loop() is not asyncio.get_running_loop():
            task = asyncio.create_task(self._score(masked, ""))
            self._without[key] = task
            if len(self._without) > _REMEMBERED:
                self._without.popitem(last=False)
        return task

    async def _score(self, masked: MaskedHistory, summary: str) -> list[Likelihood]:
        answers: list[Answer] = []
        for block in masked.hidden:
            prompt = self.reconstructor.prompt(masked, summary, [block])
            opening = ""
            if self.reconstructor.style == "standard":
                opening = answer_tags(block.index, masked.nonce)[0] + "\n"
            answers.append(Answer(prompt, opening, block.text))
        self.num_scored += len(answers)
        return await self._model.log_likelihoods(answers)

    def conclude(self, into: Measured) -> None:
        """Nothing to add: the gain is over all blocks or not known."""

    def counters(self) -> dict[str, float]:
        """Blocks scored."""
        return {"reconstructor/scored_blocks": float(self.num_scored)}

    async def aclose(self) -> None:
        """Close the reconstructor."""
        await self.reconstructor.model.aclose()

"""The paper's objective: reconstruct the hidden blocks from the summary, then judge them."""

import asyncio
from collections import Counter
from statistics import fmean

from sumone.errors import ModelError
from sumone.masking import Block
from sumone.reward.masked import Masker
from sumone.reward.reconstruction import enough_judged, quality
from sumone.reward.reconstructor import Reconstructor, is_unrecoverable
from sumone.reward.rollout import BlockScore, BlockStatus, Measured, Rollout
from sumone.reward.score import Judge, Score

__all__ = ["ReconstructionObjective"]


class ReconstructionObjective:
    """Q(S) by reconstruction and judging; each block is judged as soon as it is reconstructed."""

    def __init__(
        self, reconstructor: Reconstructor, judge: Judge, masker: Masker, *, min_judged: float
    ) -> None:
        self.reconstructor = reconstructor
        self.judge = judge
        self.masker = masker
        self._min_judged = min_judged
        self._statuses: Counter[str] = Counter()

    async def start(self) -> None:
        """Nothing to check: models are opened when they are built."""

    async def measure(self, rollout: Rollout, into: Measured) -> None:
        """Fill in the block scores, in the order in which they become known."""
        masked = self.masker.mask(rollout.instance, rollout.step)
        into.blocks = [
            BlockScore(block.index, block.text, None, None, None, "missing")
            for block in masked.hidden
        ]
        places = {block.index: place for place, block in enumerate(masked.hidden)}

        def settle(
            block: Block, prediction: str | None, score: Score | None, status: BlockStatus
        ) -> None:
            precision, recall = score if score else (None, None)
            into.blocks[places[block.index]] = BlockScore(
                block.index, block.text, prediction, precision, recall, status
            )

        async def judge(block: Block, prediction: str) -> None:
            try:
                score = await self.judge.score(block.text, prediction)
            except ModelError:
                score = None
            settle(block, prediction, score, "invalid" if score is None else "judged")

        async with asyncio.TaskGroup() as group:

            def on_guess(block: Block, prediction: str | None) -> None:
                if prediction is None:
                    settle(block, None, None, "lost")
                elif not prediction.strip():
                    settle(block, prediction, Score(0.0, 0.0), "empty")
                elif is_unrecoverable(prediction):
                    settle(block, prediction, Score(0.0, 0.0), "unrecoverable")
                else:
                    group.create_task(judge(block, prediction))

            await self.reconstructor.fill(masked, rollout.summary, on_guess)

    def conclude(self, into: Measured) -> None:
        """Mean over the blocks that have a verdict, if they are enough."""
        self._statuses.update(block.status for block in into.blocks)
        scores = [
            Score(block.precision, block.recall)
            for block in into.blocks
            if block.precision is not None and block.recall is not None
        ]
        if not enough_judged(len(scores), len(into.blocks), self._min_judged):
            counts = Counter(block.status for block in into.blocks)
            told = ", ".join(f"{count} {status}" for status, count in counts.items())
            found = f"{len(scores)} of {len(into.blocks)} blocks have a verdict ({told})"
            into.failure = f"{into.failure}; {found}" if into.failure else found
            return
        into.failure = None
        into.quality = quality(scores)
        into.precision = fmean(score.precision for score in scores)
        into.recall = fmean(score.recall for score in scores)

    def counters(self) -> dict[str, float]:
        """Blocks by status, calls, and verdicts."""
        found: dict[str, float] = {
            f"blocks/{status}": float(count) for status, count in self._statuses.items()
        }
        found["reconstructor/calls"] = self.reconstructor.num_calls
        found["reconstructor/failed"] = self.reconstructor.num_failed
        found |= {f"judge/{name}": count for name, count in self.judge.counters().items()}
        return found

    async def aclose(self) -> None:
        """Close the reconstructor and the judge."""
        await self.reconstructor.model.aclose()
        await self.judge.aclose()

"""The reward: masked reconstruction, judged (Section 3.3)."""

from sumone.reward.build import build_engine
from sumone.reward.engine import BlockScore, RewardEngine, Rollout, RolloutScore
from sumone.reward.lexical import LexicalJudge, TokenWeights

__all__ = [
    "BlockScore",
    "LexicalJudge",
    "RewardEngine",
    "Rollout",
    "RolloutScore",
    "TokenWeights",
    "build_engine",
]

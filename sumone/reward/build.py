"""A reward engine from a training configuration."""

from collections.abc import Iterable
from pathlib import Path

from sumone.config import JudgeSettings, LimitSettings, ModelSettings, TrainConfig
from sumone.errors import ConfigError
from sumone.models.chat import open_model
from sumone.reward.engine import RewardEngine
from sumone.reward.information_gain import InformationGain
from sumone.reward.judge import LlmJudge
from sumone.reward.lexical import LexicalJudge, TokenWeights
from sumone.reward.masked import Masker
from sumone.reward.objective import ReconstructionObjective
from sumone.reward.reconstructor import Reconstructor
from sumone.reward.rollout import Objective
from sumone.reward.score import Judge
from sumone.reward.summary_judge import SummaryJudge
from sumone.reward.verdicts import VerdictCache
from sumone.tokens import Tokens

__all__ = ["build_engine"]


def build_engine(
    config: TrainConfig, tokens: Tokens, histories: Iterable[str], *, world_size: int = 1
) -> RewardEngine:
    """The engine of a run.

    `tokens` are the reconstructor's: they size the blocks. `histories` are the rendered training
    histories; only the `idf` weighting reads them. Limits hold for the whole job, so each of
    `world_size` processes gets its share. Raises ConfigError for a model that cannot be opened.
    """
    return RewardEngine(_objective(config, tokens, histories, world_size), config.reward)


def _objective(
    config: TrainConfig, tokens: Tokens, histories: Iterable[str], world_size: int
) -> Objective:
    if config.reward.objective == "summary_judge":
        settings = _share(_judge_model(config.judge, "objective summary_judge"), world_size)
        return SummaryJudge(
            open_model(settings),
            max_output_tokens=config.judge.max_output_tokens,
            cache=_cache(config),
        )
    masker = Masker(config.masking, tokens, seed=config.seed, memory=config.compaction.memory)
    reconstructor = Reconstructor(
        open_model(_share(config.reconstructor, world_size)),
        config.reconstructor,
        config.prompts,
    )
    if config.reward.objective == "information_gain":
        return InformationGain(reconstructor, masker)
    return ReconstructionObjective(
        reconstructor,
        _judge(config, histories, world_size),
        masker,
        min_judged=config.reward.min_judged,
    )


def _judge(config: TrainConfig, histories: Iterable[str], world_size: int) -> Judge:
    if config.judge.kind == "lexical":
        weighted = config.judge.weighting == "idf"
        return LexicalJudge(TokenWeights.of(histories) if weighted else None)
    settings = _share(_judge_model(config.judge, "judge.kind llm"), world_size)
    return LlmJudge(
        open_model(settings),
        max_output_tokens=config.judge.max_output_tokens,
        cache=_cache(config),
    )


def _judge_model(settings: JudgeSettings, user: str) -> ModelSettings:
    if settings.model is None:
        raise ConfigError(
            f"{user} needs judge.model (an endpoint or a folder); "
            "judge.kind: lexical needs no model"
        )
    return settings.model


def _cache(config: TrainConfig) -> VerdictCache:
    return VerdictCache(config.judge.cache or Path(config.output_dir) / "verdicts.sqlite")


def _share(settings: ModelSettings, world_size: int) -> ModelSettings:
    """The limits of one of `world_size` processes."""

    def share(limit: int | None) -> int | None:
        return None if limit is None else max(1, limit // world_size)

    limits: LimitSettings = settings.limits
    return settings.model_copy(
        update={
            "limits": limits.model_copy(
                update={
                    "concurrency": share(limits.concurrency),
                    "requests_per_minute": share(limits.requests_per_minute),
                    "tokens_per_minute": share(limits.tokens_per_minute),
                }
            )
        }
    )

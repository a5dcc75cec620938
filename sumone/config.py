"""Every setting, its default and its meaning: one YAML file, `key=value` overrides, one tree.

The `grpo` block goes verbatim to `trl.GRPOConfig`; everything else is checked here. Unknown keys
are errors.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from yaml import YAMLError

from sumone.errors import ConfigError

__all__ = [
    "CompactionSettings",
    "DataConfig",
    "DataSettings",
    "EndpointSettings",
    "EvaluationSettings",
    "JudgeSettings",
    "LimitSettings",
    "LoraSettings",
    "MaskingSettings",
    "ModelSettings",
    "PolicySettings",
    "ReconstructorSettings",
    "RewardSettings",
    "TrainConfig",
    "load_data_config",
    "load_train_config",
]


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class CompactionSettings(_Settings):
    """How a message list is divided; the exported checkpoint carries these settings."""

    threshold_tokens: int = Field(default=32768, ge=1)
    """Size of the context, in tokens, at which a compaction happens."""
    recent_tokens: int = Field(default=4096, ge=0)
    """The last messages stay verbatim up to this many tokens (at least one atomic unit)."""
    keep_user_tokens: int = Field(default=2048, ge=0)
    """Genuine user messages of the expired part stay verbatim up to this many tokens."""
    memory: Literal["replace", "keep"] = "replace"
    """`replace`: blocks are drawn from memory + history and the reconstructor does not see the
    old memory (the memory rule). `keep`: Equation 1 to the letter, the old memory stays in C."""


class MaskingSettings(_Settings):
    """Section 3.2, Equation 2."""

    block_tokens: int = Field(default=512, ge=4)
    """Target size of a block in the reconstructor's tokens."""
    ratio: float = Field(default=0.5, gt=0, le=1)
    """Share of the blocks that is hidden."""


class EndpointSettings(_Settings):
    """One OpenAI-compatible endpoint."""

    base_url: str
    """Address up to and including `/v1`."""
    model: str
    """Model name as the endpoint knows it."""
    api_key_env: str = ""
    """Environment variable that holds the key; empty for endpoints without one."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Further fields of each request, e.g. `chat_template_kwargs: {enable_thinking: false}`."""


class LimitSettings(_Settings):
    """Limits of one endpoint, for the whole training job."""

    concurrency: int = Field(default=64, ge=1)
    """Calls in flight at a time."""
    requests_per_minute: int | None = Field(default=None, ge=1)
    """Calls started within a minute; none: no limit."""
    tokens_per_minute: int | None = Field(default=None, ge=1)
    """Prompt plus allowed output tokens of the calls started within a minute; none: no limit."""
    call_timeout_seconds: float = Field(default=120.0, gt=0)
    """Longest wait for one call, retries apart."""
    max_retries: int = Field(default=3, ge=0)
    """Retries of a refused or broken call (429, 5xx, connection), with the server's Retry-After."""


class ModelSettings(_Settings):
    """A frozen model: in this process (`path`) or behind an endpoint (`endpoint`)."""

    path: str | None = None
    """Folder of a transformers model, run in this process."""
    endpoint: EndpointSettings | None = None
    """Endpoint that serves the model."""
    limits: LimitSettings = LimitSettings()
    """Limits of the endpoint."""
    batch_size: int = Field(default=64, ge=1)
    """Sequences decoded together when the model runs in this process."""
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "auto"
    """Data type of the weights in this process; `auto`: float32 on CPU, bfloat16 on GPU."""


class ReconstructorSettings(ModelSettings):
    """The frozen reconstructor D (Equation 3)."""

    blocks_per_call: int = Field(default=4, ge=1)
    """Masked blocks asked for in one call."""
    output_ratio: float = Field(default=1.25, gt=0)
    """Allowed output of a call as a multiple of the masked tokens it asks for."""
    max_model_tokens: int = Field(default=262144, ge=1)
    """Window of the reconstructor: prompt and output together."""


class JudgeSettings(_Settings):
    """What scores a reconstructed block against the true one (Section 3.3)."""

    kind: Literal["llm", "lexical"] = "llm"
    """`llm`: a judge model. `lexical`: token-level longest common subsequence, no model."""
    weighting: Literal["uniform", "idf"] = "uniform"
    """`lexical` only. `idf`: tokens weigh by inverse document frequency over the training
    histories, so predictable boilerplate earns little."""
    model: ModelSettings | None = None
    """The judge model (`llm` and the objective `summary_judge`)."""
    max_output_tokens: int = Field(default=512, ge=1)
    """Allowed output of a verdict."""
    cache: str | None = None
    """SQLite file of past verdicts; none: kept in the run folder."""


class RewardSettings(_Settings):
    """Section 3.3, Equations 5 and 6, and the deadlines around them."""

    objective: Literal["reconstruction", "summary_judge", "information_gain"] = "reconstruction"
    """Which reward: the paper's, the ablation of Table 5, or the likelihood gain (Equation 4)."""
    budget_tokens: int = Field(default=2048, ge=1)
    """L_max: longest summary in the policy's tokens."""
    length_penalty: float = Field(default=0.1, ge=0)
    """lambda of Equation 6 (for `information_gain`: in nats per token)."""
    min_judged: float = Field(default=0.9, ge=0, le=1)
    """Smallest share of masked blocks with a valid verdict; below it the reward is None."""
    rollout_deadline_seconds: float = Field(default=600.0, gt=0)
    """Longest time for one rollout; then its reward is None, unless `min_judged` of its blocks
    have a verdict by then."""
    batch_deadline_seconds: float = Field(default=900.0, gt=0)
    """Longest time for all rollouts of a step; then what is missing is None."""
    max_failed_share: float = Field(default=0.5, ge=0, le=1)
    """A step in which more than this share of the rollouts has no reward counts as failed."""
    max_failed_steps: int = Field(default=5, ge=1)
    """So many failed steps in a row stop the run with a checkpoint."""
    round_digits: int | None = Field(default=None, ge=0)
    """Round rewards to this many decimals so that ties stay ties; none: no rounding."""


class LoraSettings(_Settings):
    """Train a low-rank adapter instead of all weights."""

    rank: int = Field(default=16, ge=1)
    """Rank of the adapter."""
    alpha: int = Field(default=32, ge=1)
    """Scale of the adapter."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout inside the adapter."""
    target_modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
    """Names of the linear layers that get an adapter."""


class PolicySettings(_Settings):
    """The summarizer that is trained."""

    path: str
    """Folder (or hub name) of the starting weights."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Data type of the trained weights; on CPU float32 always."""
    lora: LoraSettings | None = None
    """Adapter settings; none: all weights are trained."""
    max_prompt_tokens: int = Field(default=40960, ge=1)
    """Longest prompt; an instance above it is an error before training starts."""


class DataSettings(_Settings):
    """The instances a run trains and is evaluated on."""

    train: str
    """JSONL file of training instances."""
    heldout: str
    """JSONL file of held-out instances: no task in common with `train`."""
    max_instances: int | None = Field(default=None, ge=1)
    """Use only the first so many training instances."""


class EvaluationSettings(_Settings):
    """The held-out evaluation: greedy, before, after and (optionally) during training."""

    num_instances: int = Field(default=128, ge=1)
    """Held-out instances evaluated."""
    every_steps: int | None = Field(default=None, ge=1)
    """Also evaluate every so many steps; none: only before and after."""
    controls: bool = True
    """Also score no summary, a shuffled one, the whole history and (where known) the perfect
    extract."""
    batch_size: int = Field(default=64, ge=1)
    """Summaries decoded together."""


class TrainConfig(_Settings):
    """A training run, whole."""

    seed: int = 0
    """Seed of masks, data order and sampling."""
    output_dir: str
    """The run folder."""
    prompts: Literal["standard", "short", "compact"] = "standard"
    """Prompt texts: `standard` for instruction models, `short` for small ones with short contexts,
    `compact` for the tiny models."""
    policy: PolicySettings
    """The summarizer."""
    reconstructor: ReconstructorSettings
    """The frozen reconstructor."""
    judge: JudgeSettings = JudgeSettings()
    """The judge."""
    data: DataSettings
    """Training and held-out instances."""
    compaction: CompactionSettings = CompactionSettings()
    """How the instances were cut; carried into the checkpoint."""
    masking: MaskingSettings = MaskingSettings()
    """Blocks and mask."""
    reward: RewardSettings = RewardSettings()
    """The reward."""
    evaluation: EvaluationSettings = EvaluationSettings()
    """The held-out evaluation."""
    prompts_per_step: int = Field(default=6, ge=1)
    """Prompts of one step; with `num_generations` it fixes the batch geometry."""
    completions_logged: int = Field(default=2, ge=0)
    """Completions a step that are written out with blocks, reconstructions and scores."""
    grpo: dict[str, Any] = Field(default_factory=dict)
    """Options of `trl.GRPOConfig`, verbatim."""

    def digested(self) -> dict[str, Any]:
        """All that changes results: model, data, masking, reward, grpo.

        Endpoint addresses, limits, deadlines, logging and save paths are outside it, so a run
        can resume on another machine.
        """
        chosen = self.model_dump(mode="json")
        for name in ("output_dir", "completions_logged", "evaluation"):
            chosen.pop(name)
        for name in _REWARD_OUTSIDE_DIGEST:
            chosen["reward"].pop(name)
        for model in (chosen["reconstructor"], chosen["judge"]["model"]):
            if model:
                for name in ("limits", "batch_size"):
                    model.pop(name)
                if model["endpoint"]:
                    model["endpoint"] = {"model": model["endpoint"]["model"]}
        chosen["judge"].pop("cache")
        for name in _GRPO_OUTSIDE_DIGEST:
            chosen["grpo"].pop(name, None)
        return chosen

    def digest(self) -> str:
        """Hash of `digested`; a resume with another one is refused."""
        text = json.dumps(self.digested(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


_REWARD_OUTSIDE_DIGEST = (
    "rollout_deadline_seconds", "batch_deadline_seconds", "max_failed_share", "max_failed_steps",
)  # fmt: skip
"""When to give up on a call or a run: outside the digest."""

_GRPO_OUTSIDE_DIGEST = (
    "output_dir", "report_to", "run_name", "project", "logging_steps", "logging_dir",
    "log_completions", "disable_tqdm", "save_steps", "save_strategy", "save_total_limit",
    "push_to_hub", "hub_model_id", "hub_private_repo", "hub_strategy", "ddp_timeout",
)  # fmt: skip
"""Options that change where a run writes and what it tells, not what it computes."""


class DataConfig(_Settings):
    """How `sumone data build` makes instances."""

    files: tuple[str, ...] = ()
    """Transcript files, folders or glob patterns; the command line adds to them."""
    output_dir: str
    """Folder for `train.jsonl`, `heldout.jsonl` and the report."""
    seed: int = 0
    """Seed of the selection."""
    tokenizer: str | None = None
    """Model folder or tokenizer file that counts; none: a byte estimate."""
    context_tokens: tuple[int, ...] = (16384, 32768)
    """Sizes at which a trajectory is compacted."""
    compaction: CompactionSettings = CompactionSettings()
    """How the context is cut; `threshold_tokens` is replaced by each of `context_tokens`."""
    memory_share: float = Field(default=0.3, ge=0, le=1)
    """Share of the instances that already contain a memory of an earlier compaction."""
    memory_budget_tokens: int = Field(default=2048, ge=1)
    """Longest memory made for such an instance."""
    memory_summarizer: ModelSettings | None = None
    """What writes that memory: an endpoint or a trained folder; none: the rule-based summarizer."""
    heldout_share: float = Field(default=0.1, ge=0, lt=1)
    """Share of the tasks that is held out."""
    max_per_domain: int | None = Field(default=None, ge=1)
    """Most instances of one domain; none: as many as the smallest domain's share allows."""
    max_per_trajectory: int = Field(default=4, ge=1)
    """Most instances cut from one trajectory."""
    min_history_tokens: int = Field(default=1024, ge=1)
    """Smallest history worth a compaction."""
    overshoot_ratio: float = Field(default=0.25, ge=0)
    """A context may pass its size by this share; where one huge message takes it further, there
    is no instance."""
    max_message_tokens: int | None = Field(default=None, ge=16)
    """Longer messages are shortened in the middle, with a note (for contexts that are smaller than
    one message of a real transcript); none: kept whole."""
    redact: bool = True
    """Replace home paths, e-mail addresses and secrets by typed placeholders."""


def load_train_config(path: str | Path, overrides: Sequence[str] = ()) -> TrainConfig:
    """Read a training configuration with `key=value` overrides; ConfigError says what is wrong."""
    return _load(TrainConfig, path, overrides)


def load_data_config(path: str | Path, overrides: Sequence[str] = ()) -> DataConfig:
    """Read a data-build configuration with `key=value` overrides."""
    return _load(DataConfig, path, overrides)


_T = TypeVar("_T", bound=BaseModel)


def _load(kind: type[_T], path: str | Path, overrides: Sequence[str]) -> _T:
    file = Path(path)
    if not file.is_file():
        raise ConfigError(f"no configuration file at {file}: give the path of a YAML file")
    for item in overrides:
        if "=" not in item:
            raise ConfigError(f"override {item!r} is not of the form key=value")
    try:
        loaded = OmegaConf.load(file)
        if not OmegaConf.is_dict(loaded):
            raise ConfigError(f"{file}: the top level must be a mapping of keys to values")
        merged = OmegaConf.merge(loaded, OmegaConf.from_dotlist(list(overrides)))
        tree = OmegaConf.to_container(merged, resolve=True)
    except ConfigError:
        raise
    except (OmegaConfBaseException, YAMLError, TypeError, ValueError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(_explain(file, kind, error)) from error


def _explain(file: Path, kind: type[BaseModel], error: ValidationError) -> str:
    lines = [f"{file}: {error.error_count()} problem(s) in the configuration"]
    for item in error.errors():
        where = ".".join(str(part) for part in item["loc"]) or "(the whole file)"
        if item["type"] == "extra_forbidden":
            names = ", ".join(sorted(_siblings(kind, item["loc"])))
            lines.append(f"  {where}: unknown key; known here: {names}")
        else:
            lines.append(f"  {where}: {item['msg']} (got {item['input']!r})"[:300])
    return "\n".join(lines)


def _siblings(kind: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    current: type[BaseModel] = kind
    for part in location[:-1]:
        field = current.model_fields.get(str(part))
        candidates = getattr(field.annotation, "__args__", (field.annotation,)) if field else ()
        models = [c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)]
        if not models:
            return []
        current = models[0]
    return list(current.model_fields)

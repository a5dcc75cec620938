"""Checks before a run: what would fail later, or worse, not fail, is refused here."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from sumone.config import TrainConfig
from sumone.errors import ConfigError, DataError, EnvironmentFailure
from sumone.tokens import TokenizerTokens, Tokens
from sumone.training.dataset import PromptRows, check_apart, read_instances
from sumone.training.decoding import encode_prompts
from sumone.types import CompactionInstance

__all__ = ["Preflight", "load_tokenizer", "model_tokens", "preflight"]

_TEMPLATE_TOKENS = 256
"""More than a chat template adds to a prompt of two messages."""


@dataclasses.dataclass(frozen=True, slots=True)
class Preflight:
    """What the checks have loaded."""

    train: tuple[CompactionInstance, ...]
    heldout: tuple[CompactionInstance, ...]
    tokenizer: Any
    """The policy's tokenizer, padding side left."""
    model_config: Any
    """The policy's configuration."""
    policy_tokens: Tokens
    """Counts in the policy's tokens."""
    block_tokens: Tokens
    """Counts in the reconstructor's tokens (the policy's where it sits behind an endpoint)."""
    end_ids: frozenset[int]
    """Tokens that end a completion."""
    prompt_sizes: tuple[int, ...]
    """Size of each training prompt, in bytes."""


def preflight(config: TrainConfig, *, processes: int) -> Preflight:
    """Load data and tokenizers and refuse what cannot work.

    Raises DataError for missing data or data that shares a task with held-out data, ConfigError
    for missing models and prompts that are too long.
    """
    train = read_instances(config.data.train, config.data.max_instances)
    heldout = read_instances(config.data.heldout, config.evaluation.num_instances)
    check_apart(train, heldout)
    tokenizer, model_config = load_tokenizer(config.policy.path)
    _check_packages(config, model_config)
    rows = PromptRows({}, config.prompts, config.reward.budget_tokens)
    sizes = [_size(rows, instance) for instance in train]
    _check_lengths(config, tokenizer, model_config, rows, (*train, *heldout))
    policy_tokens = TokenizerTokens(tokenizer.backend_tokenizer, config.policy.path)
    return Preflight(
        train=tuple(train),
        heldout=tuple(heldout),
        tokenizer=tokenizer,
        model_config=model_config,
        policy_tokens=policy_tokens,
        block_tokens=model_tokens(config.reconstructor.path) or policy_tokens,
        end_ids=_end_ids(config.policy.path, tokenizer, model_config),
        prompt_sizes=tuple(sizes),
    )


def load_tokenizer(path: str, *, local_only: bool = False) -> tuple[Any, Any]:
    """Tokenizer and configuration of a model folder or hub name (`local_only`: if it is cached).

    Raises ConfigError where there is none or it has no chat template.
    """
    folder = Path(path)
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise ConfigError(f"{path} is a folder without config.json, so it holds no model")
    try:
        model_config = AutoConfig.from_pretrained(path, local_files_only=local_only)
        tokenizer = AutoTokenizer.from_pretrained(
            path, padding_side="left", local_files_only=local_only
        )
    except (OSError, ValueError) as error:
        elsewhere = (
            "not in the cache of the model hub" if local_only
            else f"the model hub did not give it ({_first_line(error)})"
        )  # fmt: skip
        raise ConfigError(
            f"no model at {path!r}: it is no folder with config.json and a tokenizer, and "
            f"{elsewhere}; correct the path, or download the model first"
        ) from error
    if not tokenizer.chat_template:
        raise ConfigError(
            f"the tokenizer of {path!r} has no chat template, and the prompts are conversations: "
            "use an instruction model"
        )
    return tokenizer, model_config


def model_tokens(path: str | None) -> TokenizerTokens | None:
    """Counter of a model in this process; None for a model behind an endpoint."""
    if path is None:
        return None
    tokenizer, _ = load_tokenizer(path)
    return TokenizerTokens(tokenizer.backend_tokenizer, path)


def _end_ids(path: str, tokenizer: Any, model_config: Any) -> frozenset[int]:
    """Every token that TRL takes for the end of a completion."""
    try:
        declared = GenerationConfig.from_pretrained(path).eos_token_id
    except OSError:
        declared = getattr(model_config, "eos_token_id", None)
    many = declared if isinstance(declared, list) else [declared]
    ids = {tokenizer.eos_token_id, *many} - {None}
    return frozenset(int(i) for i in ids)


def _check_packages(config: TrainConfig, model_config: Any) -> None:
    if config.grpo.get("use_vllm") and not _has_package("vllm"):
        raise EnvironmentFailure(
            "grpo.use_vllm is set but vllm is not installed: pip install 'sumone[gpu]', "
            "or set grpo.use_vllm=false"
        )
    gated = str(getattr(model_config, "model_type", "")).startswith("qwen3_5")
    if gated and torch.cuda.is_available() and not _has_package("fla"):
        raise EnvironmentFailure(
            "Qwen3.5 needs flash-linear-attention on a GPU (without it transformers falls back "
            "to a slow float32 loop): pip install flash-linear-attention"
        )


def _has_package(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None


def _size(rows: PromptRows, instance: CompactionInstance) -> int:
    return sum(len(message["content"].encode()) for message in rows.prompt(instance))


def _check_lengths(
    config: TrainConfig,
    tokenizer: Any,
    model_config: Any,
    rows: PromptRows,
    instances: Sequence[CompactionInstance],
) -> None:
    """Refuse prompts above policy.max_prompt_tokens or above the model's window."""
    longest = config.policy.max_prompt_tokens
    window = getattr(model_config.get_text_config(), "max_position_embeddings", None)
    if window is not None:
        longest = min(longest, window - config.reward.budget_tokens)
    # A token is at least one byte, so most prompts need no counting; the template adds a little.
    unsure = [i for i in instances if _size(rows, i) + _TEMPLATE_TOKENS > longest]
    options = {"enable_thinking": False, **(config.grpo.get("chat_template_kwargs") or {})}
    too_long: list[tuple[str, int]] = []
    for start in range(0, len(unsure), 64):
        part = unsure[start : start + 64]
        encoded = encode_prompts(tokenizer, [rows.prompt(i) for i in part], options)
        too_long += [
            (instance.id, len(ids))
            for instance, ids in zip(part, encoded, strict=True)
            if len(ids) > longest
        ]
    if not too_long:
        return
    shown = ", ".join(f"{name} ({size})" for name, size in too_long[:5])
    why = (
        f"policy.max_prompt_tokens={config.policy.max_prompt_tokens}"
        if longest == config.policy.max_prompt_tokens
        else f"the model's window of {window} less reward.budget_tokens="
        f"{config.reward.budget_tokens}"
    )
    raise DataError(
        f"{len(too_long)} prompt(s) are longer than {longest} tokens ({why}): {shown}. Build "
        "instances at a smaller context length, or raise the limit if the model allows it"
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__

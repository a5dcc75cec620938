"""`--dry-run`: what a run would do, without doing it.

Prints the resolved configuration, one instance with its mask, the prompts, and an estimate of a
step. What cannot be reached here (tokenizer, weights, data) is named; example instances, a byte
estimate and recorded model shapes stand in, and every figure that rests on them is marked.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import torch
import yaml
from accelerate import init_empty_weights
from rich.console import Console
from transformers import AutoModelForCausalLM

from sumone.config import TrainConfig
from sumone.errors import ConfigError, DataError, SumOneError
from sumone.masking import missing_marker
from sumone.prompts import judge_prompt, reconstruct_prompt, summarize_prompt
from sumone.render import render_text
from sumone.reward.masked import Masker
from sumone.tokens import ByteEstimate, TokenizerTokens, Tokens
from sumone.training.dataset import check_apart, read_instances
from sumone.training.estimate import (
    DeviceSpeed,
    Figure,
    ModelShape,
    Shapes,
    Sizes,
    estimate_step,
    load_shapes,
)
from sumone.training.options import geometry, grpo_arguments, world_size
from sumone.training.preflight import load_tokenizer
from sumone.types import ChatMessage, CompactionInstance

__all__ = ["dry_run"]

_ROOT = Path(__file__).resolve().parents[2]
_SHAPES = _ROOT / "configs" / "models.yaml"
_EXAMPLES = ("data/tiny/heldout.jsonl", "data/examples/*.jsonl")
"""Instances that stand in for data that is not there."""
_SAMPLE = 64
"""Instances whose sizes are averaged."""
_SHOWN = 1200
"""Characters shown of each end of a long text."""

_T = TypeVar("_T")


@dataclass(slots=True)
class _Reach:
    """What could not be reached, and what stands in for it."""

    missing: dict[str, list[str]] = field(default_factory=dict)

    def attempt(self, get: Callable[[], _T], instead: str) -> _T | None:
        """The value, or None after noting why not."""
        try:
            return get()
        except SumOneError as error:
            why = str(error).splitlines()[0]
            self.missing.setdefault(why, []).append(instead)
            return None

    def lines(self) -> list[str]:
        """One line for each thing that is missing."""
        return [f"{why}; instead: {' and '.join(i)}" for why, i in self.missing.items()]


def dry_run(config: TrainConfig, *, console: Console, strict: bool) -> None:
    """Print what a run of this configuration would do.

    Raises ConfigError for a configuration that could not run anywhere and, with `strict`, for
    anything that cannot be reached here.
    """
    processes = _processes(config)
    grpo = grpo_arguments(config, Path(config.output_dir) / "checkpoints", processes=processes)
    reach = _Reach()
    shapes = load_shapes(_SHAPES)
    policy_tokens = reach.attempt(lambda: _tokens(config.policy.path), ByteEstimate.name)
    block_tokens = policy_tokens
    if config.reconstructor.path is not None:
        path = config.reconstructor.path
        block_tokens = reach.attempt(lambda: _tokens(path), ByteEstimate.name)
    train = reach.attempt(lambda: _data(config), "example instances, scaled to the threshold")
    policy = _shape(config.policy.path, shapes, reach)
    served = config.reconstructor
    name = served.path or (served.endpoint.model if served.endpoint else "")
    reconstructor = shapes.model(name) if served.path is None else _shape(name, shapes, reach)
    if reach.missing and strict:
        raise ConfigError(
            "--strict: not everything can be reached:\n  " + "\n  ".join(reach.missing)
        )
    instances = train or _examples()
    sizes = _sizes(
        config,
        instances,
        policy_tokens or ByteEstimate(),
        block_tokens or ByteEstimate(),
        scaled=train is None,
    )
    figures = estimate_step(
        config,
        sizes,
        policy,
        reconstructor,
        num_generations=grpo.num_generations,
        processes=processes,
        devices=_devices(config, shapes),
    )
    _print_config(config, console, processes)
    _print_reach(reach, console)
    _print_instance(config, instances[0], block_tokens or ByteEstimate(), console)
    _print_figures(figures, console)


def _processes(config: TrainConfig) -> int:
    """Processes of this job, or those that the batch geometry is made for."""
    given = geometry(config, world_size())
    return given.processes_needed or given.processes


def _tokens(path: str) -> Tokens:
    tokenizer, _ = load_tokenizer(path, local_only=True)
    return TokenizerTokens(tokenizer.backend_tokenizer, path)


def _data(config: TrainConfig) -> list[CompactionInstance]:
    train = read_instances(config.data.train, config.data.max_instances)
    check_apart(train, read_instances(config.data.heldout, config.evaluation.num_instances))
    return train


def _examples() -> list[CompactionInstance]:
    for pattern in _EXAMPLES:
        for file in sorted(_ROOT.glob(pattern)):
            return read_instances(file, _SAMPLE)
    raise DataError(
        f"no example instances in {_ROOT / 'data'}: run from a checkout of the repository"
    )


def _shape(path: str, shapes: Shapes, reach: _Reach) -> ModelShape | None:
    """Counted from the model's configuration, or as recorded."""

    def counted() -> ModelShape:
        _, model_config = load_tokenizer(path, local_only=True)
        with init_empty_weights():
            model = AutoModelForCausalLM.from_config(model_config)
        text = model_config.get_text_config()
        if Path(path).is_dir() and not [*Path(path).glob("*.safetensors")]:
            raise ConfigError(f"{path} holds no weights (*.safetensors)")
        return ModelShape(
            parameters=sum(p.numel() for p in model.parameters()),
            layers=text.num_hidden_layers,
            hidden=text.hidden_size,
        )

    recorded = shapes.model(path)
    stands_in = f"the shape recorded in {_SHAPES.name}" if recorded else "nothing: no shape known"
    return reach.attempt(counted, stands_in) or recorded


def _devices(config: TrainConfig, shapes: Shapes) -> dict[str, DeviceSpeed]:
    on_cpu = not torch.cuda.is_available() and not config.grpo.get("use_vllm")
    return {name: d for name, d in shapes.devices.items() if (name == "CPU") == on_cpu}


def _sizes(
    config: TrainConfig,
    instances: list[CompactionInstance],
    policy_tokens: Tokens,
    block_tokens: Tokens,
    *,
    scaled: bool,
) -> Sizes:
    """Mean sizes over the first instances; example instances are scaled to the threshold."""
    sample = instances[:_SAMPLE]
    prompts = [_prompt_text(_summarize(config, i)) for i in sample]
    context = [render_text(instance.context) for instance in sample]
    expired = [render_text(instance.expired) for instance in sample]
    count = len(sample)
    prompt = sum(policy_tokens.count_batch(prompts)) / count
    around = sum(block_tokens.count_batch(context)) / count
    history = sum(block_tokens.count_batch(expired)) / count
    if scaled:
        prompt += config.compaction.threshold_tokens - around - history
        around = config.compaction.recent_tokens + config.compaction.keep_user_tokens
        history = config.compaction.threshold_tokens - around
    blocks = max(1.0, history / config.masking.block_tokens)
    return Sizes(
        prompt_tokens=prompt,
        reconstruct_tokens=around + history * (1 - config.masking.ratio),
        num_masked=max(1.0, blocks * config.masking.ratio),
        masked_tokens=history * config.masking.ratio,
        estimated=scaled or isinstance(policy_tokens, ByteEstimate),
    )


def _summarize(config: TrainConfig, instance: CompactionInstance) -> list[ChatMessage]:
    return summarize_prompt(
        instance, style=config.prompts, budget_tokens=config.reward.budget_tokens
    )


def _prompt_text(messages: list[ChatMessage]) -> str:
    return "\n".join(message["content"] for message in messages)


def _print_config(config: TrainConfig, console: Console, processes: int) -> None:
    _heading(console, f"resolved configuration (digest {config.digest()})")
    tree = config.model_dump(mode="json")
    _plain(console, yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))
    if processes != world_size():
        _plain(
            console,
            f"this batch geometry needs {processes} processes; there are {world_size()} here: "
            f"accelerate launch --num_processes {processes} scripts/train_grpo.py ...",
        )


def _print_reach(reach: _Reach, console: Console) -> None:
    if reach.missing:
        _heading(console, "cannot be reached here")
        for item in reach.lines():
            _plain(console, f"  - {item}")


def _print_instance(
    config: TrainConfig, instance: CompactionInstance, tokens: Tokens, console: Console
) -> None:
    masker = Masker(config.masking, tokens, seed=config.seed, memory=config.compaction.memory)
    blocks, masked = masker.blocks(instance), masker.mask(instance, 0)
    hidden = [block.index for block in masked.hidden]
    domain = instance.domain or "no domain"
    _heading(console, f"instance {instance.id} ({domain}), tokens: {tokens.name}")
    _plain(
        console,
        f"preamble {len(instance.preamble)}, memory {len(instance.memory)}, history "
        f"{len(instance.history)}, recent {len(instance.recent)} messages; the mask of step 0",
    )
    for block in blocks:
        mark = "masked" if block.index in hidden else "visible"
        _plain(console, f"  block {block.index:>3}  {block.num_tokens:>5} tokens  {mark}")
    asked = hidden[: config.reconstructor.blocks_per_call]
    summary = "(the policy's summary)"
    prompts = {
        "the policy": _summarize(config, instance),
        f"the reconstructor, first call (blocks {', '.join(map(str, asked))})": reconstruct_prompt(
            masked.context,
            masked.text,
            summary,
            style=config.prompts,
            markers=[missing_marker(i, masked.nonce) for i in asked],
            nonce=masked.nonce,
        ),
    }
    if config.judge.kind == "llm":
        prompts[f"the judge, block {hidden[0]}"] = judge_prompt(
            masked.hidden[0].text, "(the reconstruction)", nonce=masked.nonce
        )
    for reader, messages in prompts.items():
        _heading(console, f"prompt of {reader}")
        for message in messages:
            _plain(console, f"<{message['role']}>\n{_shortened(message['content'])}")


def _shortened(text: str) -> str:
    if len(text) <= 2 * _SHOWN + 100:
        return text
    left_out = len(text) - 2 * _SHOWN
    return f"{text[:_SHOWN]}\n... {left_out} characters not shown ...\n{text[-_SHOWN:]}"


def _print_figures(figures: list[Figure], console: Console) -> None:
    _heading(console, "one step")
    for label, value, estimated in figures:
        _plain(console, f"  {label:<40} {value}{'  (estimated)' if estimated else ''}")


def _heading(console: Console, text: str) -> None:
    console.print(f"\n== {text}", style="bold", markup=False, highlight=False, soft_wrap=True)


def _plain(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)

"""What a step will need, before it runs: tokens, memory, time, judge cost.

Arithmetic on sizes; nothing is loaded or run. A figure says whether it rests on an estimate.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict

from sumone.config import TrainConfig
from sumone.costs import find_price, judge_tokens, usage_usd

__all__ = ["DeviceSpeed", "Figure", "ModelShape", "Shapes", "Sizes", "estimate_step", "load_shapes"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelShape(_Frozen):
    """Size of a model."""

    parameters: float
    layers: int
    hidden: int


class DeviceSpeed(_Frozen):
    """What a device sustains."""

    prefill_tflops: float
    train_tflops: float
    memory_tb_per_s: float
    step_overhead_ms: float


class Shapes(_Frozen):
    """The contents of `configs/models.yaml`."""

    models: dict[str, ModelShape]
    devices: dict[str, DeviceSpeed]

    def model(self, path: str) -> ModelShape | None:
        """The recorded shape of a model folder or hub name, by its last part."""
        return self.models.get(path.rstrip("/").rpartition("/")[2])


def load_shapes(file: Path) -> Shapes:
    """Read recorded shapes."""
    return Shapes.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))


class Figure(NamedTuple):
    """One line of the estimate."""

    label: str
    """What it says."""
    value: str
    """The figure with its unit."""
    estimated: bool
    """Whether it rests on anything but counting."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Mean sizes of an instance, in tokens."""

    prompt_tokens: float
    """The policy's prompt."""
    reconstruct_tokens: float
    """The reconstructor's prompt without the summary: context and masked history."""
    num_masked: float
    """Masked blocks."""
    masked_tokens: float
    """Tokens of the masked blocks."""
    estimated: bool
    """Whether a byte estimate counted them or example instances stand in for the data."""


def estimate_step(
    config: TrainConfig,
    sizes: Sizes,
    policy: ModelShape | None,
    reconstructor: ModelShape | None,
    *,
    num_generations: int,
    processes: int,
    devices: dict[str, DeviceSpeed],
) -> list[Figure]:
    """Figures of one training step; a full summary (L_max) is assumed, so they are high."""
    rollouts = config.prompts_per_step * num_generations
    budget = config.reward.budget_tokens
    trained = rollouts * (sizes.prompt_tokens + budget)
    figures = [
        Figure("prompt tokens, mean", f"{sizes.prompt_tokens:,.0f}", sizes.estimated),
        Figure("rollouts", f"{rollouts}", False),
        Figure("tokens generated, at most", f"{rollouts * budget:,}", False),
        Figure("tokens trained on, at most", f"{trained:,.0f}", sizes.estimated),
    ]
    figures += _scoring(config, sizes, rollouts)
    if policy is None:
        return [*figures, Figure("memory, time", "unknown: no shape of the policy", True)]
    figures += _memory(config, policy, sizes.prompt_tokens + budget, processes)
    for name, device in devices.items():
        seconds = _generate(
            policy,
            sizes.prompt_tokens,
            budget,
            rollouts=rollouts,
            processes=processes,
            device=device,
        )
        seconds += trained * 8 * policy.parameters / (device.train_tflops * 1e12 * processes)
        if reconstructor is not None and config.reward.objective == "reconstruction":
            seconds += _reconstruct(
                config, sizes, reconstructor, rollouts=rollouts, processes=processes, device=device
            )
        steps = int(config.grpo.get("max_steps", 0))
        figures.append(
            Figure(
                f"time on {processes} x {name}",
                f"{seconds:,.1f} s a step, {seconds * steps / 3600:,.1f} h for {steps} steps",
                True,
            )
        )
    return figures


def _scoring(config: TrainConfig, sizes: Sizes, rollouts: int) -> list[Figure]:
    """Calls and tokens of reconstructor and judge, and the judge's list price."""
    figures: list[Figure] = []
    verdicts: float = rollouts
    if config.reward.objective == "reconstruction":
        calls = rollouts * math.ceil(sizes.num_masked / config.reconstructor.blocks_per_call)
        prompt = sizes.reconstruct_tokens + config.reward.budget_tokens
        output = rollouts * sizes.masked_tokens
        verdicts = rollouts * sizes.num_masked
        figures += [
            Figure("reconstructor calls", f"{calls:,}", sizes.estimated),
            Figure("reconstructor tokens in", f"{calls * prompt:,.0f}", sizes.estimated),
            Figure("reconstructor tokens out", f"{output:,.0f}", sizes.estimated),
        ]
    model = config.judge.model
    if config.reward.objective == "information_gain" or config.judge.kind == "lexical":
        return [*figures, Figure("judge cost", "none: no judge model", False)]
    block = sizes.masked_tokens / max(1.0, sizes.num_masked)
    if config.reward.objective == "summary_judge":
        block = sizes.prompt_tokens
    tokens_in, tokens_out = judge_tokens(verdicts=verdicts, block_tokens=block)
    figures += [
        Figure("judge verdicts", f"{verdicts:,.0f}", sizes.estimated),
        Figure("judge tokens in / out", f"{tokens_in:,.0f} / {tokens_out:,.0f}", True),
    ]
    endpoint = model.endpoint if model else None
    listed = find_price(endpoint.model) if endpoint else None
    if listed is None:
        name = endpoint.model if endpoint else "the judge"
        return [*figures, Figure("judge cost", f"unknown: no list price of {name}", True)]
    cost = usage_usd(listed[1], input_tokens=tokens_in, output_tokens=tokens_out)
    steps = int(config.grpo.get("max_steps", 0))
    return [
        *figures,
        Figure(
            "judge cost",
            f"${cost:.2f} a step, ${cost * steps:,.0f} for {steps} steps "
            f"(list price of {listed[0]})",
            True,
        ),
    ]


def _memory(config: TrainConfig, policy: ModelShape, tokens: float, processes: int) -> list[Figure]:
    weights = policy.parameters * (2 if config.policy.dtype == "bfloat16" else 4)
    trained = policy.parameters
    if config.policy.lora is not None:
        # Two factors of rank x width for each adapted matrix; a name with dots is one matrix.
        lora = config.policy.lora
        adapted = sum(1 if "." in name else policy.layers for name in lora.target_modules)
        trained = adapted * 2 * lora.rank * policy.hidden
    state = trained * 12  # float32 gradient and two Adam moments
    checkpointed = bool(config.grpo.get("gradient_checkpointing", True))
    per_token = policy.hidden * policy.layers * (2 if checkpointed else 34)
    micro = int(config.grpo.get("per_device_train_batch_size", 8))
    activations = micro * tokens * per_token * (2 if checkpointed else 1)
    return [
        Figure("weights", _size(weights), True),
        Figure("gradients and Adam state", _size(state), True),
        Figure(
            f"the same over {processes} process(es), sharded",
            f"{_size((weights + state) / processes)} each",
            True,
        ),
        Figure("activations of a micro-batch", _size(activations), True),
    ]


def _size(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:,.2f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:,.0f} MB"


def _generate(
    policy: ModelShape,
    prompt: float,
    budget: int,
    *,
    rollouts: int,
    processes: int,
    device: DeviceSpeed,
) -> float:
    prefill = rollouts * prompt * 2 * policy.parameters
    return prefill / (device.prefill_tflops * 1e12 * processes) + budget * _decode_step(
        policy, device
    )


def _decode_step(model: ModelShape, device: DeviceSpeed) -> float:
    """Seconds of one decoding step of a batch: weights are read once."""
    return model.parameters * 2 / (device.memory_tb_per_s * 1e12) + device.step_overhead_ms / 1e3


_SEQUENCES = 64
"""Sequences that a reconstructor decodes together on one device."""


def _reconstruct(
    config: TrainConfig,
    sizes: Sizes,
    model: ModelShape,
    *,
    rollouts: int,
    processes: int,
    device: DeviceSpeed,
) -> float:
    calls = rollouts * math.ceil(sizes.num_masked / config.reconstructor.blocks_per_call)
    prompt = sizes.reconstruct_tokens + config.reward.budget_tokens
    prefill = calls * prompt * 2 * model.parameters / (device.prefill_tflops * 1e12 * processes)
    waves = math.ceil(calls / processes / _SEQUENCES)
    output = sizes.masked_tokens / max(1.0, calls / rollouts)
    return prefill + waves * output * _decode_step(model, device)

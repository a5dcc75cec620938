"""From the `grpo` block to `trl.GRPOConfig` (Table 7; batch geometry).

The block goes to TRL verbatim. What other parts of the configuration already say (length of a
completion, seed, folders) may not be said differently here; what TRL would do to a run on a CPU
(bfloat16) is turned off.
"""

import dataclasses
import difflib
import os
from pathlib import Path
from typing import Any

import torch
from trl import GRPOConfig

from sumone.config import TrainConfig
from sumone.errors import ConfigError

__all__ = ["Geometry", "geometry", "grpo_arguments", "world_size"]

_PREFERRED: dict[str, Any] = {
    "logging_steps": 1,
    "save_strategy": "steps",
    "save_steps": 20,
    # Two, because a run killed while it writes the newest still needs the one before.
    "save_total_limit": 2,
    "report_to": "none",
    "disable_tqdm": True,
}
"""Where TRL's default would not do for a run folder; the `grpo` block overrides each."""


@dataclasses.dataclass(frozen=True, slots=True)
class Geometry:
    """How the rollouts of a step are spread: all four multiply to one step."""

    per_device: int
    accumulation: int
    processes: int
    wanted: int
    """prompts_per_step x num_generations."""

    @property
    def given(self) -> int:
        """Rollouts of a step as the options have it."""
        return self.per_device * self.accumulation * self.processes

    @property
    def processes_needed(self) -> int | None:
        """Number of processes with which the same options would fit, if any does."""
        one = self.per_device * self.accumulation
        return self.wanted // one if self.wanted % one == 0 else None

    def check(self) -> None:
        """Raise ConfigError, with a suggestion that works, unless the geometry fits."""
        if self.given == self.wanted:
            return
        ways = [
            f"grpo.per_device_train_batch_size={p} grpo.gradient_accumulation_steps={a}"
            for p, a in self._suggestions()
        ]
        if self.processes_needed:
            ways.append(f"accelerate launch --num_processes {self.processes_needed} ...")
        raise ConfigError(
            f"a step has prompts_per_step x num_generations = {self.wanted} rollouts, but "
            f"per_device_train_batch_size {self.per_device} x gradient_accumulation_steps "
            f"{self.accumulation} x {self.processes} process(es) gives {self.given}. "
            + (
                "Use " + ", or ".join(ways)
                if ways
                else f"{self.wanted} rollouts cannot be divided over {self.processes} processes: "
                "change the number of processes or prompts_per_step"
            )
        )

    def _suggestions(self) -> list[tuple[int, int]]:
        if self.wanted % self.processes:
            return []
        share = self.wanted // self.processes
        fitting = max(p for p in range(1, min(share, self.per_device) + 1) if share % p == 0)
        return [(fitting, share // fitting)]


def world_size() -> int:
    """Number of processes of this job, as the launcher says."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def geometry(config: TrainConfig, processes: int) -> Geometry:
    """The batch geometry that the configuration asks for with so many processes."""
    defaults = {f.name: f.default for f in dataclasses.fields(GRPOConfig)}

    def option(name: str) -> int:
        return int(config.grpo.get(name, defaults[name]))

    return Geometry(
        per_device=option("per_device_train_batch_size"),
        accumulation=option("gradient_accumulation_steps"),
        processes=processes,
        wanted=config.prompts_per_step * option("num_generations"),
    )


def grpo_arguments(config: TrainConfig, checkpoints: Path, *, processes: int) -> GRPOConfig:
    """Check the `grpo` block and make TRL's arguments of it.

    Raises ConfigError for unknown keys (naming near ones), for a batch geometry that does not
    give prompts x samples, and for options that contradict the rest of the configuration.
    """
    options = dict(config.grpo)
    _refuse_unknown(options)
    if int(options.get("max_steps", 0)) < 1:
        raise ConfigError("grpo.max_steps must say how many steps to train, for example 600")
    geometry(config, processes).check()
    for name, (value, source) in _owned(config, checkpoints).items():
        if name in options and options[name] != value:
            raise ConfigError(
                f"grpo.{name}={options[name]!r} contradicts {source} ({value!r}): "
                f"remove grpo.{name} and set {source} instead"
            )
        options[name] = value
    options["chat_template_kwargs"] = {
        "enable_thinking": False, **(options.get("chat_template_kwargs") or {})
    }  # fmt: skip
    options = {**_PREFERRED, **options}
    for name in ("save_strategy", "eval_strategy", "logging_strategy"):
        if options.get(name) is False:  # how YAML reads a bare `no`
            options[name] = "no"
    if processes != world_size():
        # A dry run of a job for more processes: TRL only counts those that are here.
        share = geometry(config, processes)
        options["gradient_accumulation_steps"] = share.accumulation * processes // world_size()
    if not torch.cuda.is_available():
        options.update(use_cpu=True, bf16=False, fp16=False, tf32=None)
    options["model_init_kwargs"] = {
        **(options.get("model_init_kwargs") or {}),
        "dtype": config.policy.dtype if torch.cuda.is_available() else "float32",
    }
    _refuse_risky_saves(options)
    try:
        arguments = GRPOConfig(**options)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"the grpo block was refused by TRL: {error}") from error
    _check_alignment(arguments)
    return arguments


def _owned(config: TrainConfig, checkpoints: Path) -> dict[str, tuple[Any, str]]:
    """Options whose value is fixed elsewhere, and where."""
    return {
        "output_dir": (str(checkpoints), "output_dir at the top level"),
        "max_completion_length": (config.reward.budget_tokens, "reward.budget_tokens"),
        "seed": (config.seed, "seed at the top level"),
        "shuffle_dataset": (False, "the seeded order of SumOne"),
        "remove_unused_columns": (False, "the data set of ids"),
    }


def _refuse_unknown(options: dict[str, Any]) -> None:
    known = {field.name for field in dataclasses.fields(GRPOConfig) if field.init}
    problems = []
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
            hint = f"did you mean {', '.join(near)}?" if near else "see trl.GRPOConfig"
            problems.append(f"grpo.{name}: no such option of GRPOConfig; {hint}")
    if problems:
        raise ConfigError("\n".join(problems))


def _refuse_risky_saves(options: dict[str, Any]) -> None:
    limit = options["save_total_limit"]
    if limit is not None and int(limit) == 1:
        raise ConfigError(
            "grpo.save_total_limit=1 deletes the only good checkpoint before the next one is "
            "known to be complete: use 2 or more, or null to keep all"
        )


def _check_alignment(arguments: GRPOConfig) -> None:
    """A checkpoint between generation and its last update would resume with other prompts."""
    per_generation = arguments.steps_per_generation * arguments.num_iterations
    accumulation = arguments.gradient_accumulation_steps
    if accumulation % per_generation == 0:
        return
    updates, rest = divmod(per_generation, accumulation)
    if rest:
        raise ConfigError(
            f"one generation serves {per_generation} micro-batches, which is no whole number of "
            f"updates of {accumulation}: a checkpoint could not be resumed. Choose "
            "grpo.steps_per_generation as a multiple of grpo.gradient_accumulation_steps"
        )
    if arguments.save_strategy != "no" and int(arguments.save_steps) % updates:
        raise ConfigError(
            f"grpo.save_steps={arguments.save_steps} would save between a generation and the last "
            f"of its {updates} updates, and such a checkpoint could not be resumed: "
            f"make grpo.save_steps a multiple of {updates}"
        )

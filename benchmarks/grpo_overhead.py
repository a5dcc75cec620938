"""What the reward object costs a GRPO step beyond the reconstructor's own work.

Runs the same TRL steps twice: with the reward engine, and with a constant reward. The learning
rate is 0, so both runs sample the same completions from the same policy, and the difference of
two steps is the reward. Overhead = that difference less the time the reconstructor's model ran;
the bound is 3 % of a step. Writes benchmarks/results/grpo_overhead.json.

    python benchmarks/grpo_overhead.py [CONFIG] [KEY=VALUE]...
"""

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOTrainer

from sumone.config import TrainConfig, load_train_config
from sumone.models.decoding import SharedPrefixDecoder
from sumone.render import render_text
from sumone.reward import Rollout, RolloutScore, build_engine
from sumone.training.dataset import PromptRows, prompt_dataset, prompt_order
from sumone.training.options import grpo_arguments
from sumone.training.preflight import preflight
from sumone.training.reward_adapter import PolicyReward, Scorer
from sumone.training.rollouts import SharedPrefixRollouts
from sumone.training.run_log import CompletionLog

STEPS, ROUNDS, BOUND = 4, 2, 0.03
RESULT = Path(__file__).parent / "results" / "grpo_overhead.json"


class ConstantScorer:
    """Every rollout is worth the same, at no cost."""

    async def score(self, rollouts: Sequence[Rollout]) -> list[RolloutScore]:
        return [RolloutScore(1.0, quality=1.0, penalty=0.0) for _ in rollouts]

    def metrics(self) -> dict[str, float]:
        return {}


class Seconds(NamedTuple):
    """Wall-clock time, and processor time of all threads, which other programs cannot change."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> "Seconds":
        return cls(time.perf_counter(), time.process_time())

    def __sub__(self, other: "Seconds") -> "Seconds":
        return Seconds(self.wall - other.wall, self.cpu - other.cpu)

    def plus(self, other: "Seconds") -> "Seconds":
        return Seconds(self.wall + other.wall, self.cpu + other.cpu)


class Clock(TrainerCallback):
    """Time of each step, and of the reconstructor's model inside it."""

    def __init__(self) -> None:
        self.model = Seconds(0.0, 0.0)
        self.steps: list[tuple[Seconds, Seconds]] = []

    def on_step_begin(self, args, state, control, **kwargs):
        self._start, self._model = Seconds.now(), self.model

    def on_step_end(self, args, state, control, **kwargs):
        self.steps.append((Seconds.now() - self._start, self.model - self._model))


def measure(config: TrainConfig, scorer: Scorer, clock: Clock, folder: Path) -> None:
    """Some steps of a trainer with this scorer; the first one warms up and does not count."""
    checked = preflight(config, processes=1)
    instances = {instance.id: instance for instance in checked.train}
    order = prompt_order(
        checked.prompt_sizes,
        prompts_per_step=config.prompts_per_step,
        steps=STEPS + 1,
        seed=config.seed,
    )
    rows = PromptRows(instances, config.prompts, config.reward.budget_tokens)
    trainer = GRPOTrainer(
        model=config.policy.path,
        reward_funcs=PolicyReward(
            scorer,
            instances,
            tokenizer=checked.tokenizer,
            end_ids=checked.end_ids,
            settings=config.reward,
            log=CompletionLog(folder / "completions.jsonl", config.completions_logged),
        ),
        args=grpo_arguments(config, folder, processes=1),
        train_dataset=prompt_dataset(rows, [checked.train[i].id for i in order]),
        processing_class=checked.tokenizer,
        callbacks=[clock],
        rollout_func=SharedPrefixRollouts(),
    )
    trainer.remove_callback(PrinterCallback)
    first = len(clock.steps)
    trainer.train()
    del clock.steps[first]


def compare(kind: str, full: Clock, constant: Clock) -> dict[str, float]:
    """Medians over steps; the overhead is taken step by step, on the same completions."""
    pairs = [
        (getattr(step, kind), getattr(model, kind), getattr(base, kind))
        for (step, model), (base, _) in zip(full.steps, constant.steps, strict=True)
    ]
    step, model, base = (statistics.median(column) for column in zip(*pairs, strict=True))
    overhead = statistics.median(s - m - b for s, m, b in pairs)
    return {
        "step": round(step, 3),
        "step_with_a_constant_reward": round(base, 3),
        "reconstructor_model": round(model, 3),
        "overhead": round(overhead, 3),
        "overhead_share": round(overhead / step, 4),
    }


def main() -> None:
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    arguments = sys.argv[1:] or ["configs/tiny.yaml"]
    config = load_train_config(
        arguments[0],
        [
            *arguments[1:],
            f"grpo.max_steps={STEPS + 1}",
            "grpo.learning_rate=0",
            "grpo.save_strategy=no",
            "grpo.report_to=none",
        ],
    )
    constant, full = Clock(), Clock()
    generate = SharedPrefixDecoder.generate

    def timed(decoder, *given, **named):
        start = Seconds.now()
        try:
            return generate(decoder, *given, **named)
        finally:
            # The policy samples in the main thread, the reconstructor in its own.
            if threading.current_thread() is not threading.main_thread():
                full.model = full.model.plus(Seconds.now() - start)

    SharedPrefixDecoder.generate = timed
    with tempfile.TemporaryDirectory() as folder:
        checked = preflight(config, processes=1)
        histories = [render_text(instance.expired) for instance in checked.train]
        for _ in range(ROUNDS):  # in turn, so that a busy machine hits both alike
            measure(config, ConstantScorer(), constant, Path(folder))
            engine = build_engine(config, checked.block_tokens, histories)
            measure(config, engine, full, Path(folder))
    result = {
        "command": " ".join(["python", "benchmarks/grpo_overhead.py", *arguments]),
        "steps": len(full.steps),
        "rollouts_per_step": config.prompts_per_step * config.grpo["num_generations"],
        "threads": torch.get_num_threads(),
        "wall_seconds": compare("wall", full, constant),
        "cpu_seconds": compare("cpu", full, constant),
        "bound": BOUND,
    }
    # Processor time decides: it is the same on a busy machine.
    result["met"] = result["cpu_seconds"]["overhead_share"] <= BOUND
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

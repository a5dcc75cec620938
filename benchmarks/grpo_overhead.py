"""What the reward object costs a GRPO step beyond the reconstructor's own work.

Runs the same TRL steps twice: with the reward engine, and with a constant reward. The learning
rate is 0, so both runs sample the same completions from the same policy, and the difference of
two steps is the reward. Overhead = that difference less the time the reconstructor's model ran;
the bound is 3 % of a step. Writes benchmarks/results/grpo_overhead.json.

    python benchmarks/grpo_overhead.py [CONFIG] [KEY=VALUE]...
"""

import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

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

STEPS, ROUNDS, BOUND = 5, 2, 0.03
RESULT = Path(__file__).parent / "results" / "grpo_overhead.json"


class ConstantScorer:
    """Every rollout is worth the same, at no cost."""

    async def score(self, rollouts: Sequence[Rollout]) -> list[RolloutScore]:
        return [RolloutScore(1.0, quality=1.0, penalty=0.0) for _ in rollouts]

    def metrics(self) -> dict[str, float]:
        return {}


class Clock(TrainerCallback):
    """Wall-clock seconds of each step, and of the model inside it."""

    def __init__(self) -> None:
        self.model_seconds = 0.0
        self.steps: list[tuple[float, float, float]] = []

    def on_step_begin(self, args, state, control, **kwargs):
        self._start, self._model = time.perf_counter(), self.model_seconds

    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "reward_seconds" in logs:
            seconds = time.perf_counter() - self._start
            model = self.model_seconds - self._model
            self.steps.append((seconds, logs["reward_seconds"], model))


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


def main() -> None:
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
        start = time.perf_counter()
        try:
            return generate(decoder, *given, **named)
        finally:
            if threading.current_thread() is not threading.main_thread():
                full.model_seconds += time.perf_counter() - start

    SharedPrefixDecoder.generate = timed
    with tempfile.TemporaryDirectory() as folder:
        checked = preflight(config, processes=1)
        histories = [render_text(instance.expired) for instance in checked.train]
        for _ in range(ROUNDS):  # in turn, so that a busy machine hits both alike
            measure(config, ConstantScorer(), constant, Path(folder))
            engine = build_engine(config, checked.block_tokens, histories)
            measure(config, engine, full, Path(folder))
    pairs = list(zip(full.steps, constant.steps, strict=True))
    step = statistics.median(seconds for seconds, _, _ in full.steps)
    base = statistics.median(seconds for seconds, _, _ in constant.steps)
    model = statistics.median(seconds for _, _, seconds in full.steps)
    beyond = statistics.median(f[0] - c[0] - f[2] for f, c in pairs)
    inside = statistics.median(reward - seconds for _, reward, seconds in full.steps)
    result = {
        "command": " ".join(["python", "benchmarks/grpo_overhead.py", *arguments]),
        "steps": len(full.steps),
        "rollouts_per_step": config.prompts_per_step * config.grpo["num_generations"],
        "threads": torch.get_num_threads(),
        "step_seconds": round(step, 4),
        "constant_step_seconds": round(base, 4),
        "reconstructor_model_seconds": round(model, 4),
        "overhead_seconds": round(beyond, 4),
        "overhead_share": round(beyond / step, 4),
        "reward_object_seconds_beyond_model": round(inside, 4),
        "reward_object_share": round(inside / step, 4),
        "bound": BOUND,
        "met": beyond / step <= BOUND,
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

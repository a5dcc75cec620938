"""The training job (Section 4.1): TRL's GRPOTrainer with one reward object, start to finish.

Order: check everything, open or rewind the run folder, evaluate, train, save the policy,
evaluate again, report. Nothing here subclasses the trainer.
"""

import asyncio
import logging
import os
from contextlib import closing

from accelerate import PartialState
from huggingface_hub import constants
from peft import LoraConfig
from rich.console import Console
from transformers import PrinterCallback, ProgressCallback
from transformers.utils import logging as transformers_logging
from trl import GRPOConfig, GRPOTrainer

from sumone.config import TrainConfig
from sumone.errors import ModelError
from sumone.render import render_text
from sumone.reward import build_engine
from sumone.training.callbacks import (
    CheckpointMark,
    CircuitBreaker,
    MetricsLog,
    PeriodicEvaluation,
)
from sumone.training.dataset import PromptRows, prompt_dataset, prompt_order
from sumone.training.distributed import RewardRendezvous, reduce_in_float32
from sumone.training.dry_run import dry_run as print_dry_run
from sumone.training.evaluation import (
    CONTROLS,
    Evaluation,
    Evaluator,
    load_evaluation,
)
from sumone.training.export import SUMMARIZER_FILE, save_policy
from sumone.training.options import grpo_arguments, world_size
from sumone.training.preflight import Preflight, preflight
from sumone.training.progress import Progress
from sumone.training.report import report
from sumone.training.reward_adapter import PolicyReward
from sumone.training.rollouts import SharedPrefixRollouts, shares_prefixes
from sumone.training.run_folder import RunFolder
from sumone.training.run_log import CompletionLog

__all__ = ["train"]


def train(
    config: TrainConfig,
    *,
    resume: bool = False,
    dry_run: bool = False,
    strict: bool = False,
    console: Console | None = None,
) -> int:
    """Train a summarizer as the configuration says; 0 when done.

    Results go to `console` (stdout by default), progress to stderr. Raises a SumOneError for
    everything the user can put right, before any training starts where that is possible.
    """
    _disable_telemetry()
    results = console or Console()
    if dry_run:
        print_dry_run(config, console=results, strict=strict)
        return 0
    checked = preflight(config, processes=world_size())
    folder = RunFolder(config.output_dir)
    arguments = grpo_arguments(config, folder.checkpoints, processes=world_size())
    state = PartialState(cpu=arguments.use_cpu)
    checkpoint = None
    if state.is_main_process:
        folder.open(config, resume=resume)
        checkpoint, _ = folder.rewind()
    state.wait_for_everyone()
    if not state.is_main_process:
        checkpoint = folder.good_checkpoint()
    _quiet_libraries()
    with Progress(
        Console(stderr=True), steps=arguments.max_steps, enabled=state.is_main_process
    ) as progress:
        job = _Job(config, checked, folder, arguments, progress)
        with closing(job):
            return job.run(str(checkpoint) if checkpoint else None, results)


class _Job:
    """One run with everything it holds: trainer, reward, evaluator."""

    def __init__(
        self,
        config: TrainConfig,
        checked: Preflight,
        folder: RunFolder,
        arguments: GRPOConfig,
        progress: Progress,
    ) -> None:
        self._config = config
        self._folder = folder
        self._progress = progress
        histories = [render_text(instance.expired) for instance in checked.train]
        self._engine = build_engine(
            config, checked.block_tokens, histories, world_size=world_size()
        )
        rows = PromptRows(
            {i.id: i for i in (*checked.train, *checked.heldout)},
            config.prompts,
            config.reward.budget_tokens,
        )
        order = prompt_order(
            checked.prompt_sizes,
            prompts_per_step=config.prompts_per_step,
            steps=arguments.max_steps,
            seed=config.seed,
        )
        main = PartialState().is_main_process
        self._reward = PolicyReward(
            self._engine,
            {instance.id: instance for instance in checked.train},
            tokenizer=checked.tokenizer,
            end_ids=checked.end_ids,
            settings=config.reward,
            log=CompletionLog(folder.completions, config.completions_logged) if main else None,
        )
        self._trainer = GRPOTrainer(
            model=config.policy.path,
            reward_funcs=self._reward,
            args=arguments,
            train_dataset=prompt_dataset(rows, [checked.train[i].id for i in order]),
            processing_class=checked.tokenizer,
            peft_config=_lora(config),
            rollout_func=(
                SharedPrefixRollouts() if shares_prefixes(arguments, checked.model_config) else None
            ),
        )
        reduce_in_float32(self._trainer)
        if self._trainer.accelerator.num_processes > 1:
            self._reward.rendezvous = RewardRendezvous(config.reward.batch_deadline_seconds + 60)
        self._evaluator = Evaluator(
            config,
            checked.heldout,
            trainer=self._trainer,
            scorer=self._engine,
            rows=rows,
            tokens=checked.policy_tokens,
        )
        self._breaker = CircuitBreaker(self._reward, config.reward)
        self._add_callbacks()

    def _add_callbacks(self) -> None:
        trainer, every = self._trainer, self._config.evaluation.every_steps
        # Both would write to stdout, which carries results.
        trainer.remove_callback(PrinterCallback)
        trainer.remove_callback(ProgressCallback)
        trainer.add_callback(MetricsLog(self._folder.metrics, self._reward, self._progress))
        trainer.add_callback(self._breaker)
        trainer.add_callback(CheckpointMark(self._folder, trainer.accelerator.wait_for_everyone))
        if every is not None:
            trainer.add_callback(PeriodicEvaluation(self._evaluator, self._folder, every))

    def run(self, checkpoint: str | None, results: Console) -> int:
        """Evaluate, train, save, evaluate, report; what is already there is not done again."""
        before = self._evaluate("before")
        after = load_evaluation(self._folder.evaluation("after"))
        if after is None or not (self._folder.policy / SUMMARIZER_FILE).is_file():
            self._progress.note(f"training from {checkpoint or self._config.policy.path}")
            self._trainer.train(resume_from_checkpoint=checkpoint)
            self._check_finished()
            save_policy(self._trainer, self._config, self._folder.policy)
            after = self._evaluate("after")
        controls = self._controls(after)
        if self._trainer.accelerator.is_main_process:
            report(self._config, self._folder, before, after, controls, console=results)
        self._trainer.accelerator.wait_for_everyone()
        return 0

    def _evaluate(self, name: str) -> Evaluation:
        file = self._folder.evaluation(name)
        stored = load_evaluation(file)
        if stored is not None:
            return stored
        self._progress.note(f"evaluating {name} training")
        evaluation = self._evaluator.policy(name)
        if self._trainer.accelerator.is_main_process:
            evaluation.save(file)
        return evaluation

    def _controls(self, after: Evaluation) -> dict[str, Evaluation]:
        found: dict[str, Evaluation] = {}
        for name in CONTROLS if self._config.evaluation.controls else ():
            file = self._folder.evaluation(name)
            evaluation = load_evaluation(file)
            if evaluation is None:
                self._progress.note(f"evaluating the control: {name}")
                evaluation = self._evaluator.control(name, after)
                if evaluation is not None and self._trainer.accelerator.is_main_process:
                    evaluation.save(file)
            if evaluation is not None:
                found[name] = evaluation
        return found

    def _check_finished(self) -> None:
        if self._breaker.tripped:
            raise ModelError(
                f"stopped at step {self._trainer.state.global_step}: in "
                f"{self._config.reward.max_failed_steps} steps in a row more than "
                f"{self._config.reward.max_failed_share:.0%} of the rollouts had no reward. The "
                f"reasons are in {self._folder.completions} (failure). Put the reconstructor or "
                "judge right and go on with --resume"
            )

    def close(self) -> None:
        """Close the engine's connections on the loop that owns them."""
        asyncio.run_coroutine_threadsafe(self._engine.aclose(), self._trainer.async_loop).result()


def _disable_telemetry() -> None:
    """TRL would report each run to the model hub; whoever wants that sets the variable to 0."""
    chosen = os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    # The hub library read the variable when it was imported.
    constants.HF_HUB_DISABLE_TELEMETRY = chosen.upper() in {"1", "ON", "YES", "TRUE"}


def _quiet_libraries() -> None:
    """stdout carries results and stderr our progress; message contents stay out of logs."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # it warns about every rollout_func
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    logging.getLogger("trl.trainer.grpo_trainer").addFilter(_shows_no_prompt)


def _shows_no_prompt(record: logging.LogRecord) -> bool:
    # TRL prints the whole prompt of a completion without a reward; the failure is in our files.
    return "All reward functions returned None" not in record.getMessage()


def _lora(config: TrainConfig) -> LoraConfig | None:
    lora = config.policy.lora
    if lora is None:
        return None
    return LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=list(lora.target_modules),
        task_type="CAUSAL_LM",
    )

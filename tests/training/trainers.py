"""A real GRPOTrainer of the tiny world, without a run around it."""

from pathlib import Path

from trl import GRPOTrainer

from sumone.config import TrainConfig
from sumone.training.dataset import PromptRows, prompt_dataset, read_instances
from sumone.training.options import grpo_arguments
from sumone.training.preflight import load_tokenizer
from sumone.training.reward_adapter import PolicyReward, Scorer
from sumone.training.rollouts import SharedPrefixRollouts


def make_trainer(
    config: TrainConfig, scorer: Scorer, folder: Path, *, data: str, shared: bool = False
) -> tuple[GRPOTrainer, PromptRows]:
    """A trainer on the instances of a file; `shared`: sampling with shared prefixes."""
    instances = {instance.id: instance for instance in read_instances(data)}
    tokenizer, _ = load_tokenizer(config.policy.path)
    rows = PromptRows(instances, config.prompts, config.reward.budget_tokens)
    trainer = GRPOTrainer(
        model=config.policy.path,
        reward_funcs=PolicyReward(
            scorer,
            instances,
            tokenizer=tokenizer,
            end_ids=frozenset({tokenizer.eos_token_id}),
            settings=config.reward,
            log=None,
        ),
        args=grpo_arguments(config, folder / "checkpoints", processes=1),
        train_dataset=prompt_dataset(rows, list(instances)),
        processing_class=tokenizer,
        rollout_func=SharedPrefixRollouts() if shared else None,
    )
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1  # as the training loop sets it
    return trainer, rows

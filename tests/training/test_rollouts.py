"""Sampling with shared prefixes: the same distribution as the model's, and when it is used."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from training.scripted import ScriptedScorer
from training.trainers import make_trainer
from transformers import AutoConfig, Qwen3Config

from sumone.config import TrainConfig
from sumone.training.decoding import encode_prompts, greedy_completions
from sumone.training.options import grpo_arguments
from sumone.training.rollouts import SharedPrefixRollouts, shares_prefixes

Configure = Callable[..., TrainConfig]


def test_greedy_equals_transformers(configure: Configure, tmp_path: Path) -> None:
    config = configure("reward.budget_tokens=20")
    trainer, _ = make_trainer(config, ScriptedScorer([0.0]), tmp_path, data=config.data.train)
    usual = trainer.model.config._attn_implementation
    prompts = [trainer.train_dataset[k]["prompt"] for k in range(12)]
    ids = encode_prompts(trainer.processing_class, prompts, trainer.chat_template_kwargs)
    by_transformers = greedy_completions(trainer, ids, batch_size=12)
    trainer.rollout_func = SharedPrefixRollouts()
    assert greedy_completions(trainer, ids, batch_size=5) == by_transformers
    assert trainer.model.config._attn_implementation == usual
    assert trainer.model.training


def test_samples_follow_the_temperature(configure: Configure, tmp_path: Path) -> None:
    config = configure("reward.budget_tokens=1", "grpo.temperature=0.1")
    trainer, _ = make_trainer(
        config, ScriptedScorer([0.0]), tmp_path, data=config.data.train, shared=True
    )
    count = 2000
    prompt = trainer.train_dataset[0]["prompt"]
    torch.manual_seed(0)
    rollout = trainer.rollout_func([prompt] * count, trainer)
    assert rollout["logprobs"] is None
    assert len(set(map(tuple, rollout["prompt_ids"]))) == 1
    first = torch.tensor([ids[0] for ids in rollout["completion_ids"]])
    with torch.no_grad():
        logits = trainer.model(torch.tensor([rollout["prompt_ids"][0]])).logits[0, -1]
    expected = (logits / 0.1).softmax(-1)
    # Three sets of tokens by rank, of very different probability.
    order = expected.argsort(descending=True)
    for part in (order[:5], order[5:60], order[60:]):
        share = float(expected[part].sum())
        seen = float(torch.isin(first, part).float().mean())
        assert 0.01 < share < 0.99
        assert abs(seen - share) < 5 * (share * (1 - share) / count) ** 0.5
    end = trainer.processing_class.eos_token_id
    assert all(ids == [token] for ids, token in zip(rollout["completion_ids"], first, strict=True))
    assert expected[end] == 0 or (first == end).any() or expected[end] * count < 10


@pytest.mark.parametrize(
    "option",
    ["grpo.top_p=0.9", "grpo.top_k=20", "grpo.min_p=0.1", "grpo.repetition_penalty=1.2",
     "grpo.generation_kwargs={num_beams: 2}"],
)  # fmt: skip
def test_other_sampling_is_left_to_trl(configure: Configure, option: str) -> None:
    plain = AutoConfig.from_pretrained(configure().policy.path)
    arguments = grpo_arguments(configure(), Path("x"), processes=1)
    assert shares_prefixes(arguments, plain)
    special = grpo_arguments(configure(option), Path("x"), processes=1)
    assert not shares_prefixes(special, plain)


def test_other_architectures_are_left_to_trl(configure: Configure) -> None:
    arguments = grpo_arguments(configure(), Path("x"), processes=1)
    sliding = Qwen3Config(
        num_hidden_layers=4, use_sliding_window=True, sliding_window=8, max_window_layers=2
    )
    assert not shares_prefixes(arguments, sliding)

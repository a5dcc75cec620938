"""A tiny random policy and reconstructor, and a few dozen hand-made instances."""

import json
import os
import random
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch
import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from sumone.config import TrainConfig, load_train_config
from sumone.types import CompactionInstance, Message, ToolCall

torch.set_num_threads(1)

SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]


def make_instance(number: int, task: str = "") -> CompactionInstance:
    """An operations conversation with a few values that only the history holds."""
    generator = random.Random(number)
    history: list[Message] = []
    facts = []
    for step in range(4):
        host, value = f"db{generator.randint(1, 9)}", generator.randint(100, 999)
        facts.append(f"{host} {value}")
        call = ToolCall(id=f"c{step}", name="read_metric", arguments=json.dumps({"host": host}))
        history.append(Message(role="assistant", calls=(call,)))
        history.append(
            Message(role="tool", call_id=f"c{step}", name="read_metric", text=f"{host} {value} ms")
        )
    return CompactionInstance(
        id=f"i{number}",
        domain="operations",
        task=task or f"task-{number}",
        preamble=(Message(role="user", text="Find the slow host."),),
        history=tuple(history),
        recent=(Message(role="assistant", text="Next I compare."),),
        extract="\n".join(facts),
    )


def write_instances(file: Path, numbers: range) -> None:
    lines = [make_instance(n).model_dump_json() + "\n" for n in numbers]
    file.write_text("".join(lines), encoding="utf-8")


def make_model(folder: Path, seed: int, *, layers: int = 1, width: int = 64) -> Path:
    """A random Qwen3 model of about 0.1M parameters with a byte-level tokenizer."""
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([make_instance(n).model_dump_json() for n in range(20)], trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    template = files("trl").joinpath("chat_templates/qwen3.jinja").read_text(encoding="utf-8")
    fast.chat_template = template
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(fast),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=fast.eos_token_id,
        pad_token_id=fast.pad_token_id,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two models, training and held-out instances."""
    folder = tmp_path_factory.mktemp("world")
    make_model(folder / "policy", 1)
    make_model(folder / "reconstructor", 2)
    write_instances(folder / "train.jsonl", range(24))
    write_instances(folder / "heldout.jsonl", range(100, 106))
    return folder


@pytest.fixture
def settings(world: Path, tmp_path: Path) -> dict[str, Any]:
    """A configuration as a tree: 2 prompts x 4 samples, 4 steps."""
    return {
        "seed": 3,
        "output_dir": str(tmp_path / "run"),
        "prompts": "compact",
        "policy": {"path": str(world / "policy"), "max_prompt_tokens": 2048},
        "reconstructor": {"path": str(world / "reconstructor"), "max_model_tokens": 4096},
        "judge": {"kind": "lexical"},
        "data": {"train": str(world / "train.jsonl"), "heldout": str(world / "heldout.jsonl")},
        "masking": {"block_tokens": 24, "ratio": 0.5},
        "reward": {
            # A random reconstructor writes nothing usable; its likelihoods are numbers.
            "objective": "information_gain",
            "budget_tokens": 12,
            "length_penalty": 0.1,
        },
        "evaluation": {"num_instances": 6},
        "prompts_per_step": 2,
        "grpo": {
            "max_steps": 4,
            "num_generations": 4,
            "per_device_train_batch_size": 8,
            "gradient_accumulation_steps": 1,
            "learning_rate": 1e-3,
            "save_steps": 2,
            "gradient_checkpointing": False,
        },
    }


@pytest.fixture
def configure(settings: dict[str, Any], tmp_path: Path) -> Callable[..., TrainConfig]:
    """Load the configuration with `key=value` overrides."""

    def load(*overrides: str) -> TrainConfig:
        file = tmp_path / "config.yaml"
        file.write_text(yaml.safe_dump(settings), encoding="utf-8")
        return load_train_config(file, overrides)

    return load

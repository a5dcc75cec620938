"""Builds the embedded default: data, tokenizer and both tiny models (`make pretrain`)."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from sumone.config import TrainConfig, load_train_config
from sumone.data.incident_world import NAMES, Split, make_episode, make_instance
from sumone.models.chat_text import PromptEncoder
from sumone.render import render_text
from sumone.tokens import TokenizerTokens, Tokens
from sumone.training.tiny_model import Recipe, new_model
from sumone.training.tiny_tokenizer import chat_tokenizer, tokenizer_texts, train_tokenizer
from sumone.training.warmup import recovery, train_policy, train_reconstructor
from sumone.training.warmup_copying import Exercises
from sumone.training.warmup_examples import ExampleMaker

__all__ = ["build_data", "build_tokenizer", "exercises_of", "main", "maker_of", "pretrain"]

NUM_TRAIN, NUM_HELDOUT = 480, 128
"""Instances of the shipped data."""


def main(config: str = "configs/tiny.yaml") -> int:
    """Rebuild everything that the configuration of the embedded default points to."""
    console = Console(stderr=True)
    pretrain(load_train_config(config), Recipe(), console.print)
    return 0


def pretrain(config: TrainConfig, recipe: Recipe, report: Callable[[str], None]) -> None:
    """Make data, tokenizer, reconstructor and policy, and write them to the configured places."""
    tokenizer = build_tokenizer(recipe)
    tokens = TokenizerTokens(tokenizer.backend_tokenizer, "tiny")
    recipe = dataclasses.replace(recipe, vocabulary=_round_up(len(tokenizer), 8))
    maker = maker_of(config, recipe, tokenizer, tokens)
    build_data(maker, "train", NUM_TRAIN, Path(config.data.train))
    build_data(maker, "heldout", NUM_HELDOUT, Path(config.data.heldout))
    report(f"{NUM_TRAIN} training and {NUM_HELDOUT} held-out instances")
    model = new_model(recipe, pad_id=tokenizer.pad_token_id, end_id=tokenizer.eos_token_id)
    report(f"{sum(p.numel() for p in model.parameters()):,} parameters")
    train_reconstructor(model, maker, exercises_of(tokenizer, maker), recipe, report)
    report(f"hidden values recovered: {recovery(model, maker, num=64):.3f}")
    _save(model, tokenizer, config.reconstructor.path or "")
    train_policy(model, maker, recipe, report)
    _save(model, tokenizer, config.policy.path)


def build_tokenizer(recipe: Recipe) -> PreTrainedTokenizerFast:
    """The tokenizer of both models."""
    return chat_tokenizer(train_tokenizer(tokenizer_texts(3000), vocabulary=recipe.vocabulary))


def maker_of(
    config: TrainConfig, recipe: Recipe, tokenizer: PreTrainedTokenizerFast, tokens: Tokens
) -> ExampleMaker:
    """What draws the examples of the warm-up."""
    words = {index: text.strip(" Ġ") for text, index in tokenizer.get_vocab().items()}
    return ExampleMaker(
        config,
        tokens,
        PromptEncoder(tokenizer),
        end_id=tokenizer.eos_token_id,
        memory_share=recipe.memory_share,
        value_ids=frozenset(i for i, w in words.items() if w in NAMES or w.strip(":.").isdigit()),
    )


def exercises_of(tokenizer: PreTrainedTokenizerFast, maker: ExampleMaker) -> Exercises:
    """Exercises from the tokens that occur in the world."""
    used: set[int] = set()
    for index in range(200):
        episode = make_episode("warmup", index, memory_share=maker.memory_share)
        used.update(maker.encoder.text(render_text(episode.trajectory.messages)))
    numbers = {maker.encoder.text(str(digit))[0] for digit in range(10)}
    vocabulary = sorted(used - numbers - set(maker.encoder.text("\n")))
    return Exercises(maker.encoder, vocabulary, tokenizer.eos_token_id)


def build_data(maker: ExampleMaker, split: Split, count: int, file: Path) -> None:
    """Write the first `count` instances of a split, one JSON object a line."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8") as out:
        for index in range(count):
            instance, _ = make_instance(
                split,
                index,
                memory_share=maker.memory_share,
                settings=maker.config.compaction,
                tokens=maker.tokens,
            )
            out.write(instance.model_dump_json(exclude_defaults=True) + "\n")


def _save(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: str) -> None:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple

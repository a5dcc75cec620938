"""The warm-up of the tiny models, and the models that ship."""

import dataclasses
import random
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedTokenizerFast,
    Qwen3ForCausalLM,
)
from trl.chat_template_utils import get_training_chat_template

from sumone.config import TrainConfig, load_train_config
from sumone.data.incident_world import make_episode
from sumone.tokens import TokenizerTokens
from sumone.training.pretrain import build_tokenizer, exercises_of, maker_of
from sumone.training.tiny_model import Recipe, new_model
from sumone.training.warmup import recovery, train_policy, train_reconstructor
from sumone.training.warmup_examples import IGNORED, Example, ExampleMaker, fork, weak_extract

ROOT = Path(__file__).parents[2]
SMALL = dataclasses.replace(Recipe(), layers=2, inner=64, ramp_steps=4, steps=6, examples=2)


@pytest.fixture(scope="module")
def config() -> TrainConfig:
    return load_train_config(ROOT / "configs" / "tiny.yaml")


@pytest.fixture(scope="module")
def tokenizer(config: TrainConfig) -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(ROOT / config.policy.path)


@pytest.fixture(scope="module")
def maker(config: TrainConfig, tokenizer: PreTrainedTokenizerFast) -> ExampleMaker:
    tokens = TokenizerTokens(tokenizer.backend_tokenizer, "tiny")
    return maker_of(config, Recipe(), tokenizer, tokens)


def random_model(tokenizer: PreTrainedTokenizerFast, recipe: Recipe) -> Qwen3ForCausalLM:
    sized = dataclasses.replace(recipe, vocabulary=len(tokenizer))
    return new_model(sized, pad_id=tokenizer.pad_token_id, end_id=tokenizer.eos_token_id)


@given(st.text(max_size=60))
def test_any_text_round_trips(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    ids = tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
    shown = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    assert shown == text


def test_the_tokenizer_has_the_markers_of_qwen3(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.pad_token == "<|endoftext|>"
    for marker in ("<|im_start|>", "<think>", "</tool_call>", "<tool_response>"):
        assert len(tokenizer.encode(marker)) == 1
    # TRL gives a training template only for templates that it knows.
    assert get_training_chat_template(tokenizer)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "x"}],
        add_generation_prompt=True,
        tokenize=False,
        enable_thinking=False,
    )
    assert prompt.endswith("<think>\n\n</think>\n\n")


def test_the_tokenizer_is_the_one_the_recipe_makes(tokenizer: PreTrainedTokenizerFast) -> None:
    made = build_tokenizer(Recipe())
    assert made.get_vocab() == tokenizer.get_vocab()
    assert made.chat_template == tokenizer.chat_template


def test_shipped_models_are_small_and_what_the_recipe_says(
    config: TrainConfig, tokenizer: PreTrainedTokenizerFast
) -> None:
    made = random_model(tokenizer, Recipe()).config
    total = 0
    for path in (config.policy.path, config.reconstructor.path or ""):
        folder = ROOT / path
        total += sum(file.stat().st_size for file in folder.iterdir())
        model = AutoModelForCausalLM.from_pretrained(folder)
        assert type(model).__name__ == "Qwen3ForCausalLM"
        assert sum(p.numel() for p in model.parameters()) <= 2_000_000
        assert model.config.tie_word_embeddings
        assert model.config.head_dim == 64
        for name in ("hidden_size", "intermediate_size", "num_hidden_layers"):
            assert getattr(model.config, name) == getattr(made, name)
    assert total <= 16e6


def test_shipped_reconstructor_reads_summary_and_history(
    config: TrainConfig, maker: ExampleMaker
) -> None:
    model = AutoModelForCausalLM.from_pretrained(ROOT / (config.reconstructor.path or ""))
    informed = recovery(model, maker, num=24)
    assert informed > 0.9
    # Values repeat inside a block, so some can be written without a summary; most cannot.
    assert recovery(model, maker, num=24, with_summary=False) < informed - 0.2


def test_forked_rows_equal_one_row_per_prompt(tokenizer: PreTrainedTokenizerFast) -> None:
    model = random_model(tokenizer, SMALL).eval()
    rng = random.Random(0)
    shared = [rng.randrange(300) for _ in range(9)]
    prompts = [shared + [rng.randrange(300) for _ in range(n)] for n in (2, 5, 3)]
    answers = [[rng.randrange(300) for _ in range(n)] for n in (4, 1, 6)]

    def losses(examples: list[Example]) -> list[float]:
        batch = fork(examples)
        with torch.inference_mode():
            hidden = model.model(
                input_ids=batch.ids, position_ids=batch.positions, attention_mask=batch.seen
            ).last_hidden_state
            logits = model.lm_head(hidden)
        learned = batch.labels != IGNORED
        found = torch.nn.functional.cross_entropy(
            logits[learned], batch.labels[learned], reduction="none"
        )
        return found.tolist()

    together = losses([Example(prompts, answers)])
    apart = [x for p, a in zip(prompts, answers, strict=True) for x in losses([Example([p], [a])])]
    assert len(together) == 11
    assert together == pytest.approx(apart, abs=1e-4)


@given(st.integers(0, 500), st.floats(0, 1))
def test_weak_extracts_hold_what_their_shares_say(index: int, share: float) -> None:
    entries = make_episode("warmup", index, memory_share=0.3).entries
    rng = random.Random(index)
    facts = [entry.fact for entry in entries if entry.fact]
    full = weak_extract(entries, rng, fact_share=1.0, vague_share=0.0)
    assert full == "\n".join(facts)
    assert weak_extract(entries, rng, fact_share=0.0, vague_share=0.0) == ""
    some = weak_extract(entries, rng, fact_share=share, vague_share=1 - share)
    assert len(some.split("\n")) <= len(entries)
    assert all(line in facts or line.endswith(" checked") for line in some.split("\n"))


def test_exercises_teach_what_they_say(
    tokenizer: PreTrainedTokenizerFast, maker: ExampleMaker
) -> None:
    exercises = exercises_of(tokenizer, maker)
    batch = exercises.copying(random.Random(0), rows=3, level=4)
    for ids, labels in zip(batch.ids.tolist(), batch.labels.tolist(), strict=True):
        learned = [i for i, label in enumerate(labels) if label != IGNORED]
        assert [ids[i + 1] for i in learned] == [labels[i] for i in learned]
        copied = ids[learned[0] :]
        assert copied == ids[: len(copied)]
    found = exercises.finding(random.Random(0), rows=4, lines=5)
    for ids, labels in zip(found.ids.tolist(), found.labels.tolist(), strict=True):
        answer = [label for label in labels if label != IGNORED]
        assert answer[-1] == tokenizer.eos_token_id
        line = answer[1:-1]  # number, line, newline: as it stands above
        width = len(line)
        assert any(ids[i : i + width] == line for i in range(len(ids) - 2 * width))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_recipe_learns_at_reduced_size(
    tokenizer: PreTrainedTokenizerFast, maker: ExampleMaker
) -> None:
    recipe = dataclasses.replace(Recipe(), ramp_steps=200, steps=260, policy_steps=40)
    model = random_model(tokenizer, recipe)
    start = recovery(model, maker, num=16)
    train_reconstructor(model, maker, exercises_of(tokenizer, maker), recipe, print)
    learned = recovery(model, maker, num=16)
    assert start < 0.2
    assert learned > 0.6
    assert learned > recovery(model, maker, num=16, with_summary=False) + 0.1
    said: list[str] = []
    train_policy(model, maker, recipe, said.append)
    assert float(said[-1].split()[-1]) > 0.5

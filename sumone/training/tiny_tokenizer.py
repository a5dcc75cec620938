"""The tokenizer of the tiny models: byte-level BPE, made by the project from its own world.

Any text round-trips. The surface grammar of rendered messages, markers and JSON keys is cut into
few tokens; numbers are cut into groups of two digits. Special tokens
and chat template are those of Qwen3; the template is taken from the installed TRL, which then
recognises it.
"""

import json
from collections.abc import Iterable, Iterator
from importlib.resources import files

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from sumone.data.incident_world import make_episode
from sumone.masking import missing_marker
from sumone.render import render_text

__all__ = ["chat_tokenizer", "tokenizer_texts", "train_tokenizer"]

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
_MARKUP = (
    "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>",
)  # fmt: skip
_PATTERN = "|".join(
    (
        r"\[[a-z]+(?: [a-z_]+)?\]\n?",  # headings: [call read_state]
        r"Memory of this conversation[^\n]*\n",  # first line of a memory
        r"<[a-z]+ [a-z]+=\"|\" [a-z]+=\"|\"/>\n?",  # markers
        r"\{\"[a-z_]+\": ?\"?|\", ?\"[a-z_]+\": ?\"?|\"?\}\n?",  # JSON objects
        r"\]\n",
        r" ?\p{N}{1,2}[:.]?",  # numbers by two digits
        r" ?\p{L}+_?",  # words
        r" ?[^\s\p{L}\p{N}]+",
        r"\s+",
    )
)
_ENGLISH = """The agent works on a case for a customer and keeps a short memory of what it has done.
If the result of a call is an error, read the message, change the arguments and try again.
Write a report that says who did what, when it happened, how much it cost and what is still open.
"""


def tokenizer_texts(num_episodes: int) -> Iterator[str]:
    """What the tokenizer is trained on: episodes of the warm-up split, markers, some English and
    some JSON."""
    for index in range(num_episodes):
        episode = make_episode("warmup", index, memory_share=0.3)
        yield render_text(episode.trajectory.messages)
        yield episode.extract + "\n"
        marker = missing_marker(index % 10, f"{index * 40503 % 65536:04x}")
        yield marker
        yield marker + "\n"
        yield f"{START}user\n[summary]\n[fill]\n{END}\n{START}assistant\n<think>\n\n</think>\n\n"
    for index in range(num_episodes // 20):
        yield _ENGLISH
        yield json.dumps(
            {"name": "tool", "arguments": {"path": "a/b.py", "line": index}, "ok": True}
        )


def train_tokenizer(texts: Iterable[str], *, vocabulary: int) -> Tokenizer:
    """Train the tokenizer; at most `vocabulary` tokens, special ones and all bytes included."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, START, END, *_MARKUP],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=2,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def chat_tokenizer(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """The tokenizer with chat template, end and padding token, ready to be saved with a model."""
    template = files("trl").joinpath("chat_templates", "qwen3.jinja").read_text(encoding="utf-8")
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = template
    return wrapped

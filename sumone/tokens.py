"""Counting tokens: a real tokenizer where one is at hand, a named byte estimate elsewhere.

Text is always counted as ordinary text: a literal `<|im_end|>` inside an observation is not a
special token. Lone surrogates count as U+FFFD.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer

from sumone.errors import ConfigError
from sumone.types import clean_text

__all__ = ["ByteEstimate", "TokenizerTokens", "Tokens", "load_tokens"]


class Tokens(Protocol):
    """What the core needs of a tokenizer."""

    @property
    def name(self) -> str:
        """Which tokenizer counts; estimates say so in their name."""
        ...

    def count(self, text: str) -> int:
        """Number of tokens of one text."""
        ...

    def count_batch(self, texts: Sequence[str]) -> list[int]:
        """Number of tokens of each text, each counted alone."""
        ...

    def starts(self, text: str) -> list[int]:
        """Character offset at which each token starts: increasing, never inside a code point."""
        ...


class TokenizerTokens:
    """A Hugging Face `tokenizers.Tokenizer` as a counter."""

    def __init__(self, tokenizer: Tokenizer, name: str) -> None:
        # A private copy: counting must not change how the owner encodes special tokens.
        self._tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.name = name

    def count(self, text: str) -> int:
        """See `Tokens.count`."""
        return len(self._tokenizer.encode(clean_text(text), add_special_tokens=False))

    def count_batch(self, texts: Sequence[str]) -> list[int]:
        """See `Tokens.count_batch`."""
        cleaned = [clean_text(text) for text in texts]
        encoded = self._tokenizer.encode_batch_fast(cleaned, add_special_tokens=False)
        return [len(item) for item in encoded]

    def starts(self, text: str) -> list[int]:
        """See `Tokens.starts`."""
        encoding = self._tokenizer.encode(clean_text(text), add_special_tokens=False)
        found: list[int] = []
        for start, _ in encoding.offsets:
            # Byte-level tokens that share one code point share its offset: keep the first.
            if not found or start > found[-1]:
                found.append(start)
        return found


class ByteEstimate:
    """About one token per three UTF-8 bytes: an estimate that never undercounts CJK text."""

    name = "estimate: UTF-8 bytes / 3"

    def count(self, text: str) -> int:
        """See `Tokens.count`."""
        return math.ceil(len(text.encode("utf-8", "replace")) / 3)

    def count_batch(self, texts: Sequence[str]) -> list[int]:
        """See `Tokens.count_batch`."""
        return [self.count(text) for text in texts]

    def starts(self, text: str) -> list[int]:
        """See `Tokens.starts`."""
        if text.isascii():
            return list(range(0, len(text), 3))
        found, room = [], 0
        for index, character in enumerate(text):
            size = len(character.encode("utf-8", "replace"))
            if room < size:
                found.append(index)
                room = 3
            room -= size
        return found


def load_tokens(path: str | Path) -> TokenizerTokens:
    """The tokenizer of a model folder (`tokenizer.json`) or of one such file.

    Raises ConfigError where there is none.
    """
    file = Path(path)
    if file.is_dir():
        file = file / "tokenizer.json"
    if not file.is_file():
        raise ConfigError(
            f"no tokenizer at {file}: give a model folder that holds tokenizer.json, "
            "or the path of such a file"
        )
    return TokenizerTokens(Tokenizer.from_file(str(file)), name=str(path))

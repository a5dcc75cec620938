"""Chat prompts as token ids, so that nothing inside a message can open a chat turn.

The template is filled with placeholders; its own special tokens become ids, and all the rest,
with the contents in place, is encoded as ordinary text. Without special-token text in the
contents the result equals the template encoded in one piece.
"""

import re
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from sumone.errors import ConfigError
from sumone.types import ChatMessage, clean_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["PromptEncoder"]


class PromptEncoder:
    """Encodes chat prompts with the template of a transformers tokenizer."""

    def __init__(self, tokenizer: "PreTrainedTokenizerFast") -> None:
        if not tokenizer.chat_template:
            raise ConfigError(
                f"the tokenizer in {tokenizer.name_or_path} has no chat template: use an "
                "instruction model, or add chat_template.jinja to its folder"
            )
        self._owner = tokenizer
        # A private copy: the owner's truncation, padding and special parsing stay as they are.
        self._plain = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._plain.encode_special_tokens = True
        self._plain.no_truncation()
        self._plain.no_padding()
        self._special = {
            str(token): index
            for index, token in tokenizer.added_tokens_decoder.items()
            if token.special
        }
        self._forms: dict[tuple[str, ...], list[list[int | str]]] = {}

    def text(self, text: str) -> list[int]:
        """Ids of ordinary text: a literal special token is not one."""
        return list(self._plain.encode(clean_text(text), add_special_tokens=False).ids)

    def prompts(
        self, prompts: Sequence[Sequence[ChatMessage]], answers: Sequence[str] | None = None
    ) -> list[list[int]]:
        """Ids of each prompt up to where the assistant's answer starts, thinking off.

        `answers` are beginnings of the answers, as text, that go behind the prompts.
        """
        runs: list[list[int | str]] = []
        for number, messages in enumerate(prompts):
            answer = answers[number] if answers else ""
            runs.append(self._runs(messages, answer))
        texts = [clean_text(run) for form in runs for run in form if isinstance(run, str)]
        encoded = iter(self._plain.encode_batch_fast(texts, add_special_tokens=False))
        result: list[list[int]] = []
        for form in runs:
            ids: list[int] = []
            for run in form:
                if isinstance(run, int):
                    ids.append(run)
                else:
                    ids += next(encoded).ids
            result.append(ids)
        return result

    def _runs(self, messages: Sequence[ChatMessage], answer: str) -> list[int | str]:
        """Special-token ids and the texts between them."""
        roles = tuple(message["role"] for message in messages)
        form = self._forms.get(roles)
        if form is None:
            form = self._forms[roles] = self._form(roles)
        runs: list[int | str] = []
        for part in form:
            if len(part) == 1 and isinstance(part[0], int) and part[0] >= 0:
                runs.append(part[0])
                continue
            text = "".join(
                piece if isinstance(piece, str) else messages[-piece - 1]["content"]
                for piece in part
            )
            runs.append(text)
        if answer:
            if runs and isinstance(runs[-1], str):
                runs[-1] += answer
            else:
                runs.append(answer)
        return runs

    def _form(self, roles: tuple[str, ...]) -> list[list[int | str]]:
        """The template for these roles: ids of its special tokens (non-negative), texts, and
        message number n as -n - 1."""
        key = uuid.uuid4().hex
        marks = [f"{key}x{number}x" for number in range(len(roles))]
        rendered = self._owner.apply_chat_template(
            [{"role": role, "content": mark} for role, mark in zip(roles, marks, strict=True)],
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=False,
        )
        if not isinstance(rendered, str):
            raise ConfigError(f"the chat template of {self._owner.name_or_path} gives no text")
        special = sorted(self._special, key=len, reverse=True)
        pattern = "|".join([f"{key}x[0-9]+x", *map(re.escape, special)])
        form: list[list[int | str]] = []
        joined = False
        for piece in re.split(f"({pattern})", rendered):
            if piece in self._special:
                form.append([self._special[piece]])
                joined = False
            elif piece:
                found = piece.startswith(key)
                item: int | str = -int(piece[len(key) + 1 : -1]) - 1 if found else piece
                if joined:
                    form[-1].append(item)
                else:
                    form.append([item])
                joined = True
        used = {item for part in form for item in part if isinstance(item, int)}
        if any(-number - 1 not in used for number in range(len(roles))):
            raise ConfigError(
                f"the chat template of {self._owner.name_or_path} drops or changes a message "
                f"(roles {', '.join(roles)})"
            )
        return form

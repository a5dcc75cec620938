"""A summary by a model: any `ChatModel` with the summarize prompt, and where to find one.

A trained folder carries prompt style, budget and compaction settings in its `sumone.json`, so it
is used as it was trained (Section 3.4).
"""

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from sumone.config import CompactionSettings, EndpointSettings, ModelSettings
from sumone.errors import ConfigError, ModelError
from sumone.models.chat import ChatModel, Completion, open_model
from sumone.prompts import Style, summarize_prompt
from sumone.summarizers import Summarizer
from sumone.summarizers.rule_based import RuleBasedSummarizer
from sumone.tokens import ByteEstimate, Tokens, load_tokens
from sumone.types import CompactionInstance

__all__ = ["RULE_BASED", "ModelSummarizer", "OpenedSummarizer", "SummarizerCard", "open_summarizer"]

RULE_BASED = "rule-based"
"""Name of the summarizer that needs no model."""

_CARD_FILE = "sumone.json"
_THOUGHT = re.compile(r"\A\s*<think>.*?(?:</think>|\Z)", re.DOTALL)
_NOTHING = re.compile(
    r"(?i)[\s*_>\-]*(?:\(?(?:none|empty|nothing|n/?a|no (?:prior|previous) history)\)?\.?)?[\s*_]*"
)

_log = logging.getLogger(__name__)


class SummarizerCard(BaseModel):
    """`sumone.json` beside a trained summarizer: how it wants to be used."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    prompts: Literal["standard", "short", "compact"] = "standard"
    """Style of its prompts."""
    budget_tokens: int = 2048
    """L_max, in its own tokens."""
    compaction: CompactionSettings = CompactionSettings()
    """How its training instances were cut."""


class ModelSummarizer:
    """Asks a model for the summary; an answer that says nothing is an error, never a summary."""

    def __init__(self, model: ChatModel, *, style: Style) -> None:
        self._model = model
        self._style = style

    async def summarize(self, instance: CompactionInstance, *, budget_tokens: int) -> str:
        """See `Summarizer.summarize`. A summary that was cut at the budget is asked for once
        more, shorter; if that is cut too, its unfinished last line is left out."""
        answer = await self._ask(instance, budget_tokens, asked_tokens=budget_tokens)
        # A compact prompt names no budget, so asking again would give the same answer.
        if answer.finish_reason == "length" and self._style != "compact":
            again = await self._ask(instance, budget_tokens, asked_tokens=budget_tokens // 2)
            answer = again if _text(again) else answer
        text = _text(answer)
        if answer.finish_reason == "length":
            _log.warning("%s: summary cut at %d tokens", self._model.name, budget_tokens)
            text = _whole_lines(text)
        if not _says_something(text):
            raise ModelError(
                f"{self._model.name} wrote no summary (finish reason {answer.finish_reason!r}, "
                f"{len(answer.text)} characters): the history is kept; try another summarizer"
            )
        return text

    async def _ask(
        self, instance: CompactionInstance, max_tokens: int, *, asked_tokens: int
    ) -> Completion:
        prompt = summarize_prompt(instance, style=self._style, budget_tokens=max(1, asked_tokens))
        return await self._model.complete(prompt, max_tokens=max_tokens, temperature=0.0)


def _text(answer: Completion) -> str:
    return _THOUGHT.sub("", answer.text).strip()


def _whole_lines(text: str) -> str:
    """Without the unfinished end: up to the last line end, else the last sentence end."""
    for end in (text.rfind("\n"), text.rfind(". ") + 1):
        if _says_something(text[: max(0, end)]):
            return text[:end].rstrip()
    return text


def _says_something(text: str) -> bool:
    lines = (line.strip() for line in text.split("\n"))
    return any(line and not line.startswith("#") and not _NOTHING.fullmatch(line) for line in lines)


@dataclass(frozen=True, slots=True)
class OpenedSummarizer:
    """A summarizer, ready to use, and how it wants to be used."""

    name: str
    """What the user named."""
    summarizer: Summarizer
    """What writes the summaries."""
    tokens: Tokens
    """Its own counter where it has one, else the one that was given."""
    card: SummarizerCard
    """Its settings; the defaults where it has none."""
    model: ChatModel | None = None
    """The model behind it."""

    async def aclose(self) -> None:
        """Release the model."""
        if self.model is not None:
            await self.model.aclose()


def open_summarizer(
    where: str | ModelSettings,
    *,
    model_name: str = "",
    api_key_env: str = "",
    tokens: Tokens | None = None,
) -> OpenedSummarizer:
    """Open `rule-based`, a run folder, a model folder, an address ending in `/v1`, or settings.

    `model_name` is the model behind an address, `api_key_env` the environment variable with its
    key. `tokens` counts for summarizers that have no tokenizer here (default: a byte estimate).
    Raises ConfigError where there is nothing to open.
    """
    counter = tokens or ByteEstimate()
    if isinstance(where, ModelSettings):
        if where.path is not None:
            return _open_folder(where.path, where)
        name = where.endpoint.base_url if where.endpoint else ""
        return _opened(name, where, counter, SummarizerCard())
    if where == RULE_BASED:
        return OpenedSummarizer(where, RuleBasedSummarizer(counter), counter, SummarizerCard())
    if where.startswith(("http://", "https://")):
        if not model_name:
            raise ConfigError(f"summarizer {where}: say which model of it with --model NAME")
        endpoint = EndpointSettings(base_url=where, model=model_name, api_key_env=api_key_env)
        return _opened(where, ModelSettings(endpoint=endpoint), counter, SummarizerCard())
    return _open_folder(where, ModelSettings(path=where))


def _open_folder(where: str, settings: ModelSettings) -> OpenedSummarizer:
    folder = Path(where)
    if (folder / "policy").is_dir():
        folder = folder / "policy"  # a run folder
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"no summarizer at {where}: give a run folder with policy/, a model folder with "
            f"config.json, an address such as http://host:port/v1, or {RULE_BASED}"
        )
    settings = settings.model_copy(update={"path": str(folder)})
    return _opened(where, settings, load_tokens(folder), _read_card(folder / _CARD_FILE))


def _opened(
    name: str, settings: ModelSettings, tokens: Tokens, card: SummarizerCard
) -> OpenedSummarizer:
    model = open_model(settings)
    return OpenedSummarizer(name, ModelSummarizer(model, style=card.prompts), tokens, card, model)


def _read_card(file: Path) -> SummarizerCard:
    if not file.is_file():
        return SummarizerCard()  # an untrained model: prompted with the defaults
    try:
        return SummarizerCard.model_validate_json(file.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is no description of a summarizer: {error}") from error

"""The model summarizer and what `--summarizer` can name, against a model that really answers."""

import asyncio
from pathlib import Path

import pytest

from sumone.config import CompactionSettings, EndpointSettings, ModelSettings
from sumone.errors import ConfigError, ModelError
from sumone.models.chat import open_model
from sumone.prompts import Style
from sumone.summarizers.model import (
    RULE_BASED,
    ModelSummarizer,
    SummarizerCard,
    open_summarizer,
)
from sumone.summarizers.rule_based import RuleBasedSummarizer
from sumone.types import CompactionInstance, Message
from tests.fake_openai import FakeOpenAI, Received, Text

INSTANCE = CompactionInstance(
    id="i",
    preamble=(Message(role="user", text="the task"),),
    history=(Message(role="assistant", text="I found invoice 4471."),),
)


def run(*answers: tuple[str, str], style: Style = "standard") -> tuple[str, list[Received]]:
    """The summary that these answers (text, finish reason) of an endpoint give, and the requests."""
    with FakeOpenAI(lambda request: Text(*answers[request.number])) as server:
        endpoint = EndpointSettings(base_url=server.url, model="scripted")
        model = open_model(ModelSettings(endpoint=endpoint))

        async def summarize() -> str:
            try:
                summarizer = ModelSummarizer(model, style=style)
                return await summarizer.summarize(INSTANCE, budget_tokens=100)
            finally:
                await model.aclose()

        return asyncio.run(summarize()), server.requests


def test_asks_greedily_within_the_budget_with_the_history_in_the_prompt() -> None:
    summary, requests = run(("  Invoice 4471 was found.\n", "stop"))
    assert summary == "Invoice 4471 was found."
    assert "I found invoice 4471." in requests[0].prompt
    assert "at most 75 words" in requests[0].prompt
    assert (requests[0].body["max_tokens"], requests[0].body["temperature"]) == (100, 0.0)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "  \n",
        "<think>hm</think>",
        "<think>never ended",
        "## Active context\nNone\n## Open loops\n- n/a",
        "(no prior history)",
    ],
)
def test_an_answer_that_says_nothing_is_an_error(answer: str) -> None:
    with pytest.raises(ModelError, match="wrote no summary"):
        run((answer, "stop"))


def test_thinking_is_left_out() -> None:
    assert run(("<think>let me see</think>\nFound it.", "stop"))[0] == "Found it."


def test_a_cut_summary_is_asked_for_once_more_shorter() -> None:
    summary, requests = run(("one two thr", "length"), ("one two", "stop"))
    assert summary == "one two"
    assert "at most 37 words" in requests[1].prompt
    assert requests[1].body["max_tokens"] == 100


def test_a_summary_cut_twice_loses_its_unfinished_end() -> None:
    assert run(("a\nb\nc", "length"), ("- x 1\n- y 2\n- z", "length"))[0] == "- x 1\n- y 2"
    assert run(("a", "length"), ("It is 12. It wa", "length"))[0] == "It is 12."
    with pytest.raises(ModelError):
        run(("", "length"), ("", "length"))


def test_a_compact_model_is_asked_once() -> None:
    summary, requests = run(("fact 1\nfact 2\nfa", "length"), style="compact")
    assert summary == "fact 1\nfact 2"
    assert len(requests) == 1
    assert "[summary]" in requests[0].prompt


def test_rule_based_needs_nothing() -> None:
    opened = open_summarizer(RULE_BASED)
    assert isinstance(opened.summarizer, RuleBasedSummarizer)
    assert "estimate" in opened.tokens.name
    assert asyncio.run(opened.summarizer.summarize(INSTANCE, budget_tokens=50)).startswith("##")
    asyncio.run(opened.aclose())


def test_an_address_needs_the_name_of_a_model() -> None:
    with pytest.raises(ConfigError, match="--model NAME"):
        open_summarizer("http://127.0.0.1:1/v1")
    opened = open_summarizer("http://127.0.0.1:1/v1", model_name="m")
    assert opened.card == SummarizerCard()
    settings = ModelSettings(endpoint=EndpointSettings(base_url="http://127.0.0.1:1/v1", model="m"))
    assert open_summarizer(settings).name == "http://127.0.0.1:1/v1"


def test_a_folder_without_a_model_is_named_with_what_would_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no summarizer at .*run folder.*rule-based"):
        open_summarizer(str(tmp_path))
    with pytest.raises(ConfigError, match="no summarizer at"):
        open_summarizer(ModelSettings(path=str(tmp_path / "absent")))


def test_the_card_of_a_trained_folder_is_read_and_checked() -> None:
    text = '{"format": 1, "prompts": "compact", "budget_tokens": 40, "trained": {"steps": 3},' + (
        '"compaction": {"threshold_tokens": 500, "recent_tokens": 60}}'
    )
    card = SummarizerCard.model_validate_json(text)
    assert card.prompts == "compact"
    assert card.budget_tokens == 40
    assert card.compaction == CompactionSettings(threshold_tokens=500, recent_tokens=60)
    with pytest.raises(ValueError, match="budget_tokens"):
        SummarizerCard.model_validate_json('{"budget_tokens": "many"}')

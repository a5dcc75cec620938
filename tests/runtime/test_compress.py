"""Compacting a finished transcript with every kind of summarizer."""

import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from sumone.compaction import is_memory
from sumone.data import load
from sumone.errors import ConfigError, DataError, ModelError
from sumone.runtime.compress import compress
from sumone.types import Message, ToolCall, Trajectory
from tests.fake_openai import FakeOpenAI, Received


def transcript(steps: int) -> Trajectory:
    messages = [
        Message(role="system", text="You keep the books."),
        Message(role="user", text="Find invoice 4471. Mail jane@corp.com when done."),
    ]
    for step in range(steps):
        arguments = f'{{"page": {step}, "token": "a1b2c3d4e5f6"}}'
        messages += [
            Message(
                role="assistant", calls=(ToolCall(id=f"c{step}", name="read", arguments=arguments),)
            ),
            Message(role="tool", call_id=f"c{step}", text=f"page {step}: nothing\n" * 8),
        ]
    return Trajectory(id="t", format="test", source="books.json", messages=tuple(messages))


def test_rule_based_replaces_the_history_and_says_how_much_it_saved() -> None:
    before = transcript(20)
    result = compress(before, "rule-based", budget_tokens=200)
    assert result.messages[:2] == before.messages[:2]
    assert result.messages[-1] == before.messages[-1]
    assert sum(is_memory(message) for message in result.messages) == 1
    assert result.tokens_after < result.tokens_before / 2
    assert 0 < result.summary_tokens <= 200
    assert result.num_messages == 42
    text = result.text()
    assert "books.json: 42 messages, summarized by rule-based" in text
    assert f"{result.tokens_before} tokens before, {result.tokens_after} after" in text
    assert "estimate" in text
    assert result.summary in text
    assert "[memory]" in text


def test_secrets_do_not_reach_summary_but_kept_messages_stay_verbatim() -> None:
    result = compress(transcript(20), "rule-based")
    assert "a1b2c3d4e5f6" not in result.summary
    assert "[REDACTED:secret]" in result.summary
    assert result.redactions["secret"] == 20
    assert result.redactions["email"] == 1
    assert "jane@corp.com" in result.messages[1].text
    assert "redacted email 1, secret 20" in result.text()


def test_nothing_to_compact_is_said_with_what_would_help() -> None:
    with pytest.raises(DataError, match=r"books\.json: nothing to compact.*--recent-tokens"):
        compress(transcript(1), "rule-based")
    with pytest.raises(DataError, match="nothing to compact"):
        compress(transcript(20), "rule-based", recent_tokens=100_000)
    with pytest.raises(DataError, match="nothing to compact"):
        compress(transcript(0).model_copy(update={"messages": ()}), "rule-based")


def test_recent_tokens_decide_how_much_stays() -> None:
    few = compress(transcript(20), "rule-based", recent_tokens=0)
    many = compress(transcript(20), "rule-based", recent_tokens=400)
    assert len(few.messages) == 5
    assert len(many.messages) > len(few.messages)


def test_an_endpoint_writes_the_summary() -> None:
    def answer(request: Received) -> str:
        assert "a1b2c3d4e5f6" not in request.prompt
        assert "tools" not in request.body
        return "Pages 0 to 18 hold nothing. Contact bob@corp.com."

    with FakeOpenAI(answer) as server:
        result = compress(transcript(20), server.url, model_name="small")
        assert server.requests[0].body["model"] == "small"
    assert result.summary == "Pages 0 to 18 hold nothing. Contact [REDACTED:email]."
    with FakeOpenAI(lambda _: "") as server, pytest.raises(ModelError, match="no summary"):
        compress(transcript(20), server.url, model_name="small")
    with pytest.raises(ConfigError, match="--model"):
        compress(transcript(20), "http://127.0.0.1:1/v1")


def test_a_summary_that_is_too_long_is_called_so() -> None:
    with FakeOpenAI(lambda _: "word " * 4000) as server:
        result = compress(transcript(20), server.url, model_name="small")
    assert "nothing is gained" in result.text()


def test_real_transcripts(samples: Path) -> None:
    file = next((samples / "tau-bench").rglob("*.json"))
    for trajectory in islice(load(file), 3):
        result = compress(trajectory, "rule-based", budget_tokens=300)
        assert result.tokens_after < result.tokens_before
        assert result.summary_tokens <= 300
        assert result.messages[-1] == trajectory.messages[-1]


def test_needs_no_torch() -> None:
    code = "import sys, sumone.runtime.compress; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

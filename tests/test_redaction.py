"""Redaction: what goes, what stays, and that it is linear and idempotent (cases F 99)."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sumone.redaction import redact, redact_message
from sumone.types import Message, ToolCall

KEY_BODY = "\n".join(["MIIEpAIBAAKCAQEA7v0zHkq3VbS1Jk2m9PfQx8LwYtRz4aNcDgEhUiOpBsTlXmWq"] * 3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see /home/alice/src/a.py:3", "see [REDACTED:home]/src/a.py:3"),
        ("cd /Users/jo.doe/x && ls", "cd [REDACTED:home]/x && ls"),
        ("/home/alice.", "[REDACTED:home]."),
        ("host:/home/bob/x", "host:[REDACTED:home]/x"),
        ("file:///home/bob/x", "file://[REDACTED:home]/x"),
        ("C:\\Users\\bob\\a.txt", "[REDACTED:home]\\a.txt"),
        ("C:\\Users\\John Smith\\a.txt", "[REDACTED:home]\\a.txt"),
        ("c:/Users/bob/a.txt", "[REDACTED:home]/a.txt"),
        ("mail jane.doe+x@corp.example.com now", "mail [REDACTED:email] now"),
        ("<JOHN@EXAMPLE.COM>", "<[REDACTED:email]>"),
        ("id AKIAIOSFODNN7EXAMPLE", "id [REDACTED:aws_key]"),
        (
            "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "AWS_SECRET_ACCESS_KEY=[REDACTED:aws_key]",
        ),
        (
            "aws_secret_access_key = 'abcd/efgh+1234'",
            "aws_secret_access_key = '[REDACTED:aws_key]'",
        ),
        ("Authorization: Bearer abcdef.ghijkl-mn", "Authorization: Bearer [REDACTED:bearer_token]"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic [REDACTED:bearer_token]"),
        (
            "-H 'authorization: token 0123456789ab'",
            "-H 'authorization: token [REDACTED:bearer_token]'",
        ),
        ("key sk-proj-Ab12Cd34Ef56Gh78Ij90", "key [REDACTED:api_key]"),
        ("ghp_" + "a1B2" * 9, "[REDACTED:github_token]"),
        ("xoxb-123456789012-abcdef", "[REDACTED:slack_token]"),
        ("postgres://u:p4ss@db:5432/x", "postgres://u:[REDACTED:url_password]@db:5432/x"),
        ("redis://:hunter2@cache", "redis://:[REDACTED:url_password]@cache"),
        ("export DB_PASSWORD=hunter2", "export DB_PASSWORD=[REDACTED:secret]"),
        ('{"password": "hunter2"}', '{"password": "[REDACTED:secret]"}'),
        ("client_secret='q8f7-aaaa'", "client_secret='[REDACTED:secret]'"),
        ("x-api-key: 12ab34cd56ef", "x-api-key: [REDACTED:secret]"),
        ("tool --api-key 9f8e7d6c --v", "tool --api-key [REDACTED:secret] --v"),
        ("GET /x?token=a1b2c3d4e5&page=2", "GET /x?token=[REDACTED:secret]&page=2"),
        (
            f"-----BEGIN RSA PRIVATE KEY-----\n{KEY_BODY}\nabc=\n-----END RSA PRIVATE KEY-----\nok",
            "[REDACTED:private_key]\nok",
        ),
        (f"-----BEGIN PRIVATE KEY-----\n{KEY_BODY}\n[cut]", "[REDACTED:private_key]\n[cut]"),
        (
            json.dumps(f"-----BEGIN PRIVATE KEY-----\n{KEY_BODY}\n-----END PRIVATE KEY-----\n"),
            '"[REDACTED:private_key]\\n"',
        ),
    ],
)
def test_takes_out_secrets_and_keeps_what_surrounds_them(text: str, expected: str) -> None:
    result = redact(text)
    assert result.text == expected
    assert sum(result.counts.values()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "commit 3f9c1ab0d5e6f7a8b9c0d1e2f3a4b5c6d7e8f901",
        "index 3f9c1ab..4d5e6f7 100644",
        "id 123e4567-e89b-12d3-a456-426614174000",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "token = tokens[0]; max_tokens: 512; tokenizer=AutoTokenizer.from_pretrained(x)",
        "def login(user: str, password: str, token: Token) -> None:",
        "password = os.environ['DB_PASSWORD']",
        "api_key=get_key(name)  # secret = read()",
        "y = a@b.weight + h@w.T; x@property",
        "git clone git@github.com:org/repo.git",
        "npm install lodash@4.17.21 @types/node@18.0.0",
        "https://example.com/home/about and src/home/page.tsx and ~/home/x",
        "postgres://{user}:{password}@{host}/x and http://$USER:$PASS@host and http://host:80/a@b",
        "echo $API_KEY; export TOKEN=$OTHER; PASSWORD=None",
        "if '-----BEGIN PRIVATE KEY-----' in text:",
        "bearer authentication is needed",
        "sk-learn-and-many-other-words-in-kebab",
        "task-runner-for-everything-we-do-here",
        "PWD=/workspace/repo",
        "12:30:45 GET /api/v1/items?page=3 200 12ms",
    ],
)
def test_leaves_ordinary_text_and_code(text: str) -> None:
    assert redact(text) == (text, {})


def test_counts_by_type() -> None:
    result = redact("a@x.com b@y.org /home/al/x AKIAIOSFODNN7EXAMPLE")
    assert result.counts == {"email": 2, "home": 1, "aws_key": 1}


def test_a_message_keeps_its_structure_and_its_json() -> None:
    arguments = json.dumps({"cmd": "export TOKEN=a1b2c3d4\nls C:\\Users\\bob\\x", "n": 1.0})
    message = Message(
        role="assistant", text="in /home/al/x", calls=(ToolCall(name="sh", arguments=arguments),)
    )
    redacted, counts = redact_message(message)
    assert counts == {"home": 2, "secret": 1}
    assert redacted.text == "in [REDACTED:home]/x"
    decoded = json.loads(redacted.calls[0].arguments)
    assert decoded["cmd"] == "export TOKEN=[REDACTED:secret]\nls [REDACTED:home]\\x"
    plain = Message(role="user", text="nothing here")
    assert redact_message(plain) == (plain, {})


_PIECES = st.sampled_from(
    [
        "/home/", "/Users/", "C:\\Users\\", "alice", "@", "x.com", "password", "TOKEN", "=", ": ",
        '"', "'", "\\", "\n", " ", "sk-", "Ab1" * 8, "AKIA", "IOSFODNN7EXAMPLE", "://", ":", "ghp_",
        "a1B2" * 9, "Bearer ", "Authorization: ", "[REDACTED:home]", "[REDACTED:", "]", "secret",
        "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "eyJ" + "a" * 12, ".", "--",
        "xoxb-", "-", "_", "aws_",
    ]
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(st.one_of(_PIECES, st.text(max_size=4)), max_size=30).map("".join))
def test_a_second_pass_changes_nothing(text: str) -> None:
    once = redact(text)
    assert redact(once.text) == (once.text, {})
    if not once.counts:
        assert once.text == text


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(_PIECES, st.text(max_size=4)), max_size=20).map("".join))
def test_json_stays_json(text: str) -> None:
    before = json.dumps({"a": text, "password": text})
    assert set(json.loads(redact(before).text)) == {"a", "password"}


@pytest.mark.parametrize(
    "piece",
    [
        "a@a", "password=", "://u:", "-----BEGIN PRIVATE KEY-----\n", "AKIA", "/home/", "sk-a1-",
        "eyJaaaaaaaaaaaaa.", "aaaaaaaaaaaaaaaa", "a.", "Bearer ", "C:\\Users\\a ", "[REDACTED:x]",
        "AKIAIOSFODNN7EXAMPLE", "1\t", "--token ", '"token": "',
    ],
)  # fmt: skip
def test_time_is_linear(piece: str) -> None:
    def seconds(size: int) -> float:
        text = piece * (size // len(piece))
        started = time.process_time()
        redact(text)
        return time.process_time() - started

    small = min(seconds(40_000) for _ in range(3))
    # Eight times the text: quadratic time would take 64 times as long.
    assert min(seconds(320_000) for _ in range(2)) < 24 * small + 0.05

"""The command line as a user meets it: exit codes, one clear line, no traceback."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def sumone(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sumone", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "missing.yaml"], ["missing.yaml", "YAML"]),
        (["train", "configs/tiny.yaml", "masking.ration=1"], ["masking.ration", "unknown key"]),
        (["train", "configs/tiny.yaml", "--strict"], ["--strict", "--dry-run"]),
        (["data", "show", "missing.jsonl"], ["missing.jsonl"]),
        (["data", "show", "pyproject.toml"], ["pyproject.toml"]),
        (["data", "build", "missing.yaml"], ["missing.yaml"]),
        (["compress", "missing.json"], ["missing.json"]),
    ],
)
def test_a_users_mistake_is_one_clear_message(arguments: list[str], words: list[str]) -> None:
    done = sumone(*arguments)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""
    for word in words:
        assert word in done.stderr


def test_help_and_unknown_options() -> None:
    assert sumone("--help").returncode == 0
    unknown = sumone("train", "--nonsense")
    assert unknown.returncode == 2 and "Traceback" not in unknown.stderr


def test_show_tells_what_was_read(tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    rows = [
        {"messages": [{"role": "user", "content": "hi"}]},
        {
            "messages": [
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "done"},
            ]
        },
    ]
    lines = [json.dumps(row) for row in rows]
    file.write_text("\n".join([lines[0], '{"broken', lines[1]]), encoding="utf-8")
    done = sumone("data", "show", str(file))
    assert done.returncode == 0, done.stderr
    for line in ("trajectories 2", "messages     4", "calls        1", "skipped line 2"):
        assert line in done.stdout

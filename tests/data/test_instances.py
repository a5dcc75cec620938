"""`sumone data build`: cutting, choosing, splitting by task, resuming, flat memory."""

import gc
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from sumone.compaction import is_memory, rejoin, split
from sumone.config import DataConfig
from sumone.data.candidates import FileEntry
from sumone.data.instances import build
from sumone.errors import DataError
from sumone.render import render_text
from sumone.tokens import ByteEstimate
from sumone.types import CompactionInstance

TOKENS = ByteEstimate()


def conversation(task: int, steps: int, *, step_characters: int = 300) -> dict[str, Any]:
    """One row of OpenAI chat messages; the request names the task."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You keep the books of /home/alice/ledger."},
        {"role": "user", "content": f"Task {task}: reconcile account {task * 7}."},
    ]
    for step in range(steps):
        call = {
            "id": f"c{step}",
            "type": "function",
            "function": {"name": "read", "arguments": json.dumps({"page": step, "task": task})},
        }
        text = f"page {step} of task {task}; mail jane@corp.com; " + "entry 12.50 paid\n" * 40
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{step}", "content": text[:step_characters]},
        ]
    return {"messages": messages}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def settings(output: Path, **changes: Any) -> DataConfig:
    values: dict[str, Any] = {
        "output_dir": str(output),
        "context_tokens": (500, 1000),
        "compaction": {"recent_tokens": 150, "keep_user_tokens": 100},
        "memory_budget_tokens": 120,
        "min_history_tokens": 100,
        "heldout_share": 0.3,
        **changes,
    }
    return DataConfig.model_validate(values)


def read(path: Path) -> list[CompactionInstance]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [CompactionInstance.model_validate_json(line) for line in lines]


def both(output: Path) -> list[CompactionInstance]:
    return read(output / "train.jsonl") + read(output / "heldout.jsonl")


def test_instances_are_cut_where_the_context_first_passes_a_size(tmp_path: Path) -> None:
    write(tmp_path / "in.jsonl", [conversation(task, 20) for task in range(12)])
    report = build(settings(tmp_path / "out", memory_share=0), [tmp_path / "in.jsonl"])
    instances = both(tmp_path / "out")
    assert len(instances) == report.train + report.heldout == 24
    assert {name: g.train + g.heldout for name, g in report.context_tokens.items()} == {
        "1000": 12,
        "500": 12,
    }
    sizes = []
    for instance in instances:
        everything = (*instance.preamble, *instance.history, *instance.recent)
        total = sum(TOKENS.count(render_text([message])) for message in everything)
        last = sum(TOKENS.count(render_text([message])) for message in everything[-2:])
        sizes.append(next(size for size in (500, 1000) if size <= total <= 1.25 * size))
        assert total - last < sizes[-1]
        assert everything[-1].role == "tool"
        assert not instance.memory
        again = split([*everything], settings(tmp_path).compaction, TOKENS, instance_id=instance.id)
        assert again is not None
        assert (again.preamble, again.history, again.recent) == (
            instance.preamble,
            instance.history,
            instance.recent,
        )
    assert sorted(sizes) == [500] * 12 + [1000] * 12


def test_a_share_has_a_memory_of_the_compaction_before(tmp_path: Path) -> None:
    write(tmp_path / "in.jsonl", [conversation(task, 40) for task in range(20)])
    report = build(settings(tmp_path / "out", memory_share=0.3), [tmp_path / "in.jsonl"])
    instances = both(tmp_path / "out")
    with_memory = [instance for instance in instances if instance.memory]
    assert report.memory_share == pytest.approx(0.3, abs=0.02)
    assert len(with_memory) == round(report.memory_share * len(instances))
    for instance in with_memory:
        (memory,) = instance.memory
        assert is_memory(memory)
        assert TOKENS.count(memory.text) <= 120 + 40
        # What it stands for is gone from the history; what followed is there.
        assert "read(page=" in memory.text
        first = json.loads(instance.history[0].calls[0].arguments)["page"]
        assert first > 0
        assert len(rejoin(instance, "new")) == 3 + len(instance.recent)


def test_no_task_is_on_both_sides_and_the_side_is_seeded(tmp_path: Path) -> None:
    rows = [conversation(task, 12 + copy) for task in range(30) for copy in range(2)]
    write(tmp_path / "in.jsonl", rows)
    sides = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        report = build(settings(tmp_path / name, seed=seed), [tmp_path / "in.jsonl"])
        train = {i.task for i in read(tmp_path / name / "train.jsonl")}
        heldout = {i.task for i in read(tmp_path / name / "heldout.jsonl")}
        assert not train & heldout
        assert (report.train_tasks, report.heldout_tasks) == (len(train), len(heldout))
        assert 4 <= len(heldout) <= 15
        sides.append(heldout)
    assert sides[0] == sides[1] != sides[2]
    files = ("train.jsonl", "heldout.jsonl")
    assert [(tmp_path / "a" / f).read_bytes() for f in files] == [
        (tmp_path / "b" / f).read_bytes() for f in files
    ]


def test_one_task_at_least_is_held_out_and_one_trained_on(tmp_path: Path) -> None:
    write(tmp_path / "in.jsonl", [conversation(task, 20) for task in range(2)])
    for share in (0.0001, 0.9999):
        report = build(settings(tmp_path / "out", heldout_share=share), [tmp_path / "in.jsonl"])
        assert (report.train_tasks, report.heldout_tasks) == (1, 1)
    report = build(settings(tmp_path / "out", heldout_share=0), [tmp_path / "in.jsonl"])
    assert (report.train_tasks, report.heldout_tasks) == (2, 0)


def test_redacted_before_anything_else(tmp_path: Path) -> None:
    write(tmp_path / "in.jsonl", [conversation(task, 30) for task in range(6)])
    report = build(settings(tmp_path / "out"), [tmp_path / "in.jsonl"])
    text = "".join((tmp_path / "out" / f"{n}.jsonl").read_text() for n in ("train", "heldout"))
    assert "alice" not in text
    assert "jane@corp.com" not in text
    assert "[REDACTED:home]/ledger" in text
    assert report.redactions["home"] == 6
    assert report.redactions["email"] == 180
    build(settings(tmp_path / "raw", redact=False), [tmp_path / "in.jsonl"])
    assert "/home/alice/ledger" in (tmp_path / "raw" / "train.jsonl").read_text()


def test_copies_are_left_out(tmp_path: Path) -> None:
    rows = [conversation(task, 12) for task in range(6)]
    write(tmp_path / "a.jsonl", rows)
    write(tmp_path / "b.jsonl", rows)
    # A longer record of the same run is cut at the same place.
    write(tmp_path / "c.jsonl", [conversation(task, 14) for task in range(6)])
    report = build(settings(tmp_path / "out", memory_share=0), [str(tmp_path / "*.jsonl")])
    instances = both(tmp_path / "out")
    assert len({i.id for i in instances}) == len(instances) == 12
    assert report.duplicates == 24


def test_domains_are_balanced(tmp_path: Path, samples: Path) -> None:
    files = [str(samples / family) for family in ("swe-agent", "tau-bench")]
    small = settings(
        tmp_path / "out",
        context_tokens=(2048,),
        max_per_domain=15,
        max_message_tokens=400,
    )
    report = build(small, files)
    assert set(report.domains) == {"coding", "support"}
    for group in report.domains.values():
        assert group.train + group.heldout == min(15, group.available)
    everything = settings(tmp_path / "all", context_tokens=(2048,), max_message_tokens=400)
    counts = [g.train + g.heldout for g in build(everything, files).domains.values()]
    assert counts[0] == pytest.approx(counts[1], rel=0.35)


def test_bad_files_are_reported_and_skipped(tmp_path: Path) -> None:
    write(tmp_path / "in" / "good.jsonl", [conversation(task, 20) for task in range(3)])
    (tmp_path / "in" / "broken.json").write_text('{"messages": [')
    (tmp_path / "in" / "other.json").write_text('{"weather": "fine"}')
    (tmp_path / "in" / "bytes.json").write_bytes(b"\xff\xfe\x00\x00" * 20)
    (tmp_path / "in" / "notes.txt").write_text("not looked at in a folder")
    seen: list[FileEntry] = []
    report = build(
        settings(tmp_path / "out"),
        [tmp_path / "in", tmp_path / "absent.json"],
        on_file=seen.append,
    )
    assert (report.files_read, report.files_bad) == (1, 4)
    reasons = {Path(bad.path).name: bad.reason for bad in report.bad}
    assert set(reasons) == {"broken.json", "other.json", "bytes.json", "absent.json"}
    assert "weather" in reasons["other.json"]
    assert "No such file" in reasons["absent.json"]
    assert len(seen) == 5
    assert report.train > 0
    stored = json.loads((tmp_path / "out" / "report.json").read_text())
    assert stored["files_bad"] == 4
    assert "other.json" in report.text()


def test_nothing_readable_or_nothing_long_enough_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(DataError, match=r"nothing could be read: 1 file.*bad\.json"):
        build(settings(tmp_path / "out"), [tmp_path / "bad.json"])
    with pytest.raises(DataError, match="nothing could be read: 0 file"):
        build(settings(tmp_path / "out"))
    write(tmp_path / "short.jsonl", [conversation(0, 1)])
    with pytest.raises(DataError, match=r"1 trajectories gave no instance.*too_short.*lower"):
        build(settings(tmp_path / "out"), [tmp_path / "short.jsonl"])


def test_long_messages_can_be_shortened_in_the_middle(tmp_path: Path) -> None:
    rows = [conversation(task, 30, step_characters=700) for task in range(4)]
    write(tmp_path / "in.jsonl", rows)
    build(settings(tmp_path / "out", max_message_tokens=60), [tmp_path / "in.jsonl"])
    results = [m for i in both(tmp_path / "out") for m in i.history if m.role == "tool"]
    assert results
    for message in results:
        assert TOKENS.count(message.text) <= 60 + 16
        assert " tokens left out ...]" in message.text
        assert message.text.startswith("page ")


def test_a_huge_message_gives_no_instance_but_later_ones_do(tmp_path: Path) -> None:
    row = conversation(1, 30)
    row["messages"][3]["content"] = "x" * 9000
    write(tmp_path / "in.jsonl", [row])
    report = build(settings(tmp_path / "out", memory_share=1), [tmp_path / "in.jsonl"])
    assert report.no_instance["too_large"] >= 1
    assert all(instance.memory for instance in both(tmp_path / "out"))


def test_a_second_run_reads_nothing_again_and_writes_the_same(tmp_path: Path) -> None:
    for number in range(3):
        rows = [conversation(number * 10 + task, 15) for task in range(4)]
        write(tmp_path / "in" / f"{number}.jsonl", rows)
    seen: list[FileEntry] = []
    config = settings(tmp_path / "out")
    first = build(config, [tmp_path / "in"], on_file=seen.append)
    assert [entry.trajectories for entry in seen] == [4, 4, 4]
    before = {f.name: f.read_bytes() for f in (tmp_path / "out").glob("*.json*")}
    assert set(before) == {"train.jsonl", "heldout.jsonl", "report.json"}
    seen.clear()
    assert build(config, [tmp_path / "in"], on_file=seen.append) == first
    assert [entry.trajectories for entry in seen] == [0, 0, 0]
    assert {f.name: f.read_bytes() for f in (tmp_path / "out").glob("*.json*")} == before
    # A changed file is read again, a removed one forgotten; other settings start again.
    write(tmp_path / "in" / "0.jsonl", [conversation(99, 15)])
    (tmp_path / "in" / "1.jsonl").unlink()
    changed = build(config, [tmp_path / "in"])
    assert (changed.files_read, changed.trajectories) == (2, 5)
    fresh = build(settings(tmp_path / "fresh"), [tmp_path / "in"])
    assert fresh.model_copy(update={"output_dir": changed.output_dir}) == changed
    seen.clear()
    build(settings(tmp_path / "out", seed=5), [tmp_path / "in"], on_file=seen.append)
    assert [entry.trajectories for entry in seen] == [1, 4]


def test_killed_and_run_again_gives_the_same_files(tmp_path: Path) -> None:
    for number in range(12):
        rows = [conversation(number * 10 + task, 30) for task in range(6)]
        write(tmp_path / "in" / f"{number:02}.jsonl", rows)
    wanted = build(settings(tmp_path / "whole"), [tmp_path / "in"])
    config = settings(tmp_path / "out")
    (tmp_path / "config.json").write_text(config.model_dump_json())
    program = (
        "import sys; from pathlib import Path; from sumone.config import DataConfig\n"
        "from sumone.data.instances import build\n"
        "config = DataConfig.model_validate_json(Path(sys.argv[1]).read_text())\n"
        "build(config, [sys.argv[2]], on_file=lambda e: print('done', flush=True))\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "config.json"), str(tmp_path / "in")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(4):
        assert process.stdout.readline() == "done\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not (tmp_path / "out" / "train.jsonl").exists()
    seen: list[FileEntry] = []
    report = build(config, [tmp_path / "in"], on_file=seen.append)
    assert [entry.trajectories for entry in seen[:4]] == [0, 0, 0, 0]
    assert seen[-1].trajectories == 6
    assert report.model_copy(update={"output_dir": wanted.output_dir}) == wanted
    for name in ("train.jsonl", "heldout.jsonl"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_memory_does_not_grow_with_the_number_of_files(tmp_path: Path) -> None:
    def collect(_: FileEntry) -> None:
        gc.collect()  # cycles that wait for the collector are no growth

    def peak(name: str, files: int) -> int:
        for number in range(files):
            rows = [conversation(number * 5 + task, 8) for task in range(2)]
            write(tmp_path / name / f"{number:03}.jsonl", rows)
        config = settings(tmp_path / f"{name}-out", context_tokens=(500,))
        tracemalloc.start()
        build(config, [tmp_path / name], on_file=collect)
        result = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return result

    peak("warm", 2)  # imports and caches
    small, large = peak("small", 3), peak("large", 21)
    assert large < 1.1 * small, (small, large)


def test_every_context_size_gets_its_part_of_a_trajectory(tmp_path: Path) -> None:
    write(tmp_path / "in.jsonl", [conversation(task, 40) for task in range(16)])
    report = build(settings(tmp_path / "out", max_per_trajectory=1), [tmp_path / "in.jsonl"])
    numbers = [group.train + group.heldout for group in report.context_tokens.values()]
    assert sum(numbers) <= 16
    assert min(numbers) >= 4
    per_source: dict[str, int] = defaultdict(int)
    for instance in both(tmp_path / "out"):
        per_source[instance.source] += 1
    assert set(per_source.values()) == {1}

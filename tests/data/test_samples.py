"""The real transcripts: what is read from each, and that no character is lost."""

import csv
import json
from collections import Counter
from pathlib import Path

import pytest

from sumone.data import FORMATS, Report, load, show, sniff
from sumone.errors import DataError

FAMILIES = {
    "sweagent-traj": "swe-agent",
    "swesmith-xml-jsonl": "swe-smith",
    "mini-swe-agent-messages": "mini-swe-agent",
    "taubench-results": "tau-bench",
    "react-xml-chatml-jsonl": "openseeker",
    "claude-code-jsonl": "claude-code",
}
# Trajectories, messages, calls, results, calls without result.
TOTALS = {
    "swe-agent": (22, 578, 274, 259, 15),
    "swe-smith": (3, 209, 103, 100, 3),
    "mini-swe-agent": (2, 28, 12, 12, 0),
    "tau-bench": (100, 2658, 572, 572, 0),
    "openseeker": (100, 510, 105, 105, 0),
    "claude-code": (16, 556, 275, 275, 0),
}


def _index(samples: Path) -> list[dict[str, str]]:
    with (samples / "INDEX.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return [row for row in rows if row["format"] in FAMILIES]


def _paths(samples: Path) -> list[tuple[Path, str]]:
    names = {row["path"].partition("#")[0]: row["format"] for row in _index(samples)}
    return [(samples / name, FAMILIES[family]) for name, family in sorted(names.items())]


def test_every_file_of_the_families_is_read_and_conserved(samples):
    totals: dict[str, Counter[str]] = {}
    for path, family in _paths(samples):
        report = show(path)
        assert report.format == family, path
        assert report.conserved, (path, report)
        assert report.skipped == [], path
        assert report.results_without_call == report.repeated_results == 0, path
        assert report.drops.dropped["unreadable"] == 0, path
        assert not report.drops.notes, path
        total = totals.setdefault(family, Counter())
        for name in ("trajectories", "messages", "calls", "results", "calls_without_result"):
            total[name] += getattr(report, name)
    assert {family: tuple(total.values()) for family, total in totals.items()} == TOTALS


def test_message_counts_agree_with_the_index(samples):
    """Comparable for all families but Claude Code: there the index counts lines, and one answer
    stands on several of them (quirk 6), so it gives an upper bound apart from turns that hold
    several results or texts."""
    expected = {row["path"]: int(row["messages"]) for row in _index(samples)}
    for path, family in _paths(samples):
        trajectories = list(load(path))
        for trajectory in trajectories:
            name = str(Path(trajectory.source).relative_to(samples))
            if family == "claude-code":
                assert len(trajectory.messages) <= expected[name]
            else:
                assert len(trajectory.messages) == expected[name], name


def test_every_other_file_is_read_conserved_or_refused_with_a_reason(samples):
    refused = 0
    known = {path for path, _ in _paths(samples)}
    for path in sorted(samples.rglob("*.json*")):
        if path in known:
            continue
        report, refusal = Report(), ""
        try:
            for _ in load(path, None, report):
                pass
        except DataError as error:
            refusal = str(error)
        refused += bool(refusal)
        assert not refusal or str(path) in refusal
        assert refusal or report.conserved, path
    assert refused > 50


@pytest.mark.parametrize("family", sorted(TOTALS))
def test_ids_are_unique_and_stable(samples, family):
    assert family in FORMATS
    paths = [path for path, name in _paths(samples) if name == family]
    ids = [t.id for path in paths for t in load(path)]
    assert ids == [t.id for path in paths for t in load(path)]
    assert len(set(ids)) == len(ids)
    for path in paths:
        assert sniff(path) == family
        for trajectory in load(path):
            assert trajectory.task
            assert trajectory.domain
            assert trajectory.format == family


def test_no_gold_reaches_the_text(samples):
    """Quirk 25: tau-bench's wanted actions, SWE-agent's submission, the answers of a search."""
    report = Report()
    path = samples / "tau-bench/historical_trajectories/gpt-4o-airline.json"
    for trajectory in load(path, None, report):
        assert not any("gt_data_hash" in m.text for m in trajectory.messages)
    assert report.drops.dropped["gold"] > 80_000
    assert report.format == "tau-bench"


def test_copies_are_not_text(samples):
    """Quirks 5, 7 and 8: the copies, signatures and images are most of some files."""
    for name, reason, share in [
        ("swe-smith/trajectories/*/*53652.traj", "copy", 0.9),
        ("claude-code/*/0d3a8e6f*.jsonl", "image", 0.85),
        ("claude-code/*JSSound*/*.jsonl", "copy", 0.25),
    ]:
        (path,) = samples.glob(name)
        report = show(path)
        assert report.drops.dropped[reason] > share * report.characters_in, name


def test_huge_observations_and_control_text_are_kept_whole(samples):
    """Quirks 9 and 10: 100,270 characters in one observation, escapes, \\r\\n."""
    rows = list(load(samples / "swe-smith/tests/test_logs/ft_xml_example.jsonl"))
    # The index counts the role "user" too.
    assert max(len(m.text) for m in rows[1].messages) == 100_270 - len("user" + "Observation: ")
    (path,) = samples.glob("swe-agent/**/BabyTimeCapsule.traj")
    (run,) = load(path)
    assert sum(m.text.count("\x1b") for m in run.messages) == 98
    (path,) = samples.glob("swe-smith/trajectories/*/*53652.traj")
    (run,) = load(path)
    assert sum("\r\n" in m.text for m in run.messages if m.role == "tool") >= 25


def test_the_demonstration_is_pinned(samples):
    """Quirk 16."""
    (path,) = samples.glob("swe-agent/**/pydicom__pydicom-1458.traj")
    (run,) = load(path)
    (demonstration,) = [m for m in run.messages if m.pinned]
    assert len(demonstration.text) > 19_000
    assert not demonstration.genuine
    assert run.task == "pydicom/pydicom"


def test_history_is_read_not_the_steps(samples):
    """Quirks 17 and 18: 16 steps but 15 exchanges; a file with a history alone."""
    (path,) = samples.glob("swe-agent/**/BabyEncryption.traj")
    (run,) = load(path)
    assert sum(m.role == "assistant" for m in run.messages) == 15
    (path,) = samples.glob("swe-agent/**/function_calling_simple.traj")
    assert show(path).messages == 12


def test_commands_in_text_are_the_actions_that_ran(samples):
    """Quirk 3: name and arguments together are the source's own `action`."""
    checked = 0
    for path in samples.glob("swe-agent/**/*.traj"):
        history = json.loads(path.read_text())["history"]
        (run,) = load(path)
        for message in run.messages:
            item = history[message.source_index]
            if message.role == "assistant" and not item.get("tool_calls"):
                (call,) = message.calls
                said = f"{call.name} {call.arguments}".split()
                assert said == item["action"].split(), path
                checked += 1
    assert checked > 150


def test_parallel_calls_stay_in_one_message(samples):
    """Quirk 6 and the branch points of quirk 13: results hang at their own call's line."""
    (path,) = samples.glob("claude-code/-experiments-worktrees/ef958aa1*.jsonl")
    report = Report()
    (run,) = load(path, None, report)
    assert max(len(m.calls) for m in run.messages) == 6
    assert report.calls == report.results == 40
    assert report.drops.dropped["branch"] == 0
    assert {m.name for m in run.messages if m.role == "tool"} >= {"Bash", "TaskCreate", "Agent"}

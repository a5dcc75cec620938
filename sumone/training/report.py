"""What a run ends with: a table on stdout, `results.json`, one picture, the next command.

The statements are those that decide whether a run has trained anything: the gain with its
paired interval, the share of the way to the perfect extract, and the distance of the trained
summaries' quality from another instance's summary and from none.
"""

import json
import platform
import resource
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from sumone.config import TrainConfig
from sumone.stats import Interval, paired_interval
from sumone.training.evaluation import Evaluation
from sumone.training.picture import draw
from sumone.training.run_folder import RunFolder, write_atomically
from sumone.training.run_log import read_lines

__all__ = ["Statement", "report", "statements"]

_LABELS = {
    "before": "before training",
    "after": "after training",
    "empty": "no summary",
    "shuffled": "another instance's summary",
    "history": "whole history as summary",
    "extract": "perfect extract",
}
_MEASURES = ("value", "quality", "num_summary_tokens", "precision", "recall")


class Statement(NamedTuple):
    """One claim about a run, with what was measured."""

    text: str
    """What is claimed, with its numbers."""
    holds: bool | None
    """Whether it holds; None where the data cannot say."""


def statements(
    before: Evaluation, after: Evaluation, controls: Mapping[str, Evaluation]
) -> list[Statement]:
    """The claims of a run (issue of the embedded default, section 5), each checked."""
    gain = paired_interval(after.column("value"), before.column("value"))
    found = [Statement(f"reward rose: after - before = {_show(gain)}", gain and gain.low > 0)]
    extract, empty = controls.get("extract"), controls.get("empty")
    room = extract and paired_interval(extract.column("value"), before.column("value"))
    if gain and room:
        share = gain.mean / room.mean if room.mean > 0 else None
        found.append(
            Statement(
                f"at least half of the way to the perfect extract ({_show(room)}): "
                + ("no way to go" if share is None else f"{share:.0%}"),
                None if share is None else share >= 0.5,
            )
        )
    quality_room = (
        extract and empty and paired_interval(extract.column("quality"), empty.column("quality"))
    )
    for name in ("shuffled", "empty"):
        control = controls.get(name)
        margin = control and paired_interval(after.column("quality"), control.column("quality"))
        if not margin:
            continue
        text = f"quality above {_LABELS[name]}: {_show(margin)}"
        if quality_room and quality_room.mean > 0:
            share = margin.mean / quality_room.mean
            text += f", {share:.0%} of perfect extract - no summary ({quality_room.mean:.3f})"
            found.append(Statement(text, margin.low > 0 and share >= 0.5))
        else:
            found.append(Statement(text, margin.low > 0))
    return found


def _show(interval: Interval | None) -> str:
    if interval is None:
        return "not measured"
    return f"{interval.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"


def report(
    config: TrainConfig,
    folder: RunFolder,
    before: Evaluation,
    after: Evaluation,
    controls: Mapping[str, Evaluation],
    *,
    console: Console,
) -> None:
    """Print the table, write `results.json` and the picture, say what to type next."""
    arms = {"before": before, "after": after, **controls}
    claims = statements(before, after, controls)
    metrics = read_lines(folder.metrics)
    write_atomically(
        folder.results, json.dumps(_results(config, arms, claims, metrics), indent=1) + "\n"
    )
    draw(folder.picture, metrics, before, after)
    console.print(_table(arms))
    for claim in claims:
        mark = {True: "yes", False: "NO", None: "?"}[claim.holds]
        _line(console, f"{mark:>4}  {claim.text}")
    _line(console, f"\npicture: {folder.picture}\nresults: {folder.results}")
    _line(console, f"next: sumone compress TRANSCRIPT --summarizer {folder.path}")


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _table(arms: Mapping[str, Evaluation]) -> Table:
    count = len(arms["after"].rows)
    table = Table(title=f"Held-out evaluation, {count} instances, greedy")
    table.add_column("summary")
    for heading in ("R", "Q", "|S|", "precision", "recall", "scored"):
        table.add_column(heading, justify="right")
    for name, evaluation in arms.items():
        means = [evaluation.mean(measure) for measure in _MEASURES]
        shown = [
            "-" if m is None else f"{m:.1f}" if i == 2 else f"{m:.3f}" for i, m in enumerate(means)
        ]
        table.add_row(_LABELS[name], *shown, f"{len(evaluation.column('value'))}")
    return table


def _results(
    config: TrainConfig,
    arms: Mapping[str, Evaluation],
    claims: list[Statement],
    metrics: list[dict[str, Any]],
) -> dict[str, Any]:
    value = {name: evaluation.column("value") for name, evaluation in arms.items()}
    quality = {name: evaluation.column("quality") for name, evaluation in arms.items()}
    seconds = [m["step_time"] for m in metrics if m.get("step_time") is not None]
    pairs = [("after", "before"), *((n, "before") for n in ("extract",) if n in arms)]
    quality_pairs = [("after", n) for n in ("before", "shuffled", "empty") if n in arms]
    if "extract" in arms and "empty" in arms:
        quality_pairs.append(("extract", "empty"))
    return {
        "digest": config.digest(),
        "seed": config.seed,
        "steps": arms["after"].step,
        "instances": len(arms["after"].rows),
        "means": {
            name: {
                **{measure: evaluation.mean(measure) for measure in _MEASURES},
                "scored": len(evaluation.column("value")),
                "truncated": sum(row.truncated for row in evaluation.rows),
            }
            for name, evaluation in arms.items()
        },
        "reward_differences": _differences(value, pairs),
        "quality_differences": _differences(quality, quality_pairs),
        "statements": [claim._asdict() for claim in claims],
        "training_seconds": sum(seconds) if seconds else None,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "versions": {n: version(n) for n in ("torch", "transformers", "trl", "accelerate")},
        "machine": {"python": platform.python_version(), "processor": platform.machine()},
    }


def _differences(
    columns: Mapping[str, Mapping[str, float]], pairs: list[tuple[str, str]]
) -> dict[str, dict[str, float] | None]:
    return {
        f"{first} - {second}": (i := paired_interval(columns[first], columns[second]))
        and i._asdict()
        for first, second in pairs
    }

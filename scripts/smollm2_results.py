"""Copies what the SmolLM2 runs measured into docs/results/smollm2, with a README of the numbers.

    python scripts/smollm2_results.py [RUNS=runs] [TARGET=docs/results/smollm2]

No text of a transcript is copied: they are not ours to publish. A run that was stopped early is
shown with the steps and evaluations it has.
"""

import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from sumone.stats import paired_interval
from sumone.training.evaluation import load_evaluation
from sumone.training.picture import draw
from sumone.training.run_log import read_lines

RUNS = {"smollm2": "information_gain", "smollm2_decoded": "decoded"}
_STEP = ("step", "reward", "reward_std", "quality", "penalty", "summary_tokens", "clipped_share",
         "failed_share", "grad_norm", "entropy", "step_time", "reward_seconds")  # fmt: skip
_UNITS = {
    "information_gain": "Q: nats per hidden token that the summary adds; R = Q - 0.01 |S| / 32",
    "decoded": "Q: precision + recall of the decoded blocks, lexical judge; R = Q - 0.1 |S| / 32",
}


def main() -> None:
    runs = Path(sys.argv[1] if len(sys.argv) > 1 else "runs")
    target = Path(sys.argv[2] if len(sys.argv) > 2 else "docs/results/smollm2")
    sections = []
    for folder, name in RUNS.items():
        if (runs / folder / "evaluation_before.json").is_file():
            sections.append(_section(name, *_copy(runs / folder, target / name)))
    data = json.loads(Path("cache/smollm2-data/report.json").read_text(encoding="utf-8"))
    _write(target / "data_report.json", data)
    readme = _README.format(sections="\n".join(sections), **data)
    (target / "README.md").write_text(readme, encoding="utf-8")
    print(f"wrote {target}")


def _copy(run: Path, target: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    target.mkdir(parents=True, exist_ok=True)
    metrics = run / "metrics.jsonl"
    lines = metrics.read_text(encoding="utf-8").splitlines() if metrics.is_file() else []
    steps = [
        {name: step[name] for name in _STEP if name in step} for step in map(json.loads, lines)
    ]
    _write(target / "steps.json", steps)
    evaluations = {}
    for file in sorted(run.glob("evaluation_*.json")):
        evaluation = json.loads(file.read_text(encoding="utf-8"))
        for row in evaluation["rows"]:
            del row["summary"]  # it quotes a transcript
        evaluations[evaluation["name"]] = evaluation
    _write(target / "heldout_rows.json", evaluations)
    for name in ("results.json", "picture.png", "config.yaml"):
        if (run / name).is_file():
            shutil.copy(run / name, target / name)
    _draw(run, target / "picture.png", evaluations)
    return steps, evaluations


def _draw(run: Path, file: Path, evaluations: dict[str, Any]) -> None:
    """The curves of a run, stopped or not, where it was evaluated at least twice."""
    last = max(evaluations.values(), key=lambda evaluation: evaluation["step"])
    name = last["name"]
    before = load_evaluation(run / "evaluation_before.json")
    after = load_evaluation(run / f"evaluation_{name}.json")
    if before is not None and after is not None and after.step > 0:
        draw(file, read_lines(run / "metrics.jsonl"), before, after)


def _section(name: str, steps: list[dict[str, Any]], evaluations: dict[str, Any]) -> str:
    before = evaluations["before"]
    after = evaluations.get("after") or max(
        (e for e in evaluations.values() if e["name"].startswith("step-")),
        key=lambda evaluation: evaluation["step"],
        default=None,
    )
    lines = [
        f"## {name}",
        "",
        _UNITS[name],
        "",
        "| summary | step | Q | &#124;S&#124; | R | rows |",
    ]
    lines.append("|---|---|---|---|---|---|")
    shown = [before, *([after] if after else [])]
    shown += [e for e in evaluations.values() if e["name"] in ("empty", "shuffled", "history")]
    for evaluation in shown:
        q, size, r = (_mean(evaluation, c) for c in ("quality", "num_summary_tokens", "value"))
        rows = len(_column(evaluation, "value"))
        lines.append(
            f"| {evaluation['name']} | {evaluation['step']} | {q} | {size} | {r} | {rows} |"
        )
    lines.append("")
    for title, column in (("R", "value"), ("Q", "quality")):
        found = after and paired_interval(_column(after, column), _column(before, column))
        if found:
            verdict = (
                "a rise" if found.low > 0 else "a fall" if found.high < 0 else "no clear change"
            )
            lines.append(
                f"- after - before, {title}: {found.mean:+.4f}, paired bootstrap 95 % interval "
                f"[{found.low:+.4f}, {found.high:+.4f}], {found.num_instances} instances: {verdict}"
            )
    failures = Counter(row["failure"] for row in before["rows"] if row["value"] is None)
    if failures:
        reason, count = failures.most_common(1)[0]
        lines.append(
            f"- before training {failures.total()} of {len(before['rows'])} instances have no "
            f"reward; the most frequent reason, {count} times: {reason}"
        )
    if not after:
        lines.append("- stopped before the evaluation after training")
    if steps:
        seconds = sorted(step["step_time"] for step in steps)[len(steps) // 2]
        lines.append(f"- {len(steps)} steps, median {seconds:.0f} s a step on one core")
    files = f"`{name}/steps.json`, `heldout_rows.json` (every instance), `config.yaml`"
    return "\n".join([*lines, f"- {files}, `picture.png` where there is something to compare", ""])


def _column(evaluation: dict[str, Any], name: str) -> dict[str, float]:
    rows = evaluation["rows"]
    return {row["instance_id"]: row[name] for row in rows if row[name] is not None}


def _mean(evaluation: dict[str, Any], name: str) -> str:
    values = _column(evaluation, name).values()
    return f"{sum(values) / len(values):.4f}" if values else "-"


def _write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


_README = """# SmolLM2-135M-Instruct on real transcripts

Made by `python scripts/smollm2_results.py` from the runs of `make smollm2`. Policy: the model with
a low-rank adapter in its last six layers; reconstructor: the same model, frozen. One CPU core,
float32, greedy evaluation before and after on held-out instances that share no task with training.

Instances (`sumone data build configs/data_smollm2.yaml FOLDER...`, real runs of SWE-agent,
SWE-smith, mini-swe-agent, Claude Code, WebDancer and tau-bench): {files_read} files,
{trajectories} trajectories, {train} training instances of {train_tasks} tasks, {heldout} held out
of {heldout_tasks} tasks, a share of {memory_share} with a memory. Contexts are about 256 tokens,
with messages shortened to 32 tokens in the middle, because a core shared with other work reads only
100 to 200 tokens a second with this model: 512 tokens and 8 samples took 5 minutes a step. The
search transcripts make one call each, so they are too short to be compacted.

{sections}
## What to read into it

The configurations ask for 40 and 10 steps; a run with fewer was stopped because its core was needed
for other work. The steps are few (one prompt of four samples each) and the model is small: SmolLM2
often copies the beginning of the conversation instead of summarizing it. The interval says whether
the run changed the held-out reward, not how far more steps would go.
Next to try: a larger `reconstructor.output_ratio` for the decoded run, whose frozen model seldom
ends its answers; eight samples and two prompts a step, longer contexts, a few hundred steps on a
GPU.
"""

if __name__ == "__main__":
    main()

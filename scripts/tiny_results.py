"""Copies what three seeds of the tiny run measured into docs/results/tiny, with a table.

for seed in 0 1 2; do sumone train configs/tiny.yaml seed=$seed output_dir=runs/tiny-$seed; done
python scripts/tiny_results.py runs/tiny-0 runs/tiny-1 runs/tiny-2
"""

import json
import shutil
import sys
from pathlib import Path

TARGET = Path("docs/results/tiny")
ARMS = {
    "before": "before training",
    "after": "after training",
    "empty": "no summary",
    "shuffled": "another instance's summary",
    "history": "whole history as summary",
    "extract": "perfect extract",
}


def table(results: dict) -> list[str]:
    lines = ["| summary | R | Q | tokens of S | scored |", "|---|---|---|---|---|"]
    for arm, title in ARMS.items():
        mean = results["means"][arm]
        lines.append(
            f"| {title} | {mean['value']:.3f} | {mean['quality']:.3f} "
            f"| {mean['num_summary_tokens']:.1f} | {mean['scored']} |"
        )
    return lines


def main() -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    lines = [
        "# The tiny run, three seeds",
        "",
        "Held-out instances share no case with training; decoding is greedy; the mask of the",
        "evaluation is fixed. Intervals are 95 %, paired bootstrap over the instances of one seed.",
        "R = Q - 0.1 |S| / L_max (Equation 6). Commands:",
        "",
        "```",
        "for seed in 0 1 2; do",
        "  sumone train configs/tiny.yaml seed=$seed output_dir=runs/tiny-$seed",
        "done",
        "python scripts/tiny_results.py runs/tiny-0 runs/tiny-1 runs/tiny-2",
        "```",
    ]
    for run in map(Path, sys.argv[1:]):
        results = json.loads((run / "results.json").read_text(encoding="utf-8"))
        seed = results["seed"]
        shutil.copy(run / "results.json", TARGET / f"seed{seed}.json")
        shutil.copy(run / "picture.png", TARGET / f"seed{seed}.png")
        lines += ["", f"## Seed {seed}", ""]
        lines += [f"{results['instances']} held-out instances, {results['steps']} steps.", ""]
        lines += [*table(results), ""]
        for statement in results["statements"]:
            lines.append(f"- {'yes' if statement['holds'] else 'NO'}: {statement['text']}")
        lines += ["", f"![Seed {seed}](seed{seed}.png)"]
    (TARGET / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"wrote {TARGET}")


if __name__ == "__main__":
    main()

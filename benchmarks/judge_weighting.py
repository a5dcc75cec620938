"""How well the lexical judge separates a kept fact from a lost one, with and without idf weights.

    python benchmarks/judge_weighting.py runs/tiny

Reads the logged completions of a tiny run: hidden blocks that carry a fact, divided by whether the
summary has that fact's line word for word, scored by both judges. The larger the gap in Q = p + r,
the stronger the training signal.
"""

import json
import sys
from pathlib import Path
from statistics import fmean

from sumone.config import load_train_config
from sumone.render import render_text
from sumone.reward.lexical import LexicalJudge, TokenWeights
from sumone.training.dataset import read_instances

RESULT = Path(__file__).parent / "results" / "judge_weighting.json"


def fact_of(truth: str, facts: list[str]) -> str | None:
    """The extract's line for a block: the one whose words after its number stand in the block."""
    return next((fact for fact in facts if fact.partition(" ")[2] in truth), None)


def main() -> None:
    run = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/tiny")
    if not (run / "completions.jsonl").is_file():
        sys.exit(f"no tiny run at {run}: run `make train` first, or name the run's folder")
    config = load_train_config(run / "config.yaml")
    instances = {item.id: item for item in read_instances(config.data.train)}
    histories = [render_text(item.expired) for item in instances.values()]
    judges = {
        "idf": LexicalJudge(TokenWeights.of(histories)),
        "uniform": LexicalJudge(),
    }
    found: dict[tuple[str, bool], list[float]] = {}
    for line in (run / "completions.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        facts = (instances[row["instance_id"]].extract or "").splitlines()
        kept_lines = set(row["summary"].splitlines())
        for block in row["blocks"]:
            fact = fact_of(block["truth"], facts)
            if fact is None or block["prediction"] is None:
                continue
            for name, judge in judges.items():
                score = judge.measure(block["truth"], block["prediction"])
                quality = score.precision + score.recall
                found.setdefault((name, fact in kept_lines), []).append(quality)
    result = {
        "command": "python benchmarks/judge_weighting.py runs/tiny",
        "blocks_kept": len(found["idf", True]),
        "blocks_lost": len(found["idf", False]),
    }
    for name in judges:
        kept, lost = fmean(found[name, True]), fmean(found[name, False])
        result[name] = {
            "quality_kept": round(kept, 3),
            "quality_lost": round(lost, 3),
            "gap": round(kept - lost, 3),
        }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()

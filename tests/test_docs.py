"""What the documents claim is true: paths, targets and keys exist, the example runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sumone.config import DataConfig, TrainConfig

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "docs" / "paper-map.md",
    *sorted((ROOT / "docs" / "results").rglob("*.md")),
    *sorted((ROOT / "data").glob("*.md")),
]
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
# Folders that only exist after a run.
MADE_BY_RUNS = ("runs/", "cache/", ".venv/")


def code_spans(text: str) -> list[str]:
    without_blocks = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return re.findall(r"`([^`\n]+)`", without_blocks)


def path_claims(text: str) -> list[str]:
    roots = r"(?:sumone|configs|docs|tests|scripts|benchmarks|data|envs)/[\w./*-]+"
    found = [span for span in code_spans(text) if re.fullmatch(roots, span)]
    found += re.findall(r"\]\(((?!https?:|#)[^)#]+)", text)
    return [claim for claim in found if not claim.startswith(MADE_BY_RUNS)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_paths_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for claim in path_claims(text):
        bases = (ROOT, document.parent)
        assert any(list(base.glob(claim.rstrip("/"))) for base in bases), claim


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_make_targets_exist(document: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    text = document.read_text(encoding="utf-8")
    code = code_spans(text) + re.findall(r"```.*?```|^    [^\n]*$", text, re.DOTALL | re.MULTILINE)
    for target in re.findall(r"(?:^|\n)\s*make ([a-z][a-z-]+)\b", "\n".join(code)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_no_address_of_a_machine_or_index(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert not re.search(r"(^|[^A-Za-z0-9_.])/(work|root|home/\w+)/", text)
    assert "../shared" not in text or document.name != "README.md"


def test_keys_of_the_paper_map_exist() -> None:
    text = (ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8")
    for span in code_spans(text):
        match = re.match(r"^(masking|reward|judge|compaction|policy|reconstructor)\.(\w+)", span)
        if match:
            section = TrainConfig.model_fields[match[1]].annotation
            assert match[2] in section.model_fields, span  # type: ignore[union-attr]
    paper = yaml.safe_load((ROOT / "configs" / "paper.yaml").read_text(encoding="utf-8"))
    for key in re.findall(r"`grpo\.(\w+)", text):
        assert key in paper["grpo"], key


@pytest.mark.parametrize("kind", [TrainConfig, DataConfig])
def test_every_field_says_what_it_means(kind: type[TrainConfig] | type[DataConfig]) -> None:
    todo = [kind]
    while todo:
        current = todo.pop()
        for name, field in current.model_fields.items():
            assert field.description, f"{current.__name__}.{name}"
            if isinstance(field.annotation, type) and hasattr(field.annotation, "model_fields"):
                todo.append(field.annotation)


def test_the_readme_example_runs(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```", readme, re.DOTALL)
    assert example, "the README shows an example"
    assert len(example[1].strip().splitlines()) <= 12
    done = subprocess.run(
        [sys.executable, "-c", example[1]],
        cwd=ROOT,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()

"""The house rules that a linter can check."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "sumone"
FILES = sorted(PACKAGE.rglob("*.py"))
HEAVY = {"torch", "transformers", "trl", "peft", "accelerate", "deepspeed", "vllm", "datasets"}


def imported(tree: ast.AST, everywhere: bool) -> set[str]:
    """Top-level names of imported packages; `everywhere` includes those inside functions."""
    nodes = ast.walk(tree) if everywhere else _module_level(tree)
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


def _module_level(tree: ast.AST) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    todo = list(getattr(tree, "body", []))
    while todo:
        node = todo.pop()
        found.append(node)
        is_type_checking = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        if isinstance(node, (ast.If, ast.Try, ast.With)) and not is_type_checking:
            todo += node.body + getattr(node, "orelse", [])
        elif isinstance(node, ast.ClassDef):
            todo += node.body
    return found


def test_layers_point_downwards() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", FILES, ids=[str(f.relative_to(PACKAGE)) for f in FILES])
def test_heavy_packages_stay_where_they_belong(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    place = file.relative_to(PACKAGE).as_posix()
    if not place.startswith("training/"):
        assert not imported(tree, everywhere=False) & HEAVY
        if not place.startswith("models/"):
            assert not imported(tree, everywhere=True) & HEAVY
    if place != "config.py":
        assert "omegaconf" not in imported(tree, everywhere=True)
    if not place.startswith("models/"):
        assert "openai" not in imported(tree, everywhere=True)


@pytest.mark.parametrize("file", FILES, ids=[str(f.relative_to(PACKAGE)) for f in FILES])
def test_files_own_one_noun(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count("\n") <= 400, "split the file: it owns more than one noun"
    assert file.stem not in {"utils", "helpers", "common", "base"}
    assert ast.get_docstring(ast.parse(text)), "the docstring says what the file owns"


@pytest.mark.parametrize("name", ["sumone.runtime", "sumone.cli", "sumone.reward", "sumone.data"])
def test_a_light_import_loads_nothing_heavy(name: str) -> None:
    heavy = sorted(HEAVY)
    code = f"import {name}, sys; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("word", ["chunk", "segment", "condenser", "memory compressor"])
def test_one_name_per_thing(word: str) -> None:
    hits = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in FILES
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if word in line.lower()
    ]
    assert hits == []

"""The run folder: opening, refusing, and going back to the newest good checkpoint."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from training.conftest import write_instances

from sumone.config import TrainConfig
from sumone.errors import ConfigError
from sumone.training.run_folder import COMPLETE, RunFolder, mark_complete, write_atomically

Configure = Callable[..., TrainConfig]


@pytest.fixture
def opened(configure: Configure) -> RunFolder:
    config = configure()
    folder = RunFolder(config.output_dir)
    folder.open(config, resume=False)
    return folder


def checkpoint(folder: RunFolder, step: int, *, complete: bool = True) -> Path:
    path = folder.checkpoints / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"weights" * step)
    (path / "trainer_state.json").write_text("{}", encoding="utf-8")
    if complete:
        mark_complete(path)
    return path


def test_a_used_folder_needs_resume(configure: Configure, opened: RunFolder) -> None:
    with pytest.raises(ConfigError, match=r"not empty: add --resume .* output_dir="):
        opened.open(configure(), resume=False)
    opened.open(configure(), resume=True)


def test_resume_without_a_run_starts_one_or_refuses(configure: Configure, tmp_path: Path) -> None:
    new = RunFolder(tmp_path / "new")
    new.open(configure(), resume=True)
    assert new.config.is_file()
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigError, match="holds files but no run"):
        RunFolder(other).open(configure(), resume=True)


def test_resume_names_every_changed_key(configure: Configure, opened: RunFolder) -> None:
    changed = configure("seed=9", "grpo.learning_rate=0.5", "grpo.beta=0.1", "masking.ratio=0.25")
    with pytest.raises(ConfigError) as caught:
        opened.open(changed, resume=True)
    message = str(caught.value)
    for line in (
        "seed: was 3, now 9",
        "grpo.learning_rate: was 0.001, now 0.5",
        "grpo.beta: was '(not set)', now 0.1",
        "masking.ratio: was 0.5, now 0.25",
    ):
        assert line in message
    assert "prompts_per_step" not in message


def test_resume_under_other_deadlines_and_limits_is_allowed(
    configure: Configure, opened: RunFolder
) -> None:
    opened.open(
        configure(
            "reward.rollout_deadline_seconds=7",
            "reward.max_failed_steps=9",
            "completions_logged=0",
            "grpo.save_steps=1",
            "evaluation.every_steps=3",
        ),
        resume=True,
    )


def test_changed_data_is_another_run(
    configure: Configure, opened: RunFolder, tmp_path: Path
) -> None:
    own = tmp_path / "own.jsonl"
    write_instances(own, range(5))
    config = configure(f"data.train={own}", f"output_dir={tmp_path / 'b'}")
    folder = RunFolder(config.output_dir)
    folder.open(config, resume=False)
    write_instances(own, range(6))
    with pytest.raises(ConfigError, match=r"data\.train: the file's contents changed"):
        folder.open(config, resume=True)


def test_half_written_checkpoints_are_skipped(opened: RunFolder) -> None:
    assert opened.good_checkpoint() is None
    good = checkpoint(opened, 2)
    unmarked = checkpoint(opened, 4, complete=False)
    assert opened.good_checkpoint() == good
    cut = checkpoint(opened, 10)
    assert opened.good_checkpoint() == cut  # by number, not by name
    (cut / "model.safetensors").write_bytes(b"short")
    assert opened.good_checkpoint() == good
    (cut / COMPLETE).write_text('{"files": ', encoding="utf-8")
    assert opened.rewind() == (good, 2)
    assert not unmarked.exists()
    assert not cut.exists()


def test_rewind_drops_lines_of_later_steps(opened: RunFolder) -> None:
    checkpoint(opened, 2)
    lines = [
        json.dumps({"step": step, "text": "ä\u2028\x85"}, ensure_ascii=False)
        for step in (1, 2, 2, 3, 4)
    ]
    opened.metrics.write_text("\n".join(lines) + '\n{"step": 5, "re', encoding="utf-8")
    opened.evaluation("step-2").write_text("{}", encoding="utf-8")
    opened.evaluation("step-4").write_text("{}", encoding="utf-8")
    opened.evaluation("before").write_text("{}", encoding="utf-8")
    opened.rewind()
    kept = opened.metrics.read_text(encoding="utf-8")
    assert [json.loads(line)["step"] for line in kept.strip().split("\n")] == [1, 2, 2]
    assert not opened.evaluation("step-4").exists()
    assert opened.evaluation("step-2").exists()
    assert opened.evaluation("before").exists()


def test_rewind_without_a_checkpoint_starts_over(opened: RunFolder) -> None:
    opened.metrics.write_text('{"step": 1}\n', encoding="utf-8")
    assert opened.rewind() == (None, 0)
    assert opened.metrics.read_text(encoding="utf-8") == ""


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    write_atomically(file, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(file, "new \ud800")
    assert file.read_text(encoding="utf-8") == "old"

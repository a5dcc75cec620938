"""Whole runs of the tiny world: what they write, how they resume, when they stop."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from training.runs import course, masks, run, steps
from transformers import AutoModelForCausalLM, AutoTokenizer

from sumone.config import TrainConfig
from sumone.errors import ConfigError
from sumone.summarizers.model import open_summarizer
from sumone.training import train
from sumone.training.run_folder import COMPLETE, RunFolder
from sumone.training.run_log import read_lines

Configure = Callable[..., TrainConfig]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, world: Path) -> tuple[TrainConfig, str]:
    """One run of 8 steps that nobody disturbs, and its output."""
    folder = tmp_path_factory.mktemp("finished")
    config = TrainConfig.model_validate(
        {
            "seed": 3,
            "output_dir": str(folder / "run"),
            "prompts": "compact",
            "policy": {"path": str(world / "policy")},
            "reconstructor": {"path": str(world / "reconstructor"), "max_model_tokens": 4096},
            "judge": {"kind": "lexical"},
            "data": {"train": str(world / "train.jsonl"), "heldout": str(world / "heldout.jsonl")},
            "masking": {"block_tokens": 24},
            "reward": {"objective": "information_gain", "budget_tokens": 12},
            "evaluation": {"num_instances": 6, "every_steps": 4},
            "prompts_per_step": 2,
            "completions_logged": 8,
            "grpo": {
                "max_steps": 8,
                "num_generations": 4,
                "per_device_train_batch_size": 8,
                "gradient_accumulation_steps": 1,
                "learning_rate": 1e-3,
                "save_steps": 2,
                "gradient_checkpointing": False,
            },
        }
    )
    return config, run(config)


def test_a_run_leaves_everything_it_should(finished: tuple[TrainConfig, str]) -> None:
    config, output = finished
    folder = RunFolder(config.output_dir)
    assert [m["step"] for m in steps(config)] == list(range(1, 9))
    assert all(len(m["instances"]) == 2 for m in steps(config))
    for name in ("reward", "quality", "penalty", "summary_tokens", "failed_share", "clipped_share"):
        assert all(isinstance(m[name], float) for m in steps(config)), name
    completions = read_lines(folder.completions)
    assert len(completions) == 8 * 8
    assert {"summary", "value", "quality", "failure", "blocks"} <= set(completions[0])
    assert {"index", "truth", "prediction", "status"} <= set(completions[0]["blocks"][0])
    stored = yaml.safe_load(folder.config.read_text(encoding="utf-8"))
    assert TrainConfig.model_validate(stored) == config
    assert folder.picture.read_bytes().startswith(b"\x89PNG")
    results = json.loads(folder.results.read_text(encoding="utf-8"))
    assert results["steps"] == 8
    assert results["digest"] == config.digest()
    assert set(results["means"]) == {"before", "after", "empty", "shuffled", "history", "extract"}
    assert results["means"]["empty"]["num_summary_tokens"] == 0
    assert results["means"]["history"]["num_summary_tokens"] > 50
    assert results["training_seconds"] > 0
    assert "before training" in output
    assert "perfect extract" in output
    assert f"sumone compress TRANSCRIPT --summarizer {folder.path}" in output
    middle = json.loads(folder.evaluation("step-4").read_text(encoding="utf-8"))
    assert len(middle["rows"]) == 6


def test_the_prompts_are_those_of_the_seeded_order(finished: tuple[TrainConfig, str]) -> None:
    config, _ = finished
    seen = [i for m in steps(config) for i in m["instances"]]
    assert len(set(seen)) == 16  # within one epoch nothing repeats
    assert {int(i[1:]) for i in seen} <= set(range(24))


def test_all_samples_of_a_prompt_share_a_mask(finished: tuple[TrainConfig, str]) -> None:
    config, _ = finished
    by_prompt: dict[tuple[int, str], set[Any]] = {}
    for step, instance, mask_step, hidden in masks(config):
        assert mask_step == step - 1
        by_prompt.setdefault((step, instance), set()).add(hidden)
    assert all(len(found) == 1 for found in by_prompt.values())


def test_the_trained_policy_loads_and_differs(finished: tuple[TrainConfig, str]) -> None:
    config, _ = finished
    folder = RunFolder(config.output_dir)
    card = json.loads((folder.policy / "sumone.json").read_text(encoding="utf-8"))
    assert card["prompts"] == "compact"
    assert card["budget_tokens"] == 12
    assert card["compaction"] == config.compaction.model_dump(mode="json")
    trained = AutoModelForCausalLM.from_pretrained(folder.policy)
    start = AutoModelForCausalLM.from_pretrained(config.policy.path)
    before, after = start.state_dict(), trained.state_dict()
    assert before.keys() == after.keys()
    assert max(float((after[n] - before[n]).abs().max()) for n in before) > 1e-4
    tokenizer = AutoTokenizer.from_pretrained(folder.policy)
    assert (
        tokenizer.chat_template == AutoTokenizer.from_pretrained(config.policy.path).chat_template
    )
    opened = open_summarizer(str(folder.path))  # the run folder itself is a summarizer
    assert (opened.card.prompts, opened.card.budget_tokens) == ("compact", 12)
    assert opened.tokens.count("db1 200 ms") > 0
    asyncio.run(opened.aclose())


def test_resuming_a_finished_run_only_reports(finished: tuple[TrainConfig, str]) -> None:
    config, output = finished
    folder = RunFolder(config.output_dir)
    weights = (folder.policy / "model.safetensors").stat().st_mtime_ns
    before = course(config)
    assert run(config, resume=True) == output
    assert course(config) == before
    assert (folder.policy / "model.safetensors").stat().st_mtime_ns == weights


def test_a_used_folder_or_another_configuration_is_refused(
    finished: tuple[TrainConfig, str],
) -> None:
    config, _ = finished
    with pytest.raises(ConfigError, match="--resume"):
        train(config)
    with pytest.raises(ConfigError, match="seed: was 3, now 4"):
        train(config.model_copy(update={"seed": 4}), resume=True)


def test_kill_at_any_moment_and_resume(finished: tuple[TrainConfig, str], tmp_path: Path) -> None:
    """A real process, killed without warning after some steps, goes on as if nothing was."""
    undisturbed, _ = finished
    config = undisturbed.model_copy(update={"output_dir": str(tmp_path / "run")})
    folder = RunFolder(config.output_dir)
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config.model_dump(mode="json")), encoding="utf-8")
    command = [sys.executable, str(ROOT / "scripts" / "train_grpo.py"), str(file)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            deadline = time.monotonic() + 120
            while len(_whole_lines(folder.metrics)) < 3 or not _marked(folder):
                assert process.poll() is None, (tmp_path / "log").read_text("utf-8")
                assert time.monotonic() < deadline, "the run did not come to step 3"
                time.sleep(0.01)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    killed_at = len(_whole_lines(folder.metrics))
    assert killed_at >= 3
    assert not folder.results.exists()
    # As if it had been killed while it wrote the next checkpoint, and a line.
    last = max(int(f.name.split("-")[1]) for f in folder.checkpoints.glob("checkpoint-*"))
    newest = folder.checkpoints / f"checkpoint-{last}"
    half = folder.checkpoints / f"checkpoint-{last + 2}"
    shutil.copytree(newest, half)
    (half / COMPLETE).unlink(missing_ok=True)
    (half / "model.safetensors").write_bytes(b"half")
    with folder.metrics.open("a", encoding="utf-8") as metrics:
        metrics.write('{"step": 99, "rew')
    run(config, resume=True)
    assert course(config) == course(undisturbed)
    assert masks(config) == masks(undisturbed)
    same = ("before", "after", "shuffled")
    for name in same:
        assert folder.evaluation(name).read_text("utf-8") == RunFolder(
            undisturbed.output_dir
        ).evaluation(name).read_text("utf-8")


def _whole_lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").split("\n")[:-1] if file.is_file() else []


def _marked(folder: RunFolder) -> bool:
    return any(folder.checkpoints.glob(f"checkpoint-*/{COMPLETE}"))


def test_an_adapter_is_trained_resumed_and_merged(configure: Configure) -> None:
    config = configure("policy.lora.rank=4", "grpo.max_steps=2", "evaluation.controls=false")
    run(config)
    folder = RunFolder(config.output_dir)
    adapter = folder.policy / "adapter" / "adapter_model.safetensors"
    assert adapter.is_file()
    merged = AutoModelForCausalLM.from_pretrained(folder.policy)
    start = AutoModelForCausalLM.from_pretrained(config.policy.path)
    names = {name for name, _ in merged.named_parameters()}
    assert names == {name for name, _ in start.named_parameters()}
    before, after = start.state_dict(), merged.state_dict()
    changed = {n for n in names if not torch.equal(before[n], after[n])}
    assert changed
    assert all(n.split(".")[-2] in config.policy.lora.target_modules for n in changed)  # type: ignore[union-attr]
    folder.evaluation("after").unlink()  # as if killed before the last evaluation
    weights = after["model.layers.0.self_attn.q_proj.weight"]
    run(config, resume=True)
    again = AutoModelForCausalLM.from_pretrained(folder.policy).state_dict()
    assert torch.equal(again["model.layers.0.self_attn.q_proj.weight"], weights)


@pytest.mark.slow
def test_two_processes_see_the_same_masks_and_agree(configure: Configure, tmp_path: Path) -> None:
    """A real two-process job on the CPU: groups straddle the processes, evaluation is shared."""
    config = configure(
        "grpo.per_device_train_batch_size=3",
        "prompts_per_step=3",
        "grpo.num_generations=4",
        "grpo.gradient_accumulation_steps=2",
        "grpo.ddp_backend=gloo",
        "evaluation.num_instances=5",
        "evaluation.every_steps=2",
        "completions_logged=100",
    )
    file = tmp_path / "two.yaml"
    file.write_text(yaml.safe_dump(config.model_dump(mode="json")), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2"]
    script = str(ROOT / "scripts" / "train_grpo.py")
    done = subprocess.run(
        [*launcher, f"--master_port={port}", script, str(file)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "perfect extract" in done.stdout
    assert done.stdout.count("Held-out evaluation") == 1
    assert [m["step"] for m in steps(config)] == [1, 2, 3, 4]
    assert all(m["failed_share"] == 0 for m in steps(config))
    by_prompt: dict[tuple[int, str], set[Any]] = {}
    for step, instance, _, hidden in masks(config):
        by_prompt.setdefault((step, instance), set()).add(hidden)
    assert all(len(found) == 1 for found in by_prompt.values())
    # The first process scored 6 of 12 completions: one whole group and half of the next.
    counts = Counter(c["instance_id"] for c in read_lines(RunFolder(config.output_dir).completions))
    assert sum(counts.values()) == 4 * 6
    for name in ("before", "step-2", "after", "shuffled"):
        rows = json.loads(RunFolder(config.output_dir).evaluation(name).read_text("utf-8"))["rows"]
        assert [row["instance_id"] for row in rows] == [f"i{n}" for n in range(100, 105)]

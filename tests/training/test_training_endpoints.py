"""Whole runs whose models sit behind endpoints, and what stops a run."""

import asyncio
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_openai import FakeOpenAI, Received, Text
from training.conftest import make_instance
from training.runs import run, steps

from sumone.config import TrainConfig
from sumone.errors import ConfigError, DataError, ModelError
from sumone.training import train
from sumone.training.run_folder import RunFolder
from sumone.training.run_log import read_lines

Configure = Callable[..., TrainConfig]


def reconstruction(request: Received) -> str:
    """The same guess for every block asked for."""
    asked = request.prompt.split("[fill]")[1]
    found = re.findall(r'<missing block="(\d+)" key="(\w+)"/>', asked)
    return "\n".join(f'<block-{key} index="{i}">db1 200 ms</block-{key}>' for i, key in found)


def test_48_rollouts_through_real_endpoints(configure: Configure) -> None:
    """Reconstructor and judge behind a server: all calls of a step are in flight together."""

    async def answer(request: Received) -> str:
        async with asyncio.timeout(60):
            await asyncio.sleep(0.002)
        if "[fill]" in request.prompt:
            return reconstruction(request)
        return '{"precision": 0.5, "recall": 0.25}'

    with FakeOpenAI(answer) as server:
        endpoint = f"endpoint.base_url={server.url}"
        config = configure(
            "reward.objective=reconstruction",
            "prompts_per_step=6",
            "grpo.num_generations=8",
            "grpo.per_device_train_batch_size=48",
            "grpo.max_steps=1",
            "reconstructor.path=null",
            f"reconstructor.{endpoint}",
            "reconstructor.endpoint.model=reconstructor",
            "judge.kind=llm",
            f"judge.model.{endpoint}",
            "judge.model.endpoint.model=judge",
            "evaluation.num_instances=2",
            "evaluation.controls=false",
        )
        run(config)
        asked = {request.body["model"] for request in server.requests}
    assert asked == {"reconstructor", "judge"}
    (step,) = steps(config)
    assert step["failed_share"] == 0
    assert step["quality"] == pytest.approx(0.75)
    assert (step["precision"], step["recall"]) == (pytest.approx(0.5), pytest.approx(0.25))
    assert step["reward"] == pytest.approx(0.75 - step["penalty"], abs=1e-4)  # ties: a grid
    block = read_lines(RunFolder(config.output_dir).completions)[0]["blocks"][0]
    assert block["prediction"].strip() == "db1 200 ms"
    assert block["status"] == "judged"


def test_a_run_whose_rewards_keep_failing_stops_with_a_checkpoint(
    configure: Configure, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every reconstruction is cut from some moment on; the run stops, and can go on later."""
    broken: list[bool] = [True]

    def answer(request: Received) -> Text:
        if broken:
            return Text("cut", finish_reason="length")
        return Text(reconstruction(request))

    with FakeOpenAI(answer) as server:
        config = configure(
            "reward.objective=reconstruction",
            "reward.max_failed_steps=2",
            "reconstructor.path=null",
            f"reconstructor.endpoint.base_url={server.url}",
            "reconstructor.endpoint.model=reconstructor",
            "evaluation.controls=false",
            "evaluation.num_instances=2",
            "grpo.save_steps=100",
        )
        folder = RunFolder(config.output_dir)
        with pytest.raises(ModelError, match="no score for any of 2 instances"):
            train(config)
        broken.clear()
        training = threading.Thread(target=_break_after_evaluation, args=(folder, broken))
        training.start()
        with pytest.raises(ModelError, match=r"stopped at step \d+: .* go on with --resume"):
            train(config, resume=True)
        training.join()
        stopped = steps(config)[-1]["step"]
        assert [m["failed_share"] for m in steps(config)[-2:]] == [1.0, 1.0]
        assert steps(config)[-1]["reward"] is None
        assert folder.good_checkpoint() == folder.checkpoints / f"checkpoint-{stopped}"
        broken.clear()
        run(config, resume=True)
    output = capfd.readouterr()
    assert "Find the slow host" not in output.out + output.err  # no prompt in any log
    assert [m["step"] for m in steps(config)] == [1, 2, 3, 4]
    assert [m["failed_share"] for m in steps(config)[stopped:]] == [0.0] * (4 - stopped)


def _break_after_evaluation(folder: RunFolder, broken: list[bool]) -> None:
    while not folder.evaluation("before").is_file():
        time.sleep(0.001)
    broken.append(True)


def test_missing_things_are_named_before_anything_starts(
    configure: Configure, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"no instances at .*nothing.jsonl: make them"):
        train(configure(f"data.train={tmp_path / 'nothing.jsonl'}"))
    with pytest.raises(ConfigError, match=r"no model at '/nowhere/model'"):
        train(configure("policy.path=/nowhere/model"))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ConfigError, match=r"without config\.json"):
        train(configure(f"policy.path={empty}"))
    with pytest.raises(ConfigError, match="no model at"):
        train(configure("reconstructor.path=/nowhere/model"))
    with pytest.raises(DataError, match=r"24 prompt.*longer than 64 tokens .*max_prompt_tokens=64"):
        train(
            configure(
                "policy.max_prompt_tokens=64",
                "evaluation.num_instances=1",
                f"data.heldout={_short_instance(tmp_path)}",
            )
        )
    with pytest.raises(DataError, match=r"window of 4096 less reward\.budget_tokens=4090"):
        train(configure("policy.max_prompt_tokens=40960", "reward.budget_tokens=4090"))
    assert not Path(configure().output_dir).exists()


def _short_instance(folder: Path) -> Path:
    instance = make_instance(500)
    short = instance.model_copy(update={"history": instance.history[:1], "recent": ()})
    file = folder / "short.jsonl"
    file.write_text(short.model_dump_json() + "\n", encoding="utf-8")
    return file

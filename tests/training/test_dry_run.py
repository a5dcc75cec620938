"""`--dry-run`: what it prints, what it marks, what it refuses."""

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from sumone.config import TrainConfig, load_train_config
from sumone.errors import ConfigError
from sumone.training import train
from sumone.training.estimate import load_shapes

Configure = Callable[..., TrainConfig]
ROOT = Path(__file__).parents[2]
PAPER = ROOT / "configs" / "paper.yaml"


def dry(config: TrainConfig, *, strict: bool = False) -> str:
    out = io.StringIO()
    assert train(config, dry_run=True, strict=strict, console=Console(file=out, width=200)) == 0
    return out.getvalue()


def figure(text: str, label: str) -> str:
    found = re.search(rf"^  {re.escape(label)} +(.*)$", text, re.MULTILINE)
    assert found, label
    return found.group(1)


def test_everything_at_hand_is_counted_not_estimated(configure: Configure) -> None:
    config = configure()
    text = dry(config, strict=True)
    assert "cannot be reached" not in text
    assert config.digest() in text
    assert "budget_tokens: 12" in text
    assert re.search(r"block +\d+ +\d+ tokens  masked", text)
    assert re.search(r"block +\d+ +\d+ tokens  visible", text)
    assert "prompt of the policy" in text
    assert "prompt of the reconstructor, first call" in text
    assert '<missing block="' in text
    assert figure(text, "rollouts") == "8"
    assert figure(text, "tokens generated, at most") == "96"
    assert "estimated" not in figure(text, "prompt tokens, mean")
    assert "estimated" in figure(text, "weights")
    assert "estimated" in figure(text, "time on 1 x CPU")
    assert not Path(config.output_dir).exists()


def test_paper_yaml_passes_offline_with_every_figure_marked(tmp_path: Path) -> None:
    if not any((ROOT / "data").glob("*/heldout.jsonl")):
        pytest.skip("the checkout has no example instances")
    text = dry(load_train_config(PAPER))
    assert "no model at 'Qwen/Qwen3.5-2B'" in text
    assert "estimate: UTF-8 bytes / 3 and the shape recorded in models.yaml" in text
    assert "no instances at data/paper/train.jsonl" in text
    assert "needs 8 processes" in text
    assert "prompt of the judge" in text
    assert figure(text, "rollouts") == "48"
    for label in (
        "prompt tokens, mean",
        "tokens trained on, at most",
        "reconstructor calls",
        "judge verdicts",
        "judge cost",
        "weights",
        "time on 8 x H20",
        "time on 8 x H200",
    ):
        assert "(estimated)" in figure(text, label), label
    cost = re.match(r"\$([\d.]+) a step", figure(text, "judge cost"))
    assert cost
    # 1,152 verdicts of about 1.5K tokens at 24K-token instances cost $0.34-0.47 at list price.
    assert 0.2 < float(cost.group(1)) < 0.6
    assert "DeepSeek V4.1 Flash" in figure(text, "judge cost")


def test_strict_fails_where_something_is_missing() -> None:
    with pytest.raises(ConfigError) as caught:
        dry(load_train_config(PAPER), strict=True)
    message = str(caught.value)
    assert "Qwen/Qwen3.5-2B" in message
    assert "data/paper/train.jsonl" in message


def test_what_could_run_nowhere_is_refused(configure: Configure) -> None:
    with pytest.raises(ConfigError, match="learning_rat"):
        dry(configure("grpo.learning_rat=1"))
    with pytest.raises(ConfigError, match="12 rollouts"):
        dry(configure("prompts_per_step=3"))


def test_other_objectives_and_unknown_prices(configure: Configure) -> None:
    endpoint = ("judge.model.endpoint.base_url=http://127.0.0.1:9/v1",
                "judge.model.endpoint.model=house-judge")  # fmt: skip
    text = dry(configure("reward.objective=reconstruction", "judge.kind=llm", *endpoint))
    assert figure(text, "judge cost") == "unknown: no list price of house-judge  (estimated)"
    assert int(figure(text, "judge verdicts").replace(",", "")) > 8
    assert figure(dry(configure()), "judge cost") == "none: no judge model"
    lora = dry(configure("policy.lora.rank=4"))
    assert figure(lora, "gradients and Adam state")


def test_recorded_shapes() -> None:
    shapes = load_shapes(ROOT / "configs" / "models.yaml")
    small, large = shapes.model("Qwen/Qwen3.5-2B"), shapes.model("Qwen3.5-9B/")
    assert small is not None
    assert large is not None
    assert (small.layers, small.hidden, large.layers, large.hidden) == (24, 2048, 32, 4096)
    assert shapes.model("unknown") is None
    assert {"H20", "H200", "CPU"} <= set(shapes.devices)

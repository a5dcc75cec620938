"""Configuration: one file, overrides, clear errors, a digest of what changes results."""

from pathlib import Path

import pytest

from sumone.config import load_data_config, load_train_config
from sumone.errors import ConfigError

MINIMAL = """
output_dir: runs/x
policy: {path: models/policy}
reconstructor: {path: models/reconstructor}
data: {train: train.jsonl, heldout: heldout.jsonl}
grpo: {learning_rate: 1.0e-6}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(MINIMAL, encoding="utf-8")
    return path


def test_defaults_and_overrides(file: Path) -> None:
    config = load_train_config(file, ["masking.ratio=0.25", "grpo.max_steps=7", "seed=3"])
    assert config.masking.ratio == 0.25 and config.masking.block_tokens == 512
    assert config.grpo == {"learning_rate": 1e-6, "max_steps": 7}
    assert config.seed == 3 and config.reward.budget_tokens == 2048
    assert config.reward.length_penalty == 0.1


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["masking.ration=0.5"], ["masking.ration", "unknown key", "block_tokens", "ratio"]),
        (["masking.ratio=2"], ["masking.ratio", "less than or equal to 1", "2"]),
        (["reward.objective=best"], ["reward.objective", "information_gain"]),
        (["masking"], ["masking", "key=value"]),
        (["policy.path=null"], ["policy.path", "string"]),
    ],
)
def test_errors_say_what_and_where(file: Path, overrides: list[str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_train_config(file, overrides)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("text", ["a: [", "- a\n- b\n", "\x00", ""])
def test_broken_files_are_config_errors(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"broken\.yaml"):
        load_data_config(path)
    with pytest.raises(ConfigError, match="no configuration file"):
        load_data_config(tmp_path / "missing.yaml")


def test_the_digest_covers_what_changes_results_and_nothing_else(file: Path) -> None:
    base = load_train_config(file)
    same = [
        "output_dir=elsewhere",
        "completions_logged=9",
        "evaluation.num_instances=5",
        "reward.batch_deadline_seconds=5",
        "reconstructor.limits.concurrency=3",
        "grpo.save_steps=3",
        "grpo.report_to=none",
    ]
    for override in same:
        assert load_train_config(file, [override]).digest() == base.digest(), override
    other = [
        "seed=1",
        "policy.path=other",
        "data.train=other.jsonl",
        "masking.ratio=0.75",
        "reward.length_penalty=0.2",
        "grpo.learning_rate=0.1",
        "reconstructor.path=other",
    ]
    digests = {load_train_config(file, [override]).digest() for override in other}
    assert len(digests) == len(other) and base.digest() not in digests


def test_an_endpoints_address_is_outside_the_digest_but_its_model_is_not(file: Path) -> None:
    def digest(url: str, model: str) -> str:
        return load_train_config(
            file,
            [
                "reconstructor.path=null",
                f"reconstructor.endpoint.base_url={url}",
                f"reconstructor.endpoint.model={model}",
            ],
        ).digest()

    assert digest("http://a/v1", "m") == digest("http://b/v1", "m") != digest("http://a/v1", "n")

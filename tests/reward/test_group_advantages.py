"""What TRL makes of our rewards (Equation 7): None, ties and residues, on its real code."""

import math
from typing import Any

import pytest
from tiny_model import make_tiny_model

from sumone.reward.reconstruction import on_grid

G = 8


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A real GRPOTrainer whose reward function returns what the test prepared."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    folder = tmp_path_factory.mktemp("grpo")
    prepared: list[float | None] = []

    def reward(completions: list[Any], **_: Any) -> list[float | None]:
        return list(prepared)

    options = GRPOConfig(
        output_dir=str(folder / "run"), num_generations=G, per_device_train_batch_size=2 * G,
        generation_batch_size=2 * G, max_completion_length=2, report_to=[], use_cpu=True, bf16=False,
        model_init_kwargs={"dtype": "float32"},
    )  # fmt: skip
    made = GRPOTrainer(
        str(make_tiny_model(folder / "model")),
        reward_funcs=reward,
        args=options,
        train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": "x"}]}] * 4),
    )
    made.prepared = prepared  # type: ignore[attr-defined]
    return made


def advantages(trainer: Any, rewards: list[float | None]) -> tuple[list[float], dict[str, float]]:
    """Advantages of two groups, and what TRL logs about them."""
    assert len(rewards) == 2 * G
    trainer.prepared[:] = rewards
    rows = [{"prompt": [{"role": "user", "content": name}]} for name in "ab" for _ in range(G)]
    trainer.model.train()
    batch = trainer._generate_and_score_completions(rows)
    logged = {name: values[-1] for name, values in trainer._metrics["train"].items() if values}
    return batch["advantages"].tolist(), logged


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_none_leaves_the_mean_and_the_deviation(trainer: Any) -> None:
    """Case 110."""
    valid = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    got, _ = advantages(trainer, [None, *valid, None, *[1.0, 2.0] * 4])
    mean = sum(valid) / 6
    deviation = math.sqrt(sum((x - mean) ** 2 for x in valid) / 5)
    expected = [0.0, *((x - mean) / (deviation + 1e-4) for x in valid), 0.0]
    assert got[:G] == pytest.approx(expected, abs=1e-4)
    assert all(math.isfinite(value) and value for value in got[G:])


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("group", [[None] * G, [None] * (G - 1) + [0.7]])
def test_a_group_without_two_rewards_teaches_nothing(trainer: Any, group: list[Any]) -> None:
    """Case 110: all invalid, or one left: advantage 0, never NaN."""
    got, logged = advantages(trainer, [*group, *[1.0, 2.0] * 4])
    assert got[:G] == [0.0] * G
    assert all(math.isfinite(value) for value in got)
    assert math.isfinite(logged["reward"])


@pytest.mark.parametrize(
    ("group", "bound"),
    [
        ([0.35] * G, 0.0),
        ([1.3] * G, 0.0),
        ([0.35] * 7 + [0.35 - 1e-8], 0.0),
        ([0.1 + 0.2] * 4 + [0.3] * 4, 0.0),
        ([0.7] * 7 + [None], 0.0),
    ],
)
def test_equal_rewards_and_residues_teach_nothing(
    trainer: Any, group: list[Any], bound: float
) -> None:
    """Case 111: on the engine's grid equal rewards give exactly 0."""
    got, _ = advantages(
        trainer, [*(x if x is None else on_grid(x) for x in group), *[1.0, 2.0] * 4]
    )
    assert all(abs(value) <= bound for value in got[:G])


def test_residues_below_the_grid_would_be_harmless_too(trainer: Any) -> None:
    """Case 111, for whoever feeds TRL other rewards."""
    got, _ = advantages(trainer, [*[0.35] * 7, 0.35 - 9e-7, *[1.0, 2.0] * 4])
    assert all(abs(value) < 0.01 for value in got[:G])


def test_any_advantage_is_bounded(trainer: Any) -> None:
    """With eps 1e-4 and Bessel's correction |A| <= (G - 1) / sqrt(G): no floor is needed."""
    got, _ = advantages(trainer, [*[0.5] * 7, 0.9, *[2.0] * 7, 1e-3])
    assert max(map(abs, got)) <= (G - 1) / math.sqrt(G)


def test_what_is_logged_tells_constant_groups(trainer: Any) -> None:
    """Case 112: two constant groups on different levels: the batch varies, no group does."""
    got, logged = advantages(trainer, [on_grid(0.2)] * G + [on_grid(1.2)] * G)
    assert got == [0.0] * (2 * G)
    assert logged["frac_reward_zero_std"] == 1.0
    assert logged["rewards/reward/std"] > 0.4

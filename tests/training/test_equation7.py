"""Equation 7 as the real trainer computes it from our rewards: None, ties, residues, clipping.

A scripted scorer says the rewards; everything else is TRL's GRPOTrainer and our reward object.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from training.scripted import ScriptedScorer
from training.trainers import make_trainer
from trl import GRPOTrainer

from sumone.config import TrainConfig

EPSILON = 1e-4


@pytest.fixture
def scorer() -> ScriptedScorer:
    return ScriptedScorer([0.0])


@pytest.fixture(params=[False, True], ids=["transformers", "shared-prefixes"])
def trainer(
    request: pytest.FixtureRequest,
    configure: Callable[..., TrainConfig],
    scorer: ScriptedScorer,
    tmp_path: Path,
) -> GRPOTrainer:
    """Two prompts x eight samples, without training."""
    config = configure(
        "grpo.num_generations=8",
        "grpo.per_device_train_batch_size=16",
        "grpo.delta=10.0",
        "grpo.epsilon_high=0.28",
    )
    return make_trainer(config, scorer, tmp_path, data=config.data.train, shared=request.param)[0]


def scored(trainer: GRPOTrainer) -> dict[str, Any]:
    """One generation batch through the trainer's own code."""
    rows = [trainer.train_dataset[k] for k in (0, 1) for _ in range(8)]
    return trainer._generate_and_score_completions(rows)


def latest(trainer: GRPOTrainer, name: str) -> float:
    return float(trainer._metrics["train"][name][-1])


def test_none_leaves_mean_and_deviation_and_gets_no_advantage(
    trainer: GRPOTrainer, scorer: ScriptedScorer
) -> None:
    first = [1.0, 0.2, None, 0.6, 0.8, None, 0.4, 0.3]
    second = [0.1 * k for k in range(8)]
    scorer.values = [*first, *second]
    batch = scored(trainer)
    advantages = batch["advantages"]
    known = torch.tensor([v for v in first if v is not None])
    expected = (known - known.mean()) / (known.std() + EPSILON)  # Bessel's correction
    kept = torch.tensor([v is not None for v in first])
    assert torch.allclose(advantages[:8][kept], expected, atol=1e-5)
    assert advantages[:8][~kept].tolist() == [0.0, 0.0]
    whole = torch.tensor(second)
    assert torch.allclose(
        advantages[8:], (whole - whole.mean()) / (whole.std() + EPSILON), atol=1e-5
    )
    assert latest(trainer, "failed_share") == pytest.approx(2 / 16)
    # A false 0 would have been the group's worst completion by far.
    with_zeros = torch.tensor([v or 0.0 for v in first])
    assert float(with_zeros.std()) > float(known.std())
    loss = trainer.compute_loss(trainer.model, batch)
    assert math.isfinite(loss.item())


@pytest.mark.filterwarnings("ignore:.*All-NaN.*")
def test_a_group_without_any_reward_is_dropped(
    trainer: GRPOTrainer, scorer: ScriptedScorer
) -> None:
    scorer.values = [None] * 8 + [0.5, *[0.1] * 7]
    batch = scored(trainer)
    assert batch["advantages"][:8].tolist() == [0.0] * 8
    assert batch["advantages"][8] > 1
    scorer.values = [None]
    batch = scored(trainer)
    assert batch["advantages"].tolist() == [0.0] * 16
    loss = trainer.compute_loss(trainer.model, batch)
    assert loss.item() == 0.0
    loss.backward()
    gradients = [p.grad for p in trainer.model.parameters() if p.grad is not None]
    assert gradients
    assert all(bool((g == 0).all()) for g in gradients)


def test_a_single_known_reward_gives_no_advantage(
    trainer: GRPOTrainer, scorer: ScriptedScorer
) -> None:
    scorer.values = [None] * 7 + [0.9] + [0.5] * 8
    assert scored(trainer)["advantages"].tolist() == [0.0] * 16


def test_equal_and_nearly_equal_rewards_move_nothing(
    trainer: GRPOTrainer, scorer: ScriptedScorer
) -> None:
    for residue in (0.0, 1e-8, 1e-7, 1e-6):
        scorer.values = [*[0.35] * 7, 0.35 - residue]
        advantages = scored(trainer)["advantages"]
        assert float(advantages.abs().max()) < 0.01
        assert bool(torch.isfinite(advantages).all())


def test_advantages_are_bounded_without_a_deviation_floor(
    trainer: GRPOTrainer, scorer: ScriptedScorer
) -> None:
    for gap in (1e-4, 1e-2, 1.0, 1e3):
        scorer.values = [*[0.0] * 7, gap]
        largest = float(scored(trainer)["advantages"].abs().max())
        assert largest <= 7 / math.sqrt(8) + 1e-4


def test_constant_groups_are_seen_in_the_metrics(
    trainer: GRPOTrainer, scorer: ScriptedScorer
) -> None:
    """Quality and penalty cancel inside each group, while the groups differ."""
    scorer.values = [*[0.2] * 8, *[0.9] * 8]
    scorer.length_penalty = 0.3
    advantages = scored(trainer)["advantages"]
    assert float(advantages.abs().max()) < 0.01
    assert latest(trainer, "tied_groups_share") == 1.0
    assert latest(trainer, "reward") == pytest.approx(0.55)
    assert latest(trainer, "reward_std") > 0.3  # over the batch, not within groups
    assert latest(trainer, "quality") == pytest.approx(0.85)
    assert latest(trainer, "penalty") == pytest.approx(0.3)
    assert latest(trainer, "precision") == pytest.approx(0.5)
    assert latest(trainer, "recall") == pytest.approx(0.25)
    assert latest(trainer, "engine/rollouts") == 16
    assert latest(trainer, "rewards/information_gain/mean") == pytest.approx(0.55)
    scorer.values = [*[0.25] * 8, *[0.75] * 7, 1.0]
    scored(trainer)
    assert latest(trainer, "tied_groups_share") == 0.5
    assert latest(trainer, "frac_reward_zero_std") == 0.5


def test_rollouts_arrive_whole(trainer: GRPOTrainer, scorer: ScriptedScorer) -> None:
    """Ids, step and |S| without the end token, for cut and for ended completions."""
    trainer.state.global_step = 7
    batch = scored(trainer)
    assert [r.instance.id for r in scorer.seen] == ["i0"] * 8 + ["i1"] * 8
    assert {r.step for r in scorer.seen} == {7}
    end = trainer.processing_class.eos_token_id
    for rollout, ids, mask in zip(
        scorer.seen, batch["completion_ids"], batch["completion_mask"], strict=True
    ):
        tokens = ids[mask.bool()].tolist()
        assert rollout.num_tokens == len(tokens) - (tokens[-1] == end)
        assert "<|im_end|>" not in rollout.summary
        assert rollout.summary == trainer.processing_class.decode(tokens, skip_special_tokens=True)


def test_delta_is_the_dual_clip(trainer: GRPOTrainer, scorer: ScriptedScorer) -> None:
    """TRL's loss with `delta` against the dual clip of veRL, at ratios far from 1."""
    scorer.values = [1.0, 0.0]
    batch = scored(trainer)
    keep = batch["completion_ids"].size(1)
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    seen = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    with torch.no_grad():
        logps, _, _ = trainer._get_per_token_logps_and_entropies(trainer.model, ids, seen, keep)
    log_ratio = torch.linspace(-4.0, 4.0, logps.numel()).view_as(logps)
    batch["old_per_token_logps"] = logps - log_ratio
    loss = trainer.compute_loss(trainer.model, batch).item()
    ratio, advantage = log_ratio.exp(), batch["advantages"].unsqueeze(1)
    usual = torch.maximum(-ratio * advantage, -ratio.clamp(0.8, 1.28) * advantage)
    dual = torch.where(advantage < 0, torch.minimum(-10.0 * advantage, usual), usual)
    mask = batch["completion_mask"]
    expected = ((dual * mask).sum() / mask.sum()).item()
    assert loss == pytest.approx(expected, rel=1e-4)
    assert bool(((usual != dual) & mask.bool()).any())  # the third clip did bind

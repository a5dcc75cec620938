"""The held-out evaluation: greedy summaries, controls, and the statements made of them."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from training.scripted import ScriptedScorer
from training.trainers import make_trainer
from trl import GRPOTrainer

from sumone.config import TrainConfig
from sumone.errors import ModelError
from sumone.render import render_text
from sumone.training.dataset import PromptRows, read_instances
from sumone.training.decoding import encode_prompts, greedy_completions
from sumone.training.evaluation import (
    Evaluation,
    EvaluationRow,
    Evaluator,
    derangement,
    load_evaluation,
)
from sumone.training.preflight import model_tokens
from sumone.training.report import report, statements
from sumone.training.reward_adapter import summary_length
from sumone.training.run_folder import RunFolder

Configure = Callable[..., TrainConfig]


def row(number: int, value: float | None, quality: float | None = None) -> EvaluationRow:
    return EvaluationRow(
        instance_id=f"i{number}",
        summary=f"summary {number}",
        num_summary_tokens=3,
        value=value,
        quality=value if quality is None else quality,
        penalty=None if value is None else 0.1,
        precision=None,
        recall=None,
        failure="no" if value is None else None,
    )


def arm(name: str, values: list[float | None]) -> Evaluation:
    return Evaluation(name=name, step=0, rows=tuple(row(i, v) for i, v in enumerate(values)))


@given(st.integers(2, 200), st.integers(0, 9))
def test_a_derangement_moves_everything(count: int, seed: int) -> None:
    moved = derangement(count, seed)
    assert sorted(moved) == list(range(count))
    assert all(target != source for source, target in enumerate(moved))
    assert moved == derangement(count, seed)


def test_length_of_a_summary_leaves_out_its_end_token() -> None:
    ends = frozenset({9, 8})
    assert summary_length([1, 2, 9], ends) == (2, False)
    assert summary_length([1, 2, 8], ends) == (2, False)
    assert summary_length([1, 2, 3], ends) == (3, True)
    assert summary_length([9], ends) == (0, False)
    assert summary_length([], ends) == (0, True)


def test_failed_rows_leave_means_and_columns() -> None:
    evaluation = arm("after", [1.0, None, 0.5])
    assert evaluation.mean("value") == 0.75
    assert evaluation.column("value") == {"i0": 1.0, "i2": 0.5}
    assert arm("after", [None]).mean("value") is None
    assert evaluation.mean("precision") is None


def test_statements_of_a_run_that_learned() -> None:
    noise = [0.01 * (i % 5) for i in range(40)]
    claims = statements(
        arm("before", [1.0 + n for n in noise]),
        arm("after", [1.4 + n / 2 for n in noise]),
        {
            "empty": arm("empty", [0.9 + n for n in noise]),
            "shuffled": arm("shuffled", [0.95 - n for n in noise]),
            "extract": arm("extract", [1.5 + n for n in noise]),
        },
    )
    assert [claim.holds for claim in claims] == [True] * 4
    assert "76%" in claims[1].text or "7" in claims[1].text
    assert "[" in claims[0].text


def test_statements_of_a_run_that_did_not() -> None:
    before = arm("before", [1.0, 1.2, 0.8, 1.1])
    controls = {
        "empty": arm("empty", [1.0] * 4),
        "shuffled": arm("shuffled", [1.1] * 4),
        "extract": arm("extract", [1.5] * 4),
    }
    claims = statements(before, before, controls)
    assert [claim.holds for claim in claims] == [False] * 4
    # A small but certain gain is a gain, yet not half of the way.
    after = arm("after", [1.05, 1.25, 0.85, 1.15])
    gain, share, *_ = statements(before, after, controls)
    assert (gain.holds, share.holds) == (True, False)


def test_statements_without_a_perfect_extract_or_any_score() -> None:
    before, after = arm("before", [1.0, 1.1]), arm("after", [1.2, 1.4])
    claims = statements(before, after, {"empty": arm("empty", [0.1, 0.2])})
    assert [claim.holds for claim in claims] == [True, True]
    nothing = statements(before, arm("after", [None, None]), {})
    assert nothing[0].holds is None
    assert "not measured" in nothing[0].text


def test_the_report_of_a_run_with_failures(configure: Configure) -> None:
    config = configure()
    folder = RunFolder(config.output_dir)
    out = io.StringIO()
    before, after = arm("before", [1.0, None, 1.2]), arm("after", [None, 1.5, 1.4])
    report(config, folder, before, after, {"empty": arm("empty", [None] * 3)},
           console=Console(file=out, width=100))  # fmt: skip
    found = json.loads(folder.results.read_text(encoding="utf-8"))
    assert found["means"]["empty"]["value"] is None
    assert found["means"]["after"]["scored"] == 2
    assert found["reward_differences"]["after - before"]["num_instances"] == 1
    assert folder.picture.is_file()
    assert " - " in out.getvalue()


def test_an_evaluation_survives_its_file(tmp_path: Path) -> None:
    evaluation = arm("after", [1.0, None])
    evaluation.save(tmp_path / "e.json")
    assert load_evaluation(tmp_path / "e.json") == evaluation
    assert load_evaluation(tmp_path / "none.json") is None


@pytest.fixture
def scorer() -> ScriptedScorer:
    return ScriptedScorer([0.5])


@pytest.fixture(params=[False, True], ids=["transformers", "shared-prefixes"])
def parts(
    request: pytest.FixtureRequest, configure: Configure, scorer: ScriptedScorer, tmp_path: Path
) -> tuple[Evaluator, GRPOTrainer, PromptRows]:
    config = configure("reward.budget_tokens=20")
    file = config.data.heldout
    trainer, rows = make_trainer(config, scorer, tmp_path, data=file, shared=request.param)
    tokens = model_tokens(config.policy.path)
    assert tokens is not None
    evaluator = Evaluator(
        config, read_instances(file), trainer=trainer, scorer=scorer, rows=rows, tokens=tokens
    )
    return evaluator, trainer, rows


def test_greedy_batches_equal_single_prompts(
    parts: tuple[Evaluator, GRPOTrainer, PromptRows], configure: Configure
) -> None:
    _, trainer, rows = parts
    instances = read_instances(configure().data.heldout)
    cut = instances[0].model_copy(update={"history": instances[0].history[:2]})
    prompts = [rows.prompt(i) for i in (*instances, cut)]
    ids = encode_prompts(trainer.processing_class, prompts, trainer.chat_template_kwargs)
    assert len({len(i) for i in ids}) > 1  # there is padding
    together = greedy_completions(trainer, ids, batch_size=5)
    alone = [greedy_completions(trainer, [i], batch_size=1)[0] for i in ids]
    assert together == alone
    assert trainer.model.training  # as it was
    assert all(len(c) <= 20 for c in together)
    opened = trainer.processing_class.decode(ids[0])
    assert opened.endswith("<think>\n\n</think>\n\n")  # thinking is off


def test_the_policy_and_every_control(
    parts: tuple[Evaluator, GRPOTrainer, PromptRows], scorer: ScriptedScorer, configure: Configure
) -> None:
    evaluator, _trainer, _ = parts
    instances = read_instances(configure().data.heldout)
    after = evaluator.policy("after")
    assert [r.instance_id for r in after.rows] == [i.id for i in instances]
    assert {r.step for r in scorer.seen} == {-1}  # the masks of evaluation
    assert all(row.num_summary_tokens <= 20 for row in after.rows)
    assert any(row.truncated for row in after.rows)
    empty, shuffled, history, extract = (
        evaluator.control(name, after) for name in ("empty", "shuffled", "history", "extract")
    )
    assert empty is not None
    assert {(r.summary, r.num_summary_tokens) for r in empty.rows} == {("", 0)}
    assert shuffled is not None
    assert sorted(r.summary for r in shuffled.rows) == sorted(r.summary for r in after.rows)
    assert history is not None
    assert [r.summary for r in history.rows] == [render_text(i.expired) for i in instances]
    assert extract is not None
    assert [r.summary for r in extract.rows] == [i.extract for i in instances]
    assert all(r.num_summary_tokens > 5 for r in extract.rows)
    scorer.values = [None]
    with pytest.raises(ModelError, match="no score for any of 6 instances; the first failure: scr"):
        evaluator.policy("later")

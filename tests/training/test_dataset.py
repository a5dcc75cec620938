"""Instances, their order over steps, and rows that carry ids only."""

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training.conftest import make_instance, write_instances

from sumone.errors import ConfigError, DataError
from sumone.training.dataset import (
    PromptRows,
    check_apart,
    prompt_dataset,
    prompt_order,
    read_instances,
)


@given(
    sizes=st.lists(st.integers(0, 10**6), min_size=1, max_size=60),
    prompts=st.integers(1, 8),
    steps=st.integers(1, 30),
    seed=st.integers(0, 5),
)
def test_order_is_fixed_complete_and_without_repeats(
    sizes: list[int], prompts: int, steps: int, seed: int
) -> None:
    if len(sizes) < prompts:
        with pytest.raises(ConfigError, match="prompts_per_step"):
            prompt_order(sizes, prompts_per_step=prompts, steps=steps, seed=seed)
        return
    order = prompt_order(sizes, prompts_per_step=prompts, steps=steps, seed=seed)
    assert len(order) == prompts * steps
    assert order == prompt_order(sizes, prompts_per_step=prompts, steps=steps, seed=seed)
    for step in range(steps):
        assert len(set(order[step * prompts : (step + 1) * prompts])) == prompts
    usable = len(sizes) - len(sizes) % prompts
    for start in range(0, len(order) - usable + 1, usable):
        assert len(set(order[start : start + usable])) == usable  # an epoch repeats nothing


def test_a_longer_run_begins_like_a_shorter_one() -> None:
    sizes = [100 * (i % 7 + 1) for i in range(40)]
    short = prompt_order(sizes, prompts_per_step=6, steps=5, seed=1)
    long = prompt_order(sizes, prompts_per_step=6, steps=50, seed=1)
    assert long[: len(short)] == short


def test_seeds_and_epochs_differ() -> None:
    sizes = [100] * 24
    first = prompt_order(sizes, prompts_per_step=6, steps=8, seed=0)
    assert first[:24] != first[24:]
    assert first != prompt_order(sizes, prompts_per_step=6, steps=8, seed=1)


def test_a_step_holds_prompts_of_one_size_class() -> None:
    sizes = [16_000, 32_000] * 24
    order = prompt_order(sizes, prompts_per_step=6, steps=8, seed=0)
    steps = [{sizes[i] for i in order[k : k + 6]} for k in range(0, 48, 6)]
    assert all(len(kinds) == 1 for kinds in steps)
    assert {next(iter(kinds)) for kinds in steps[:4]} == {
        16_000,
        32_000,
    }  # not all short ones first


def test_rows_carry_ids_and_render_prompts_on_access() -> None:
    instances = {i.id: i for i in map(make_instance, range(3))}
    rows = PromptRows(instances, "compact", 12)
    dataset = prompt_dataset(rows, ["i2", "i0", "i2"])
    assert dataset.column_names == ["instance_id"]
    assert dataset[0]["instance_id"] == "i2"
    assert dataset[0]["prompt"] == rows.prompt(instances["i2"])
    assert [row["instance_id"] for row in dataset] == ["i2", "i0", "i2"]
    assert b"db" not in pickle.dumps(rows)  # the texts are no part of its fingerprint


def test_reading_says_where_a_line_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    with pytest.raises(DataError, match="sumone data build"):
        read_instances(file)
    file.write_text("\n\n", encoding="utf-8")
    with pytest.raises(DataError, match="holds no instances"):
        read_instances(file)
    write_instances(file, range(3))
    assert [i.id for i in read_instances(file, 2)] == ["i0", "i1"]
    good = file.read_text(encoding="utf-8")
    file.write_text(good + '{"id": "x"}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"train.jsonl:4: no compaction instance: preamble"):
        read_instances(file)
    file.write_text(good + good, encoding="utf-8")
    with pytest.raises(DataError, match="i0 occurs twice"):
        read_instances(file)


def test_train_and_heldout_may_not_share_a_task() -> None:
    check_apart([make_instance(1)], [make_instance(2)])
    with pytest.raises(DataError, match=r"share 1 task\(s\): repo-a"):
        check_apart([make_instance(1, "repo-a")], [make_instance(2, "repo-a")])
    same = make_instance(1).model_copy(update={"task": ""})
    with pytest.raises(DataError, match="1 instance"):
        check_apart([same], [same])
    check_apart([same], [make_instance(2).model_copy(update={"task": ""})])

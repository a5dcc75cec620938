"""The small world: the same from the same seed, tasks apart, one step one block."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sumone.config import TrainConfig, load_train_config
from sumone.data.incident_world import NAMES, Split, make_episode, make_instance
from sumone.masking import partition
from sumone.render import render_text
from sumone.tokens import TokenizerTokens, load_tokens
from sumone.types import CompactionInstance

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def config() -> TrainConfig:
    return load_train_config(ROOT / "configs" / "tiny.yaml")


@pytest.fixture(scope="module")
def tokens(config: TrainConfig) -> TokenizerTokens:
    return load_tokens(ROOT / (config.reconstructor.path or ""))


def read(file: str) -> list[CompactionInstance]:
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    return [CompactionInstance.model_validate_json(line) for line in lines]


@given(st.sampled_from(["warmup", "train", "heldout"]), st.integers(0, 900))
def test_an_episode_follows_from_its_split_and_number(split: Split, index: int) -> None:
    episode = make_episode(split, index, memory_share=0.3)
    assert episode == make_episode(split, index, memory_share=0.3)
    assert episode.trajectory != make_episode(split, index + 1, memory_share=0.3).trajectory
    assert [entry.number for entry in episode.entries] == list(range(len(episode.entries)))
    assert 4 <= sum(bool(entry.fact) for entry in episode.entries) <= 5


@given(st.integers(0, 900))
def test_splits_never_share_a_case(index: int) -> None:
    cases = {
        split: make_episode(split, index, memory_share=0.3).trajectory.task
        for split in ("warmup", "train", "heldout")
    }
    assert len(set(cases.values())) == 3
    number = {split: int(task.removeprefix("case-")) for split, task in cases.items()}
    assert number["warmup"] < 7000 <= number["train"] < 9000 <= number["heldout"]


def test_a_split_ends_instead_of_reusing_cases() -> None:
    with pytest.raises(ValueError, match="heldout has only 1000 episodes"):
        make_episode("heldout", 1000, memory_share=0.3)


@given(st.integers(0, 900))
def test_the_extract_has_every_fact_and_nothing_else(index: int) -> None:
    episode = make_episode("train", index, memory_share=0.5)
    text = render_text(episode.trajectory.messages)
    for entry in episode.entries:
        for value in entry.values:
            assert value in entry.fact
            assert value in text
        if entry.fact:
            assert entry.fact in episode.extract.split("\n")
    assert len(episode.extract.split("\n")) == sum(bool(e.fact) for e in episode.entries)
    last = episode.trajectory.messages[-1].text
    assert last.split()[0] not in episode.extract or last not in episode.extract


@given(st.integers(0, 900), st.sampled_from([0.0, 1.0]))
def test_one_entry_is_one_block(
    config: TrainConfig, tokens: TokenizerTokens, index: int, memory_share: float
) -> None:
    instance, episode = make_instance(
        "train", index, memory_share=memory_share, settings=config.compaction, tokens=tokens
    )
    assert bool(instance.memory) == (memory_share == 1.0)
    blocks = partition(instance.expired, block_tokens=config.masking.block_tokens, tokens=tokens)
    assert len(blocks) == len(episode.entries)
    for block, entry in zip(blocks, episode.entries, strict=True):
        assert all(value in block.text for value in entry.values)
        assert f"{entry.number} " in block.text


def test_shipped_data_are_what_the_generator_makes(
    config: TrainConfig, tokens: TokenizerTokens
) -> None:
    for split, file, least in (
        ("train", config.data.train, 400),
        ("heldout", config.data.heldout, 100),
    ):
        shipped = read(file)
        assert len(shipped) >= least
        for index in (0, 1, len(shipped) - 1):
            made, _ = make_instance(
                split,  # type: ignore[arg-type]
                index,
                memory_share=0.3,
                settings=config.compaction,
                tokens=tokens,
            )
            assert shipped[index] == made
        with_memory = sum(bool(instance.memory) for instance in shipped) / len(shipped)
        assert 0.2 < with_memory < 0.4


def test_shipped_splits_share_no_task(config: TrainConfig) -> None:
    train, heldout = read(config.data.train), read(config.data.heldout)
    assert not {i.task for i in train} & {i.task for i in heldout}
    assert not {i.id for i in train} & {i.id for i in heldout}
    size = sum((ROOT / f).stat().st_size for f in (config.data.train, config.data.heldout))
    assert size <= 1.6e6


def test_calls_are_those_of_the_incident_environment() -> None:
    messages = make_episode("train", 0, memory_share=0).trajectory.messages
    inspected = [c for m in messages for c in m.calls if c.name == "inspect_artifact"]
    assert inspected
    for call in inspected:
        assert list(json.loads(call.arguments)) == ["artifact_id"]
    assert len(set(NAMES)) == len(NAMES)

"""Partition: lossless, bounded, cut at natural places, never inside a code point (Section 3.2)."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from sumone.masking import partition, partition_rendered
from sumone.render import Boundary, Rendered, render
from sumone.tokens import ByteEstimate, TokenizerTokens, Tokens
from sumone.types import Message, ToolCall


def byte_level() -> TokenizerTokens:
    """A real byte-level BPE with few merges: emoji and CJK take several tokens a character."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(["the quick brown fox reads the log " * 4], trainer)
    tokenizer.add_special_tokens(["<|im_end|>"])
    return TokenizerTokens(tokenizer, "test")


COUNTERS: list[Tokens] = [ByteEstimate(), byte_level()]

texts = st.text(
    alphabet=st.one_of(
        st.sampled_from("ab {}\n\t\"'<>/0123"),
        st.sampled_from(["é", "漢", "🙂", "👩", "\u200d", "\r", "\u2028", "\x0c", "\x00"]),
        st.characters(codec="utf-8"),
    ),
    max_size=400,
)
calls = st.lists(
    st.builds(ToolCall, id=st.sampled_from(["", "c1"]), name=st.just("read"), arguments=texts),
    max_size=2,
).map(tuple)
messages = st.lists(
    st.one_of(
        st.builds(Message, role=st.just("user"), text=texts),
        st.builds(Message, role=st.just("assistant"), text=texts, calls=calls),
        st.builds(Message, role=st.just("tool"), text=texts, name=st.sampled_from(["", "read"])),
    ),
    max_size=8,
)


@pytest.mark.parametrize("tokens", COUNTERS, ids=["estimate", "bpe"])
@given(items=messages, target=st.integers(4, 64))
@example(items=[Message(role="tool", text='<missing block="0" key="abcd"/>\n' * 9)], target=8)
@example(items=[Message(role="tool", text="🙂" * 300 + "x" * 300)], target=16)
@example(items=[Message(role="tool", text="x" * 4000)], target=8)
@settings(max_examples=150, deadline=None)
def test_blocks_are_lossless_and_bounded(tokens: Tokens, items: list[Message], target: int) -> None:
    blocks = partition(items, block_tokens=target, tokens=tokens)
    rendered = render(items)
    assert "".join(block.text for block in blocks) == rendered.text
    assert [block.index for block in blocks] == list(range(len(blocks)))
    assert all(block.text for block in blocks)
    for block in blocks:
        block.text.encode("utf-8")  # a code point that was cut could not be encoded
    # One code point can be four tokens of this BPE, more than a tiny target allows.
    slack = 4
    assert all(block.num_tokens <= 1.25 * target + slack for block in blocks)
    assert all(block.num_tokens >= 0.5 * target for block in blocks[:-1])


def test_cuts_prefer_a_new_step_over_everything_else() -> None:
    steps: list[Message] = []
    for index in range(12):
        call = ToolCall(id=f"c{index}", name="read_ledger", arguments=f'{{"page": {index}}}')
        steps.append(Message(role="assistant", calls=(call,)))
        text = "first line of the page\n\nsecond paragraph of the page\n"
        steps.append(Message(role="tool", call_id=f"c{index}", name="read_ledger", text=text))
    step_tokens = ByteEstimate().count(render(steps[:2]).text)
    blocks = partition(steps, block_tokens=step_tokens, tokens=ByteEstimate())
    assert len(blocks) == 12
    assert all(block.text.startswith("[call read_ledger]") for block in blocks)


def test_a_long_line_is_cut_after_white_space_where_there_is_any() -> None:
    text = "word " * 400
    rendered = Rendered(text, ((0, Boundary.ROLE),))
    blocks = partition_rendered(rendered, block_tokens=32, tokens=ByteEstimate())
    assert len(blocks) > 10
    assert all(block.text[-1] == " " or block.text[0] == " " for block in blocks[:-1])


def test_special_token_text_counts_as_text() -> None:
    tokens = byte_level()
    assert tokens.count("<|im_end|>") > 1
    assert tokens.count("a\ud800b") == tokens.count("a\ufffdb")


def test_no_messages_give_no_blocks_and_a_silly_target_is_refused() -> None:
    assert partition([], block_tokens=16, tokens=ByteEstimate()) == ()
    with pytest.raises(ValueError, match="at least 4"):
        partition([], block_tokens=2, tokens=ByteEstimate())


@given(texts)
def test_the_estimate_never_undercounts_and_its_starts_are_code_points(text: str) -> None:
    tokens = ByteEstimate()
    starts = tokens.starts(text)
    assert starts == sorted(set(starts))
    assert tokens.count("漢" * 10) >= 10
    assert len(starts) >= tokens.count(text) * 0.5

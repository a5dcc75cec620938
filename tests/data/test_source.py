"""Files as records: broken lines never stop a file, and nothing is read that need not be."""

import json
import sys
from pathlib import Path

import pytest

from sumone.data import Report, load, sniff
from sumone.data.source import read_records
from sumone.errors import ConfigError, DataError

CHAT = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]}
LINE = json.dumps(CHAT).encode()


def test_bad_lines_are_skipped_with_number_and_reason(read):
    """Quirk 22: half lines, null, lists, NULs and bytes that are no text; good lines stay."""
    lines = [LINE, b'{"messages": [{"ro', b"null", b'["x"]', b"\x00" * 64, b"", b"\xff\xfe", b"7",
             LINE + b"\x00\x00", b"[" * 100_000, LINE[:30]]  # fmt: skip
    got = read(b"\n".join(lines), "run.jsonl")
    assert len(got.trajectories) == 2
    reasons = {skip.line: skip.reason for skip in got.report.skipped}
    assert list(reasons) == [2, 3, 4, 5, 7, 8, 10, 11]
    assert reasons[3] == "a JSON null where an object is needed"
    assert reasons[4] == "a JSON list where an object is needed"
    assert reasons[5] == "only NUL bytes"
    assert reasons[7] == "not UTF-8"
    assert "not JSON" in reasons[2]
    assert "not JSON" in reasons[11]
    assert [t.source.rpartition("#")[2] for t in got.trajectories] == ["0", "8"]


def test_lines_are_split_on_newline_only(read):
    """Quirk 22: U+2028, U+0085 and form feeds inside strings are no line ends; CRLF is one."""
    text = "a\u2028b\u0085c\x0cd"
    row = {"messages": [{"role": "user", "content": text}]}
    raw = json.dumps(row, ensure_ascii=False).encode()
    got = read(b"\xef\xbb\xbf" + raw + b"\r\n" + raw + b"\r\n", "run.jsonl")
    assert [t.messages[0].text for t in got.trajectories] == [text, text]
    assert got.report.skipped == []


@pytest.mark.parametrize("content", [b"null\n", b'["x"]\n{"a\n', b"\x00\x00\n", b"\n \n", b"{}x"])
def test_a_file_of_bad_lines_only_is_an_error(tmp_path, content):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError) as error:
        list(load(path))
    assert "bad.jsonl" in str(error.value)
    assert "could be read" in str(error.value)


def test_empty_missing_and_unreadable_files_say_why(tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"")
    with pytest.raises(DataError, match="file is empty"):
        load(empty)
    with pytest.raises(DataError, match="No such file"):
        load(tmp_path / "absent.json")
    with pytest.raises(DataError, match="cannot be read"):
        load(tmp_path)
    binary = tmp_path / "picture.png"
    binary.write_bytes(b"\x89PNG\xff\xff")
    with pytest.raises(DataError, match="not UTF-8"):
        load(binary)
    cut = tmp_path / "cut.json"
    cut.write_text(json.dumps(CHAT)[:-5])
    with pytest.raises(DataError, match="cut off"):
        load(cut)


def test_unsupported_files_name_what_was_found_and_what_is_supported(tmp_path):
    path = tmp_path / "codex.jsonl"
    path.write_text('{"type": "response_item", "payload": {}}\n')
    with pytest.raises(DataError) as error:
        sniff(path)
    assert "payload, type" in str(error.value)
    assert "claude-code" in str(error.value)
    assert "openai-chat" in str(error.value)
    with pytest.raises(ConfigError, match="no known format"):
        load(path, "codex")


def test_lines_in_a_json_file_and_lists_in_lines_are_understood(read):
    assert len(read(LINE + b"\n" + LINE + b"\n", "lines.json").trajectories) == 2
    got = read([CHAT["messages"], CHAT["messages"]], "lists.jsonl")
    assert [len(t.messages) for t in got.trajectories] == [2, 2]
    got = read(CHAT["messages"], "messages.jsonl")
    assert [m.source_index for m in got.messages] == [0, 1]
    assert got.trajectories[0].source.endswith("messages.jsonl")


def test_lines_are_read_one_at_a_time(tmp_path):
    """Case 58: the first trajectory of a big file is there before the rest is parsed."""
    path = tmp_path / "big.jsonl"
    with path.open("wb") as file:
        for _ in range(9):
            row = {"messages": [{"role": "user", "content": "x" * 1_000_000}]}
            file.write(json.dumps(row).encode() + b"\n")
        file.write(b"half a line")
    report = Report()
    trajectories = load(path, None, report)
    next(trajectories)
    assert report.characters_in < 1_100_000
    assert report.skipped == []
    assert sum(1 for _ in trajectories) == 8
    assert report.characters_out == 9_000_000
    assert [skip.line for skip in report.skipped] == [10]


def test_embedded_json_counts_its_decoded_characters(tmp_path):
    """Quirk 2: a JSON string inside the row."""
    path = tmp_path / "rows.jsonl"
    inner = json.dumps([{"role": "user", "content": 'a "quoted"\nline'}])
    path.write_text(json.dumps({"messages": inner, "note": "[1]"}) + "\n")
    report = Report()
    (record,) = read_records(path, report)
    report.take_in(record.value)
    assert record.value["messages"][0]["content"] == 'a "quoted"\nline'
    assert report.characters_in == len("user") + len('a "quoted"\nline') + len("[1]")


def test_parquet_is_read_by_row_groups(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is in the extras train and eval")
    from pyarrow import parquet

    path = tmp_path / "rows.parquet"
    rows = [
        {
            "question": f"q{i}",
            "answer": None,
            "number of tool calls": i,
            "trajectory correctness": "Correct",
            "trajectory": [
                {"role": "user", "content": f"q{i}"},
                {"role": "assistant", "content": "<answer>a</answer>"},
            ],
        }
        for i in range(5)
    ]
    parquet.write_table(pa.Table.from_pylist(rows), path, row_group_size=2)
    report = Report()
    trajectories = list(load(path, None, report))
    assert [t.task for t in trajectories] == ["q0", "q1", "q2", "q3", "q4"]
    assert report.format == "openseeker"
    assert report.conserved
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match="damaged parquet"):
        list(load(damaged))


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1....")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"sumone\[train\].*sumone\[eval\]"):
        load(path)


def test_sniff_reads_no_more_than_it_needs(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(LINE + b"\n" + b"broken\n" * 3)
    assert sniff(path) == "openai-chat"

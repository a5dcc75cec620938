"""SWE-smith rows: the same run in three renderings, as JSON, JSON lines and parquet."""

import json

import pytest

from sumone.data import Report, load

HEAD = [{"role": "system", "content": "sys"}, {"role": "user", "content": "fix it"}]
XML = (
    "I edit.\n\n<function=str_replace_editor>\n<parameter=command>create</parameter>\n"
    "<parameter=path>/a.py</parameter>\n<parameter=file_text>\nx = '</parameter>'\n\n</parameter>\n"
    "</function>"
)
SUBMIT = "\n\n<function=submit>\n</function>"


def row(*messages: dict[str, object], **extra: object) -> dict[str, object]:
    return {
        "messages": [*HEAD, *messages],
        "instance_id": "pandas-dev__pandas.95280573.pr_53652",
        "resolved": True,
        "model": "m",
        "patch": "GOLD",
        **extra,
    }


RUN = (
    {"role": "assistant", "content": XML},
    {"role": "user", "content": "OBSERVATION:\ncreated"},
    {"role": "assistant", "content": SUBMIT},
)


@pytest.mark.parametrize("encoded", [False, True])
def test_xml_rows(read, encoded):
    """Quirks 2, 3, 4 and 25."""
    run = row(*RUN, traj_id="pandas.x1")
    if encoded:
        run["messages"] = json.dumps(run["messages"])
    got = read([run], "rows.jsonl")
    assert got.report.format == "swe-smith"
    call = got.messages[2].calls[0]
    assert call.name == "str_replace_editor"
    assert call.from_object
    assert call.id == ""
    assert json.loads(call.arguments) == {
        "command": "create", "path": "/a.py", "file_text": "x = '</parameter>'\n"
    }  # fmt: skip
    assert got.messages[2].text == "I edit."
    assert (got.messages[3].role, got.messages[3].text) == ("tool", "created")
    assert got.messages[4].calls[0].arguments == "{}"
    assert got.trajectories[0].task == "pandas-dev/pandas"
    assert got.trajectories[0].id == "pandas.x1"
    assert got.report.drops.dropped["gold"] == len("GOLD")
    assert got.report.calls_without_result == 1


def test_the_three_renderings_are_one_task(read):
    """The same runs must never stand on both sides of a split."""
    call = {"id": "t", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    native = row(
        {"role": "assistant", "content": "a", "tool_calls": [call], "thought": "a"},
        {"role": "tool", "content": [{"type": "text", "text": "r"}], "tool_call_ids": ["t"]},
    )
    ticks = row(
        {"role": "assistant", "content": "a\n```\nls -la\n```"},
        {"role": "user", "content": "OBSERVATION:\nr"},
    )
    got = read([native, row(*RUN), ticks], "rows.json")
    assert {t.task for t in got.trajectories} == {"pandas-dev/pandas"}
    assert len({t.id for t in got.trajectories}) == 3
    assert [t.messages[2].calls[0].name for t in got.trajectories] == [
        "bash", "str_replace_editor", "ls"
    ]  # fmt: skip
    assert {t.messages[3].text for t in got.trajectories} == {"r", "created"}
    assert got.report.calls_without_result == 1


@pytest.mark.parametrize(
    "text",
    [
        "<function=bash>\n<parameter=command>ls",
        "<function=bash>\nfree text\n</function>",
        "<function=bash>\n<parameter=a>1</parameter>\n<parameter=a>2</parameter>\n</function>",
        "<function=bash>",
    ],
)
def test_malformed_calls_stay_text(read, text):
    """Case 20: nothing is repaired by guess, and it is reported."""
    got = read([row({"role": "assistant", "content": text}, {"role": "user", "content": "?"})])
    assert got.messages[2].text == text
    assert got.messages[2].calls == ()
    assert got.messages[3].role == "user"
    assert not got.messages[3].genuine
    assert got.report.drops.notes["malformed call kept as text"] == 1


def test_calls_in_prompts_are_examples(read):
    got = read([row(*RUN, messages=[{"role": "user", "content": XML}, *RUN])])
    assert got.messages[0].text == XML
    assert got.messages[0].role == "user"


def test_parquet_rows(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is in the extras train and eval")
    from pyarrow import parquet

    path = tmp_path / "tool-00000.parquet"
    run = row(*RUN, traj_id="x.1") | {"messages": json.dumps(row(*RUN)["messages"])}
    parquet.write_table(pa.Table.from_pylist([run, run | {"messages": "not JSON"}]), path)
    report = Report()
    (trajectory,) = load(path, None, report)
    assert len(trajectory.messages) == 5
    assert report.conserved
    assert report.skipped[0].line == 2

"""Damaged transcripts of every family: conserved or refused, never a crash."""

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from sumone.data import FORMATS, Report, load, render_report
from sumone.errors import DataError

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": "b"}'}}
CHAT: list[Any] = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": [{"type": "text", "text": "q"}, {"type": "image", "data": "A"}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "tool_call_ids": ["c"], "content": "r"},
    {"role": "assistant", "content": "x", "function_call": {"name": "g", "arguments": {"k": "v"}}},
]
TAGS = '<think>t</think>\n<tool_call>{"name": "f", "arguments": {"q": ["a"]}}</tool_call>'
XML = "x\n<function=bash>\n<parameter=command>ls</parameter>\n</function>"
TICKS = "x\n```mswea_bash_command\nls -la\n```\n"
BLOCKS: list[Any] = [
    {"role": "user", "content": "q"},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "h", "signature": "s"},
            {"type": "text", "text": "y"},
            {"type": "tool_use", "id": "c", "name": "f", "input": {"k": ["v"]}},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "r"}]},
]


def turns(call: str, seen: str) -> list[Any]:
    return [
        {"role": "user", "content": "q", "agent": "main"},
        {"role": "assistant", "content": call, "thought": "x"},
        {"role": "user", "content": seen, "is_demo": False},
    ]


def session(messages: list[Any]) -> list[Any]:
    return [
        {
            "type": item["role"],
            "uuid": str(i),
            "parentUuid": str(i - 1),
            "isSidechain": i == 5,
            "sessionId": "s",
            "message": item | {"id": "m"},
            "toolUseResult": "copy",
        }
        for i, item in enumerate([*messages, *messages])
    ]


FILES: dict[str, list[Any]] = {
    "openai-chat": [{"messages": CHAT}, {"messages": CHAT}],
    "anthropic-messages": [{"system": "s", "messages": BLOCKS}],
    "swe-agent": [
        {
            "history": turns("x\n```\nls\n```", "seen"),
            "trajectory": [{"response": XML, "observation": "o", "action": "ls", "query": CHAT}],
            "info": {"submission": "d"},
        }
    ],
    "swe-smith": [
        {"messages": turns(XML, "OBSERVATION:\no"), "instance_id": "a__b.01234567.x", "patch": "p"},
        {"messages": json.dumps(CHAT), "traj_id": "a__b.01234567.x.9"},
    ],
    "mini-swe-agent": [
        {"messages": turns(TICKS, "<returncode>0"), "trajectory_format": "mini-swe-agent-1.1"}
    ],
    "openseeker": [
        {
            "question": "q",
            "answer": ["g"],
            "trajectory": turns(TAGS, "<tool_response>r</tool_response>"),
        }
    ],
    "tau-bench": [{"task_id": 1, "traj": CHAT, "info": {"task": "gold"}, "trial": 0}],
    "claude-code": session(BLOCKS),
}
ODD = st.sampled_from(
    [None, 0, -1.5, True, "", "\ud800", "\x00", [], {}, [None], ["x"], {"type": "x"}, [[["y"]]]]
)


@st.composite
def damaged(draw: st.DrawFn, value: Any) -> Any:
    """The value with some keys dropped, items lost or doubled, and fields replaced."""
    change = draw(st.integers(0, 24))
    if change == 0:
        return draw(ODD)
    if isinstance(value, dict):
        keys = [key for key in value if draw(st.integers(0, 15))]
        return {key: draw(damaged(value[key])) for key in keys}
    if isinstance(value, list):
        repeats = [draw(st.sampled_from([1, 1, 1, 1, 1, 1, 0, 2])) for _ in value]
        return [
            draw(damaged(item)) for item, n in zip(value, repeats, strict=True) for _ in range(n)
        ]
    if isinstance(value, str) and change == 1:
        return value[: draw(st.integers(0, len(value)))]
    return value


def read_or_refuse(path: Path, name: str | None) -> None:
    report = Report()
    refusal = ""
    trajectories = []
    try:
        trajectories = list(load(path, name, report))
    except DataError as error:
        refusal = str(error)
    event("refused" if refusal else "read")
    assert bool(trajectories) != bool(refusal)
    assert not refusal or str(path) in refusal
    assert refusal or report.conserved, report
    for trajectory in trajectories:
        trajectory.model_dump_json().encode()
    render_report(report).encode()


@settings(max_examples=80, suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_damaged_files_never_crash(tmp_path_factory, data):
    name = data.draw(st.sampled_from(FORMATS))
    rows = data.draw(damaged(FILES[name]))
    folder = tmp_path_factory.getbasetemp()
    forced = data.draw(st.sampled_from([None, name]))
    whole = folder / "damaged.json"
    whole.write_text(json.dumps(rows))
    read_or_refuse(whole, forced)
    lines = folder / "damaged.jsonl"
    raw = "".join(json.dumps(row) + "\n" for row in (rows if isinstance(rows, list) else [rows]))
    lines.write_text(raw[: len(raw) - data.draw(st.integers(0, 40))])
    read_or_refuse(lines, forced)


def test_the_undamaged_files_are_read(read):
    assert set(FILES) == set(FORMATS)
    for name, rows in FILES.items():
        got = read(rows, f"{name}.jsonl")
        assert got.report.format == name, name
        assert got.report.calls > 0
        assert got.report.skipped == []


TAGGED = st.lists(
    st.sampled_from(
        ["<tool_call>", "</tool_call>", "<function=f>", "</function>", "<parameter=p>", "x", "\n",
         "</parameter>", "```", "```bash\n", "<command>", "</command>", '{"name": "f"}', "{", "}",
         "<tool_response>", "</tool_response>", "<think>", "</think>", "OBSERVATION:\n", " ",
         '{"name": "f", "arguments": {"a": 1}}', "<tool_calls_begin>", "</tool_calls_end>"]
    ),
    max_size=14,
).map("".join)  # fmt: skip


@settings(max_examples=150, suppress_health_check=list(HealthCheck), deadline=None)
@given(texts=st.lists(TAGGED, min_size=1, max_size=5), data=st.data())
def test_tags_in_any_order_are_conserved(tmp_path_factory, texts, data):
    roles = ["assistant", "user"]
    chat = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    path = tmp_path_factory.getbasetemp() / "tags.json"
    path.write_text(json.dumps({"messages": chat}))
    name = data.draw(
        st.sampled_from(["openai-chat", "swe-smith", "openseeker", "mini-swe-agent", "swe-agent"])
    )
    if name == "swe-agent":
        path.write_text(json.dumps({"history": chat}))
    read_or_refuse(path, name)

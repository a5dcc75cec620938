"""OpenAI chat: string, null and part-list content; new and old calls; odd roles."""

import json

import pytest

PNG = "data:image/png;base64," + "iVBORw0KGgo" * 5_000


def test_content_string_null_and_parts_in_one_file(read):
    """Quirk 1 and case 21; quirk 2: arguments as string stay byte for byte, objects become JSON."""
    raw = '{"v":1.0,"id":9007199254740993,  "u":"\\u00e9"}'
    row = [
        {"role": "developer", "content": "rules"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": raw}},
                {"id": "c2", "function": {"name": "g", "arguments": {"k": ["v"], "n": 1.0}}},
            ],
        },
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "two"}]},
        {"role": "tool", "tool_call_id": "c1", "content": None},
        {"role": "assistant", "content": [], "refusal": None},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "audio": None},
    ]
    got = read({"messages": row, "tools": [{"name": "f"}], "model": "m"})
    assert got.report.format == "openai-chat"
    roles = [m.role for m in got.messages]
    assert roles == ["system", "user", "user", "assistant", "tool", "tool", "assistant"]
    assert [m.text for m in got.messages] == ["rules", "a", "b", "", "two", "", "no"]
    first, second = got.messages[3].calls
    assert (first.arguments, first.from_object) == (raw, False)
    assert (second.arguments, second.from_object) == ('{"k": ["v"], "n": 1.0}', True)
    assert [m.name for m in got.messages if m.role == "tool"] == ["g", "f"]
    assert got.report.drops.dropped["tools"] == 1
    assert got.report.calls_without_result == got.report.results_without_call == 0


def test_legacy_function_calls_pair_by_order(read):
    """Quirk 19: the old `function` role; no id is invented."""
    row = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{"}},
        {"role": "function", "name": "f", "content": "done"},
    ]
    got = read(row)
    call, result = got.messages[1].calls[0], got.messages[2]
    assert (call.id, result.call_id, result.role, result.name) == ("", "", "tool", "f")
    assert got.report.calls_without_result == 0


def test_truncated_arguments_stay_as_they_are(read):
    """Case 20: never repaired by guess."""
    call = {"id": "1", "function": {"name": "read", "arguments": '{"path": "/a'}}
    got = read([{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]}])
    assert got.messages[1].calls[0].arguments == '{"path": "/a'
    assert got.report.calls_without_result == 1


def test_images_are_dropped_and_leave_no_words(read):
    """Cases 50 and 52, quirk 8."""
    row = [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PNG}}]},
        {"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image"}]},
        {"role": "tool", "content": f"logo.html: {PNG} rest"},
    ]
    got = read(row)
    assert [m.text for m in got.messages] == [
        "", "see", "logo.html: data:image/png;base64, rest"
    ]  # fmt: skip
    assert [m.genuine for m in got.messages[:2]] == [False, True]
    assert got.report.drops.dropped["image"] > 110_000
    assert got.report.characters_out < 100


def test_reasoning_beside_the_text_is_dropped(read):
    row = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "y", "reasoning_content": "long thought"},
    ]
    got = read(row)
    assert got.report.drops.dropped["reasoning"] == len("long thought")
    assert [m.text for m in got.messages] == ["x", "y"]


def test_what_fits_no_role_is_reported(read):
    """Quirks 12, 15 and 19: empty turns, several system messages, unknown roles, no objects."""
    row = [
        {"role": "system", "content": "one"},
        {"role": "user", "content": "x"},
        {"role": "system", "content": "two"},
        {"role": "robot", "content": "beep"},
        "not a message",
        {"role": "assistant", "content": ""},
        {"role": ["user"], "content": "list as role"},
        {"role": "assistant", "tool_calls": "[]"},
        {"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}, 7, {"id": "z"}]},
        {"role": "user", "content": 17},
    ]
    got = read({"messages": row})
    assert [m.role for m in got.messages] == ["system", "user", "system", "assistant", "user"]
    assert got.report.drops.notes["message with role 'robot' left out"] == 1
    assert got.report.drops.notes["empty assistant message left out"] == 2
    assert got.report.drops.notes["call without a name"] == 1
    assert not got.messages[-1].genuine


def test_lone_surrogates_are_replaced_and_counted_one_for_one(read):
    """Case 47, quirk 23."""
    got = read(b'[{"role": "user", "content": "ok \\ud83d \\ud83d\\ude00"}]')
    assert got.messages[0].text == "ok \ufffd \U0001f600"
    got.messages[0].text.encode()
    raw = b'[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":'
    raw += b'[{"id":"\\udc00","function":{"name":"f\\ud800","arguments":{"a\\ud800":"\\udfff"}}}]}]'
    got = read(raw)
    call = got.messages[1].calls[0]
    assert json.loads(call.arguments) == {"a\ufffd": "\ufffd"}
    got.trajectories[0].model_dump_json().encode()


def test_rows_without_messages_are_skipped(read):
    good = {"messages": [{"role": "user", "content": "x"}]}
    got = read([good, {"messages": "no"}, {"messages": []}, {"other": "abc"}, good], "rows.jsonl")
    assert len(got.trajectories) == 2
    assert [skip.line for skip in got.report.skipped] == [2, 3, 4]
    assert got.report.drops.dropped["unreadable"] == len("no") + len("abc")


@pytest.mark.parametrize("name", ["a.json", "b.json"])
def test_the_id_depends_on_the_content_only(read, name):
    """Equal requests are one task, so that a split by task keeps them together."""
    row = [{"role": "user", "content": "same"}, {"role": "assistant", "content": name}]
    got = read(row, name)
    other = read([{"role": "user", "content": "same"}, {"role": "assistant", "content": "z"}])
    assert got.trajectories[0].id == read(row, "elsewhere.json").trajectories[0].id
    assert got.trajectories[0].id != other.trajectories[0].id
    assert got.trajectories[0].task == other.trajectories[0].task != ""


def test_calls_in_text_of_models_without_native_calls(read):
    """Quirk 3: tags in assistant turns only; a person's later request stays genuine."""
    xml = "Look.\n<function=run>\n<parameter=command>ls</parameter>\n</function>"
    row = [
        {"role": "system", "content": "Use " + xml},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": xml},
        {"role": "user", "content": "EXECUTION RESULT of [run]:\na.py"},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "and now b"},
    ]
    got = read(row)
    assert got.report.format == "openai-chat"
    assert got.messages[2].calls[0].name == "run"
    assert [m.role for m in got.messages[2:]] == ["assistant", "tool", "assistant", "user"]
    assert got.messages[0].text == "Use " + xml
    assert got.messages[5].genuine
    plain = {"messages": [{"role": "user", "content": "x"}]}
    tags = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    hermes = {
        "messages": [
            {"role": "assistant", "content": tags},
            {"role": "user", "content": "<tool_response>r</tool_response>"},
            {"role": "user", "content": "thanks"},
        ]
    }
    got = read([plain, hermes], "rows.jsonl")
    assert [(m.role, m.genuine) for m in got.trajectories[1].messages[1:]] == [
        ("tool", True),
        ("user", True),
    ]

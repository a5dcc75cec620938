"""tau-bench results: gold beside the chat, tasks numbered per domain."""


def test_runs_of_one_task_share_it(read):
    chat = [
        {"role": "system", "content": "policy"},
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "function": {"name": "think", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "name": "think", "content": ""},
    ]
    info = {"task": {"instruction": "SECRET", "actions": [{"name": "book"}]}}
    runs = [
        {"task_id": 3, "reward": 1.0, "info": info, "traj": chat, "trial": 0},
        {"task_id": 3, "reward": 0.0, "info": info, "traj": chat, "trial": 1},
        {"task_id": 4, "traj": None, "info": "x"},
        {"task_id": 5, "traj": []},
    ]
    got = read(runs, "gpt-4o-airline.json")
    assert got.report.format == "tau-bench"
    assert [t.task for t in got.trajectories] == ["tau-bench/airline/3"] * 2
    assert len({t.id for t in got.trajectories}) == 2
    assert not any("SECRET" in m.text for t in got.trajectories for m in t.messages)
    assert got.report.drops.dropped["gold"] == 2 * len("SECRET" + "book")
    assert [skip.line for skip in got.report.skipped] == [3, 4]
    assert got.trajectories[0].domain == "support"

"""What a dispatcher answers: read whatever it is, and free of what a terminal could obey."""

from __future__ import annotations

import json
import os
import unicodedata
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from guerdon.cli.top.board import SeenProgram
from guerdon.cli.top.state import State, failed, parsed
from guerdon.cli.top.state import read as read_parsed
from guerdon.cli.top.tables import endpoints_table, functions_table, merged, seconds
from tests.cli.top import fake_dispatcher
from tests.cli.top.fake_dispatcher import state, verify

JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
PARTS = st.sampled_from(sorted(state(1)))


def read(answer: bytes, pid: int) -> State:
    return read_parsed(parsed(answer), pid)


def read_state(pid: int = 1, **changes: Any) -> State:
    return read(json.dumps(state(pid, **changes)).encode(), pid)


def test_a_state_is_read() -> None:
    process = read_state(77, rank=3)
    assert (process["program"], process["pid"], process["rank"]) == ("train.py", 77, 3)
    assert sum(function["open_cells"] for function in process["functions"]) == 320
    assert sum(map(failed, process["functions"])) == 4
    first, second, third = process["in_flight"]
    assert second["key"] == (77, "correct", 7, "3")
    assert third["sample"] == "4-11"
    assert second["at"] == f"{fake_dispatcher.__file__}, line {verify.__code__.co_firstlineno + 1}, in verify"
    assert first["at"] == "judge:8000"


@pytest.mark.parametrize(("in_flight", "running"), [(3, [9, 1]), (200, [2, 1])])
def test_samples_that_run_are_counted_where_all_calls_are_listed(in_flight: int, running: list[int]) -> None:
    assert [each["in_flight"] for each in read_state(calls_in_flight=in_flight)["functions"]] == running


@pytest.mark.parametrize(("nodes", "running"), [([], 0), ([{"name": "a"}], 2)])
def test_calls_do_not_run_before_the_first_worker(nodes: list[dict[str, str]], running: int) -> None:
    found = read_state(calls_in_flight=0, in_flight=[], workers=[], nodes=nodes)
    assert [function["in_flight"] for function in found["functions"]] == [running, 1]


@settings(max_examples=max(1, settings().max_examples // 4))
@given(st.dictionaries(PARTS, JSON, max_size=8))
def test_any_object_is_read(changes: dict[str, object]) -> None:
    process = read(json.dumps({**state(5), **changes}).encode(), 5)
    assert process["pid"] >= 0 or "pid" in changes
    for call in process["in_flight"]:
        assert not any(unicodedata.category(char).startswith("C") for char in call["function"] + call["at"])


@pytest.mark.parametrize(
    "number", ["1e999", "-1e999", "9" * 400, "-" + "9" * 400, "1e308", "NaN", "-Infinity", "true", "{}"]
)
def test_any_number_is_read(number: str) -> None:
    def put(value: object) -> object:
        if isinstance(value, dict):
            return {name: put(one) for name, one in value.items()}
        if isinstance(value, list):
            return list(map(put, value))
        return value if isinstance(value, str) or value is None else "NUMBER"

    answer = json.dumps(put(state(5))).replace('"NUMBER"', number).encode()
    assert [one["name"] for one in read(answer, 5)["functions"]] == ["correct", "helpful"]
    assert json.dumps(parsed(answer), allow_nan=False)


@pytest.mark.parametrize("answer", [b"", b"[]", b"7", b'{"a"', b"\xff\xfe", b"null"])
def test_invalid_state_is_a_value_error(answer: bytes) -> None:
    with pytest.raises(ValueError):
        read(answer, 5)


def test_functions_of_one_name_are_added_up() -> None:
    ranks = [read_state(pid, rank=pid) for pid in (1, 2, 3)]
    live = [SeenProgram(ranks[0], ""), SeenProgram(ranks[1], "no answer for 9 s"), SeenProgram(ranks[2], "ended")]
    correct, helpful = merged(live, "functions", "name", "lane")
    assert (correct["name"], correct["rate"], correct["in_flight"]) == ("correct", 105.0, 18)
    assert correct["counts"] == {"ok": 2000, "timeout": 6, "error": 2}
    assert helpful["run_s"]["p99"] == 2.5


@pytest.mark.parametrize(
    ("processes", "programs"),
    [
        # two scripts; two ranks of a run; two runs of a script, with and without ranks
        ([(1, 0, "/a/math.py"), (2, 0, "/a/code.py")], ["math.py", "code.py"]),
        ([(1, 0, "/a/train.py"), (2, 1, "/a/train.py")], ["train.py"]),
        ([(1, 0, "/a/train.py"), (2, 0, "/a/train.py")], ["train.py (1)", "train.py (2)"]),
        ([(1, None, "/a/train.py"), (2, None, "/a/train.py")], ["train.py (1)", "train.py (2)"]),
        # two dispatchers of a process; two scripts of one name
        ([(1, None, "/a/train.py"), (1, None, "/a/train.py")], ["train.py"]),
        ([(1, 0, "/a/train.py"), (2, 1, "/b/train.py")], ["a/train.py", "b/train.py"]),
    ],
)
def test_functions_and_endpoints_of_each_program_are_apart(
    processes: list[tuple[int, int | None, str]], programs: list[str]
) -> None:
    states = [read_state(pid, rank=rank, program=path) for pid, rank, path in processes]
    seen = [SeenProgram(each, "") for each in states]
    found, shown = merged(seen, "functions", "name", "lane"), merged(seen, "endpoints", "function", "url")
    stream = StringIO()
    assert [(one["program"], one["name"]) for one in found[::2]] == [(program, "correct") for program in programs]
    assert [one["program"] for one in shown] == programs
    assert sum(one["in_flight"] for one in shown) == 2
    for drawn in (functions_table(found, 120), endpoints_table(shown, 120)):
        Console(file=stream, width=120).print(drawn)
    assert ("PROGRAM" in stream.getvalue()) is (len(programs) > 1)


def test_a_call_stands_at_the_users_line() -> None:
    stack = [
        '  File "/home/me/rewards.py", line 12, in correct',
        '  File "/usr/lib/python3.11/re/__init__.py", line 171, in search',
        '  File "/home/me/.venv/lib/python3.11/site-packages/x.py", line 3, in deep',
    ]
    call = {"function": "correct", "stack": "\n".join(stack)}
    (row,) = read_state(in_flight=[call])["in_flight"]
    assert row["at"] == "/home/me/rewards.py, line 12, in correct"


def test_a_process_that_ended_or_does_not_answer_has_one_line() -> None:
    from guerdon.cli.top.layout import print_once

    conditions = [(11, "ended"), (12, "ended"), (11, ""), (12, "ended"), (13, "no answer for 9 s"), (14, "")]
    seen = [SeenProgram(read_state(pid), condition) for pid, condition in conditions]
    stream = StringIO()
    print_once(stream, seen, 130)
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("process ")]
    assert lines == ["process 12 (train.py, rank 0): ended", "process 13 (train.py, rank 0): no answer for 9 s"]


def test_stacks_get_their_source_lines_from_plain_files_alone(tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text("first\nthe_second_line()\n")
    os.mkfifo(tmp_path / "pipe.py")  # reading it would hang
    frames = [f'  File "{tmp_path / name}", line 2, in f' for name in ("rewards.py", "pipe.py", "absent.py")]
    stack = "\n".join(["Stack (most recent call last):", *frames, '  File "x\x00y", line 1, in g'])
    call = {"function": "f", "sample": 0, "seconds": 1.0, "stack": stack}
    (row,) = read(json.dumps({"in_flight": [call]}).encode(), 5)["in_flight"]
    assert row["stack"] == [frames[0], "    the_second_line()", *frames[1:], '  File "x\\x00y", line 1, in g']


def test_times_are_short() -> None:
    shown = [seconds(value) for value in (None, float("nan"), 2e-6, 0.0421, 3.14159, 250.0, 40000.0)]
    assert shown == ["-", "-", "2us", "42ms", "3.1s", "250s", "11.1h"]


@pytest.mark.parametrize(("counted_s", "rate"), [(60, 52.5), (10, 52.5), (5, 105.0), (0.2, 525.0)])
def test_a_rate_is_of_the_time_that_has_passed(counted_s: float, rate: float) -> None:
    """The engine divides by ten seconds, also before these have passed."""
    answer = {**state(5), "now": 1000.0, "counted_since": 1000.0 - counted_s}
    assert read(json.dumps(answer).encode(), 5)["functions"][0]["rate"] == pytest.approx(rate)

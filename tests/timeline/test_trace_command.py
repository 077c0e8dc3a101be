"""``guerdon trace``: what it says of timelines, and the parts that it writes."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest

from guerdon import Dispatcher, Trace, reward
from guerdon.cli import main
from tests.timeline.perfetto_files import PerfettoFile, assert_whole, parse


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three batches, a second apart, of two functions."""
    path = tmp_path_factory.mktemp("timeline") / "run.pftrace"

    def fails(completion: str) -> float:
        if completion == "bad":
            raise ValueError("no number")
        return 1.0

    functions = [
        reward(fails, name="fails", lane="thread", retries=1),
        reward(lambda completion: 1.0, name="one", lane="thread"),
    ]
    with Dispatcher(functions, trace=Trace(path, shortest=0.0), max_failure_rate=1.0) as dispatcher:
        for step in range(3):
            state = {"global_step": 40 + step}
            dispatcher.score(completions=["good", "bad", "good", "good"], num_generations=2, trainer_state=state)
            time.sleep(1.0)
    return path


def batches(file: PerfettoFile) -> list[int]:
    return [one.values["batch"] for one in file.slices if "groups" in one.values]


def test_the_summary_counts_calls_failures_and_retries(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(recorded)]) == 0
    text = capsys.readouterr().out
    assert "3 batches" in text
    assert "0 dropped events" in text
    assert main(["trace", str(recorded), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    fails = summary["functions"]["fails"]
    assert (fails["calls"], fails["failed"], fails["retries"], fails["running"]) == (15, 6, 3, 0)
    assert summary["functions"]["one"]["calls"] == 12
    assert summary["batches"] == 3
    assert 0.6 < summary["span_s"] < 60


def test_all_of_it_is_written_as_it_was(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(recorded), "-o", str(tmp_path / "all.pftrace")]) == 0
    assert "ui.perfetto.dev" in capsys.readouterr().err
    before, after = parse(recorded), parse(tmp_path / "all.pftrace")
    assert_whole(after)

    def facts(file: PerfettoFile) -> list[object]:
        slices = [(one.track, one.name, one.begin, one.end, one.depth, one.values, one.flows) for one in file.slices]
        counters = sorted((track, value) for track, value in file.counters.items())
        return [sorted(map(str, slices)), sorted(map(str, file.instants)), counters]

    assert facts(before) == facts(after)


@pytest.mark.parametrize(
    ("options", "kept"),
    [(["--last", "200ms"], []), (["--from", "0.9s"], [2, 3]), (["--from", "0.9", "--to", "1.3s"], [2])],
)
def test_a_part_of_the_time(recorded: Path, tmp_path: Path, options: list[str], kept: list[int]) -> None:
    assert main(["trace", str(recorded), "-o", str(tmp_path / "cut.pftrace"), *options]) == 0
    file = parse(tmp_path / "cut.pftrace")
    assert_whole(file)
    assert 1 not in batches(file)
    assert len(batches(file)) < 3


def test_one_function_keeps_what_it_shares(recorded: Path, tmp_path: Path) -> None:
    assert main(["trace", str(recorded), "-o", str(tmp_path / "cut.pftrace"), "--function", "one"]) == 0
    file = parse(tmp_path / "cut.pftrace")
    assert_whole(file)
    assert not file.named("fails")
    assert len(file.named("one")) >= 3
    assert batches(file) == [1, 2, 3]
    assert not any("fails" in track for track in file.counters)


def test_one_step(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(recorded), "-o", str(tmp_path / "cut.pftrace"), "--step", "41", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["functions"]["fails"]["calls"] == 5
    file = parse(tmp_path / "cut.pftrace")
    assert_whole(file)
    assert batches(file) == [2]
    assert {one.values["batch"] for one in file.slices} == {2}


def test_steps_from_one_to_another(recorded: Path, tmp_path: Path) -> None:
    assert main(["trace", str(recorded), "-o", str(tmp_path / "cut.pftrace"), "--step", "41:42"]) == 0
    assert batches(parse(tmp_path / "cut.pftrace")) == [2, 3]


def test_files_of_ranks_become_one(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also of ranks whose processes have one name and pid, as on two hosts."""
    other = tmp_path / "other.pftrace"
    other.write_bytes(recorded.read_bytes())
    assert main(["trace", str(recorded), str(other), "-o", str(tmp_path / "both.pftrace"), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert len(summary["processes"]) == 2
    assert summary["batches"] == 6
    file = parse(tmp_path / "both.pftrace")
    assert sum(track.HasField("process") for track in file.tracks.values()) == 2
    assert batches(file) == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--last", "soon"], "--last soon"),
        (["--last", "3s", "--from", "1s"], "one or the other"),
        (["--from", "3s", "--to", "1s"], "is before"),
        (["--step", "first"], "--step first"),
        (["--step", "41:"], "--step 41:: expected a training step"),
        (["--step", "0:999999999"], "--step 0:999999999"),
        (["--step", "9" * 30], f"--step {'9' * 30}: expected a training step"),
    ],
)
def test_options_that_cannot_work(
    recorded: Path, capsys: pytest.CaptureFixture[str], options: list[str], why: str
) -> None:
    assert main(["trace", str(recorded), *options]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value"), [("--step", "99"), ("--function", "nope")])
def test_what_is_not_in_the_trace_is_named(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    output = tmp_path / "cut.pftrace"
    output.write_text("as it was")
    for rest in ([], ["-o", str(output)], ["--html", str(tmp_path / "page.html")]):
        assert main(["trace", str(recorded), option, value, *rest]) == 2
        ended = capsys.readouterr()
        assert ended.out == ""
        assert f"{option} {value}: no" in ended.err
    assert output.read_text() == "as it was"
    assert not (tmp_path / "page.html").exists()


def test_the_table_counts_attempts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick = reward(lambda completion: 1.0, name="quick", lane="thread")
    with Dispatcher([quick], trace=Trace(tmp_path / "run.pftrace", shortest=10.0)) as dispatcher:
        dispatcher.score(completions=["a"] * 3)
    assert main(["trace", str(tmp_path / "run.pftrace")]) == 0
    heads, cells = (re.split(r"  +", line) for line in capsys.readouterr().out.splitlines()[-2:])
    assert heads[:2] == ["function", "attempts"]
    assert cells[:2] == ["quick", "3"]
    assert cells[-1] in ("< 50 µs", "-")


def test_files_that_are_none(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"completion": "a"}\n' * 100)
    assert main(["trace", str(rows)]) == 2
    assert "it is no trace" in capsys.readouterr().err
    assert main(["trace", str(tmp_path / "missing.pftrace")]) == 2
    assert "can't be read" in capsys.readouterr().err
    assert main(["trace", str(recorded), "-o", str(recorded)]) == 2
    assert "that is one of the traces" in capsys.readouterr().err


def test_paths_that_can_not_work_are_named(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    for arguments, message in [
        ([str(tmp_path / "none")], f"'{tmp_path / 'none'}': No such file"),
        ([str(tmp_path)], "is no file"),
        ([str(tmp_path / "pipe")], "is no file"),
        ([str(recorded), "-o", str(tmp_path / "no" / "part")], f"there is no folder '{tmp_path / 'no'}'"),
        ([str(recorded), "-o", str(tmp_path / "pipe")], "that is no file"),
        ([str(recorded), "--step", "5:2"], "guerdon: --step 5:2: expected a training step"),
    ]:
        assert main(["trace", *arguments]) == 2
        assert message in capsys.readouterr().err


def test_damage_costs_no_more_than_its_slot(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As where a file is copied while it is written."""
    bytes_ = bytearray(recorded.read_bytes())
    slot = 64 << 20 >> 4
    damaged = tmp_path / "damaged.pftrace"
    whole = bytes_ + bytes(slot - len(bytes_) % slot) + bytes_
    whole[len(bytes_) // 2 : len(bytes_) // 2 + 40] = b"\xff" * 40
    damaged.write_bytes(whole)
    assert main(["trace", str(damaged), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["batches"] >= 3

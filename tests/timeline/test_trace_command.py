"""``guerdon trace``: what it says of a timeline."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guerdon import Dispatcher, RetryAfter, Trace, _native, reward
from guerdon.cli import main
from tests.timeline.perfetto_files import parse


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three batches of two functions."""
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
    return path


def test_summary_counts_what_was_called_and_what_perfetto_reads(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", str(recorded)]) == 0
    printed = capsys.readouterr()
    assert "3 batches" in printed.out
    assert "0 dropped events" in printed.out
    assert printed.err == f"To see it, open https://ui.perfetto.dev and drop {recorded} on the page.\n"
    assert main(["trace", str(recorded), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    fails = summary["functions"]["fails"]
    assert (fails["calls"], fails["failed"], fails["retries"], fails["running"]) == (15, 6, 3, 0)
    assert summary["functions"]["one"]["calls"] == 12
    assert summary["batches"] == 3
    assert 0 < summary["span_s"] < 60
    file = parse(recorded)
    (process,) = [track.name for track in file.tracks.values() if track.HasField("process")]
    assert summary["processes"] == [process]
    assert summary["slices"] == len(file.slices)
    assert summary["instants"] == len(file.instants)
    assert summary["counter_values"] == sum(map(len, file.counters.values()))
    used = {one.track for one in file.slices} | {one[0] for one in file.instants} | set(file.counters)
    assert summary["tracks"] == len(used)
    times = [at for one in file.slices for at in (one.begin, one.end) if at is not None]
    times += [one[2] for one in file.instants] + [at for values in file.counters.values() for at, _ in values]
    assert summary["span_s"] == pytest.approx((max(times) - min(times)) / 1e9)
    busy = sum(one.end - one.begin for one in file.named("fails") if one.end is not None and one.depth == 0)
    assert fails["busy_s"] == pytest.approx(busy / 1e9)


def test_the_table_counts_attempts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick = reward(lambda completion: 1.0, name="quick", lane="thread")
    with Dispatcher([quick], trace=Trace(tmp_path / "run.pftrace", shortest=10.0)) as dispatcher:
        dispatcher.score(completions=["a"] * 3)
    assert main(["trace", str(tmp_path / "run.pftrace")]) == 0
    heads, cells = (re.split(r"  +", line) for line in capsys.readouterr().out.splitlines()[-2:])
    assert heads[:2] == ["function", "attempts"]
    assert cells[:2] == ["quick", "3"]
    assert cells[-1] in ("< 50 µs", "-")


def test_paths_that_can_not_work_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "rows.jsonl").write_text('{"completion": "a"}\n' * 100)
    (tmp_path / "empty").touch()
    for name, message in [
        ("none", f"'{tmp_path / 'none'}': No such file"),
        (".", "is no file"),
        ("pipe", "is no file"),
        ("empty", "is empty"),
        ("rows.jsonl", "it is no trace"),
    ]:
        assert main(["trace", str(tmp_path / name)]) == 2
        error = capsys.readouterr().err
        assert "the trace can't be read" in error
        assert message in error


def test_damage_costs_no_more_than_its_slot(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is copied while it is written looks so."""
    bytes_ = bytearray(recorded.read_bytes())
    slot = 64 << 20 >> 4
    damaged = tmp_path / "damaged.pftrace"
    whole = bytes_ + bytes(slot - len(bytes_) % slot) + bytes_
    whole[len(bytes_) // 2 : len(bytes_) // 2 + 40] = b"\xff" * 40
    damaged.write_bytes(whole)
    assert main(["trace", str(damaged), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["batches"] >= 3


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "any"
    path.write_bytes(content)
    with contextlib.suppress(ValueError):
        _native.trace_summary(str(path))


def test_an_attempt_that_was_put_off_is_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused: list[str] = []

    def later(completion: str) -> float:
        if not refused:
            refused.append(completion)
            raise RetryAfter(0.01)
        return 1.0

    path = tmp_path / "run.pftrace"
    function = reward(later, name="later", lane="thread")
    with Dispatcher([function], trace=Trace(path, shortest=0.0)) as dispatcher:
        assert dispatcher.score(completions=["a"]).attempts.item() == 2
    assert main(["trace", str(path), "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)["functions"]["later"]
    assert (counts["calls"], counts["failed"], counts["retries"], counts["deferred"]) == (2, 0, 1, 1)
    assert [one.values["status"] for one in parse(path).named("later")] == ["deferred", "ok"]

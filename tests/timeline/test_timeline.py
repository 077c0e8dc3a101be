"""`Dispatcher(trace=)`: the file as Perfetto's own protos read it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import guerdon
from guerdon import Dispatcher, RegistrationError, Status, Trace, reward
from tests.clock import eventually
from tests.processes import run_python, started_python
from tests.timeline.perfetto_files import PerfettoFile, assert_whole, parse


def scored(
    path: Path, functions: list[object], samples: int = 8, shortest: float = 50e-6, **options: object
) -> PerfettoFile:
    completions = [str(sample) for sample in range(samples)]
    trace = Trace(path, size="4MiB", shortest=shortest)
    with Dispatcher(functions, trace=trace, max_failure_rate=1.0, workers=2, **options) as dispatcher:  # type: ignore[arg-type]
        dispatcher.score(completions=completions, num_generations=2)
    return parse(path)


def process(completion: str) -> float:
    time.sleep(0.002)
    return float(completion)


one_each = reward(lambda completion: 1.0, name="one", lane="thread")


async def waits(completion: str) -> float:
    await asyncio.sleep(0.02)
    return float(completion)


def test_calls_of_each_lane_are_slices_on_tracks_of_their_own(tmp_path: Path) -> None:
    begun, all_there = 0, asyncio.Event()

    async def together(completion: str) -> float:
        nonlocal begun
        begun += 1
        if begun == 8:
            all_there.set()
        await all_there.wait()
        await asyncio.sleep(0.02)  # what is shorter is no slice
        return float(completion)

    functions = [
        reward(process, name="slow", lane="process"),
        reward(together, name="waits"),
        reward(process, name="thread", lane="thread"),
    ]
    file = scored(tmp_path / "run.pftrace", functions)
    assert_whole(file)
    for name, group in [("slow", "workers"), ("waits", "event loops"), ("thread", "threads")]:
        calls = [one for one in file.named(name) if "sample" in one.values]
        assert sorted(one.values["sample"] for one in calls) == list(range(8)), name
        assert all(f"/{group}/" in one.track for one in calls)
        assert {one.values["status"] for one in calls} == {"ok"}
    # All eight waited side by side: each on a track of its own.
    assert len({one.track for one in file.named("waits", status="ok")}) == 8
    (batch,) = [one for one in file.slices if one.values.get("groups") == 4]
    assert (batch.name, batch.values["samples"]) == ("batch 1", 8)
    queues = [one for one in file.slices if one.name == "queue"]
    assert queues
    assert all(one.depth == 1 for one in queues)


def test_a_flow_leads_from_ready_to_both_attempts(tmp_path: Path) -> None:
    attempts: list[str] = []

    def fails_once(completion: str) -> float:
        attempts.append(completion)
        if completion == "3" and attempts.count("3") == 1:
            raise ConnectionError("gone")
        return 1.0

    again = reward(fails_once, name="again", lane="thread", retries=1)
    file = scored(tmp_path / "run.pftrace", [again], shortest=0.0)
    first, second = sorted(file.named("again", sample=3), key=lambda one: one.begin)
    assert (first.values["status"], second.values["status"], second.values["attempt"]) == ("error", "ok", 2)
    assert "gone" in first.values["reason"]
    assert first.flows == second.flows
    assert len(first.flows) == 1
    (ready,) = [one for one in file.moments("ready") if first.flows[0] in one[4]]
    assert first.begin >= ready[2]
    assert second.begin >= first.end
    # Flows of other calls are others.
    flows = [flow for one in file.named("again", attempt=2) + file.named("again") for flow in one.flows]
    assert len(set(flows)) == 8


def test_counters_rise_and_fall_to_zero_and_stay_within_bounds(tmp_path: Path) -> None:
    limited = reward(waits, name="waits", limit=guerdon.Limit(concurrency=3))
    file = scored(tmp_path / "run.pftrace", [limited], samples=30)
    queued = [value for track, values in file.counters.items() if track.endswith("/queued") for _, value in values]
    flying = [value for track, values in file.counters.items() if track.endswith("/in flight") for _, value in values]
    assert max(flying) >= 1
    assert all(0 <= value <= 30 for value in queued + flying)
    assert queued[-1] == flying[-1] == 0
    slices = sorted(file.named("waits"), key=lambda one: one.begin)
    running = [sum(other.begin <= one.begin < other.end for other in slices) for one in slices]
    assert max(running) <= 3


def hangs(completion: str) -> float:
    if completion == "1":
        while True:
            try:
                time.sleep(60)
            except BaseException:
                continue
    return 1.0


def test_a_killed_worker_and_its_successor_are_instants(tmp_path: Path) -> None:
    stuck = reward(hangs, name="hangs", lane="process", timeout=2.0, grace=0.1)
    path = tmp_path / "run.pftrace"
    with Dispatcher([stuck], trace=path, max_failure_rate=1.0, workers=2) as dispatcher:
        dispatcher.score(completions=[str(sample) for sample in range(4)], num_generations=2)
        # The successor comes after the batch.
        eventually(lambda: dispatcher.stats()["worker_restarts"])
    file = parse(path)
    (killed,) = file.moments("worker killed")
    assert "/workers/worker " in killed[0]
    assert "out of time" in killed[3]["reason"]
    assert file.moments("worker restarted")
    assert file.moments("worker ready")
    (late,) = file.named("hangs", sample=1)
    assert late.values["status"] == "timeout"
    assert late.end is not None
    assert late.end - late.begin > 1_900_000_000


def test_hostile_names_and_reasons_are_data(tmp_path: Path) -> None:
    name = "a\"'</script>🏁" + "x" * 3000

    def fails(completion: str) -> float:
        raise ValueError("\ud800 \x00 " + "ü" * 5000)

    file = scored(tmp_path / "run.pftrace", [reward(fails, name=name, lane="thread")], samples=2)
    assert_whole(file)
    calls = [one for one in file.slices if one.values.get("status") == "error"]
    assert len(calls) == 2
    assert all(one.name.startswith("a\"'</script>🏁xxx") for one in calls)
    assert all(len(one.values["reason"]) < 1000 for one in calls)


PROGRAM = """
import sys, time, guerdon
def slow(completion):
    time.sleep(0.01)
    return 1.0
def stuck(completion):
    time.sleep(100)
    return 1.0
functions = [guerdon.reward(slow, name="slow", lane="thread"), guerdon.reward(stuck, name="stuck", lane="thread")]
dispatcher = guerdon.Dispatcher(functions, trace=sys.argv[1])
pending = dispatcher.submit(completions=["x"] * 100, num_generations=2)
print("started", flush=True)
time.sleep(100)
"""


@pytest.mark.fault("the trainer is killed while a timeline is written", sees="a valid file with what ran until then")
def test_a_killed_process_leaves_a_file_with_what_ran(tmp_path: Path) -> None:
    path = tmp_path / "run.pftrace"
    with started_python(PROGRAM, path, says="started"):
        # The file is being written while it is read.
        eventually(lambda: path.exists() and parse(path).named("slow"))
    file = parse(path)
    assert file.named("slow")
    running = [one for one in file.slices if one.end is None]
    assert running
    assert all(one.values.get("status") == "running" for one in running)


FULL = """
import resource, sys, time, guerdon
one = guerdon.reward(lambda completion: 1.0, name="one", lane=sys.argv[2])
dispatcher = guerdon.Dispatcher([one], trace=sys.argv[1], workers=1)
score = lambda: dispatcher.score(completions=["x"] * 100, num_generations=2).rewards.sum()
score()
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
for _ in range(4):
    print(score(), flush=True)
    time.sleep(0.5)
dispatcher.close()
"""


@pytest.mark.fault("the disk is full while a timeline is written", sees="a warning; scores as without a timeline")
@pytest.mark.parametrize("lane", ["thread", "process"])
def test_a_full_disk_ends_the_timeline_and_nothing_else(tmp_path: Path, lane: str) -> None:
    ended = run_python(FULL, tmp_path / "run.pftrace", lane)
    assert set(ended.stdout.split()) == {"100.0"}
    assert ended.stderr.count("Nothing more is written to it") == 1
    parse(tmp_path / "run.pftrace")


@pytest.mark.fault("a timeline's file can't be made at the first batch", sees="a warning; scores as without a timeline")
@pytest.mark.parametrize(
    "spoil", [lambda path: path.parent.rmdir(), Path.mkdir, os.mkfifo], ids=["no folder", "a folder", "a pipe"]
)
def test_a_file_that_cannot_be_made_is_reported_once(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    path = tmp_path / "folder" / "run.pftrace"
    path.parent.mkdir()
    with Dispatcher([reward(process, name="one", lane="process")], trace=path, workers=1) as dispatcher:
        spoil(path)
        with pytest.warns(guerdon.GuerdonWarning, match="scores are not touched") as warned:
            assert dispatcher.score(completions=["1", "2"]).rewards.ravel().tolist() == [1.0, 2.0]
        assert dispatcher.score(completions=["3"]).rewards.item() == 3.0
        messages = [str(one.message) for one in warned if one.category is guerdon.GuerdonWarning]
        assert len(messages) == 1
        assert f"trace {str(path)!r}: the file can't be made" in messages[0]
        assert dispatcher.stats()["trace_file"].startswith("none: ")


def test_ranks_have_files_of_their_own_in_the_first_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    (tmp_path / "first").mkdir()
    monkeypatch.chdir(tmp_path / "first")
    with Dispatcher([one_each], trace="run.pftrace") as dispatcher:
        monkeypatch.chdir(tmp_path)
        dispatcher.score(completions=["a"], num_generations=1)
    file = parse(tmp_path / "first" / "run-r3.pftrace")
    (process,) = [one for one in file.tracks.values() if one.HasField("process")]
    assert process.name.startswith("guerdon rank 3 on ")
    assert process.process.pid == os.getpid()


def test_a_file_in_use_is_left_alone_and_one_that_was_left_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.pftrace"
    with Dispatcher([one_each], trace=path) as one, Dispatcher([one_each], trace=path) as two:
        for dispatcher in (one, two):
            dispatcher.score(completions=["a"], num_generations=1)
        assert one.stats()["trace_file"] == str(path)
    assert parse(path).slices
    assert parse(tmp_path / "run-2.pftrace").slices
    with Dispatcher([one_each], trace=path) as dispatcher:
        dispatcher.score(completions=["a"], num_generations=1)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["run-2.pftrace", "run.pftrace", "run.previous.pftrace"]


def test_a_gap_in_the_ring_is_no_harm(tmp_path: Path) -> None:
    """The oldest of more than the ring holds is gone, the rest is whole."""
    path = tmp_path / "run.pftrace"
    quick = reward(lambda completion: 1.0, name="quick", lane="thread")
    trace = Trace(path, size="4MiB", shortest=0.0)
    with Dispatcher([quick], trace=trace) as dispatcher:
        for _ in range(60):
            dispatcher.score(completions=["x"] * 2000, num_generations=2)
            time.sleep(0.01)
    assert path.stat().st_size == 4 << 20
    file = parse(path)
    assert_whole(file)
    batches = [one.values["batch"] for one in file.slices if "groups" in one.values]
    assert max(batches) == 60
    assert len(file.slices) > 1000


def test_the_option_is_checked_and_shown(tmp_path: Path) -> None:
    class NumberedPath(os.PathLike[str]):
        def __fspath__(self) -> Any:
            return 3

    for trace, why in [
        (3, "trace=3"),
        (tmp_path / "no" / "run.pftrace", "there is no folder"),
        (tmp_path, "that is a folder"),
        ("", "expected the name of a file"),
    ]:
        with pytest.raises(RegistrationError, match=why):
            Dispatcher([one_each], trace=trace)  # type: ignore[arg-type]
    for wrong in ({"size": "1MiB"}, {"size": "much"}, {"shortest": -1.0}, {"shortest": float("nan")}):
        with pytest.raises(RegistrationError, match="expected"):
            Trace(tmp_path / "run.pftrace", **wrong)  # type: ignore[arg-type]
    dispatcher = Dispatcher([one_each], trace=tmp_path / "run.pftrace")
    assert dispatcher.options["trace"] == Trace(tmp_path / "run.pftrace")
    assert Dispatcher([one_each]).options["trace"] is None
    assert not list(tmp_path.iterdir()), "nothing is written before the first batch"
    # Who opens a pipe waits for its other end.
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/null", tmp_path / ("x" * 300), "lone\ud800", "a\0b", NumberedPath()):
        with pytest.raises(RegistrationError, match="Trace"):
            Trace(path)


def test_scores_are_the_same_with_and_without(tmp_path: Path) -> None:
    def some(completion: str) -> float | None:
        return None if completion == "5" else float(completion)

    functions = [reward(some, name="some", lane="thread"), reward(process, name="slow", lane="process")]
    completions = [str(sample) for sample in range(12)]
    results = []
    for trace in (None, tmp_path / "run.pftrace"):
        with Dispatcher(functions, trace=trace, workers=1) as dispatcher:
            results.append(dispatcher.score(completions=completions, num_generations=3))
    assert (results[0].status == results[1].status).all()
    assert str(results[0].rewards) == str(results[1].rewards)
    assert Status.ABSTAINED in results[0].status.ravel()
    assert guerdon.Trace is Trace

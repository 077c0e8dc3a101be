"""Ranks as processes that share one engine: what they get, what they see on bad days, and what is
left when they have gone."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.clock import eventually, one_of_three
from tests.cluster.shared_engine.rank_processes import Launch, Rank, launch_in
from tests.faults import fault

TEXTS = ["x" * size for size in range(1, 25)]
VALUES = [float(size) for size in range(1, 25)]


@pytest.fixture
def launch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launch]:
    # a short path: that of a socket has a bound
    with launch_in(tmp_path_factory.mktemp("r"), 2) as started:
        yield started


def engine_of(answer: dict[str, Any]) -> tuple[str, str]:
    """The name and state of the engine that a rank uses."""
    ((name, node),) = answer["nodes"].items()
    return name, node["state"]


def begun(launch: Launch, number: int, **options: Any) -> tuple[Rank, tuple[str, str]]:
    """A rank that has scored something, and its engine."""
    rank = launch.start(number, **options)
    rank.score(["first"], 0.0)
    return rank, engine_of(rank.answer())


def scored(rank: Rank, seconds: float = 0.0) -> dict[str, Any]:
    rank.score(TEXTS, seconds)
    return rank.answer()


def assert_right(answer: dict[str, Any], engine: tuple[str, str] | None = None) -> None:
    """Has the values of a serial loop; a given engine computes them without a warning."""
    assert answer["rewards"] == VALUES
    assert answer["status"] == ["OK"]
    if engine is not None:
        assert (answer["warnings"], engine_of(answer)) == ([], engine)


def test_ranks_that_start_at_the_same_instant_share_one_engine(launch: Launch) -> None:
    ranks = [launch.start(number) for number in range(2)]
    for rank in ranks:
        rank.score(TEXTS, 0.0)
    answers = [rank.answer() for rank in ranks]
    assert len({engine_of(answer) for answer in answers}) == 1
    assert len(launch.engines()) == 1
    for answer in answers:
        assert_right(answer)
        assert (answer["workers"], answer["warnings"]) == ([], [])
        assert answer["ranks"] == [-1.0] * len(TEXTS)  # a worker is of no rank
        ((_, node),) = answer["nodes"].items()
        assert node["slots"] == 4
    assert set(launch.ran().values()) == {2}


def test_a_rank_that_comes_late_has_the_engine_after_the_first_has_ended(launch: Launch) -> None:
    first = launch.start(0)
    alone = scored(first)
    assert_right(alone)
    second = launch.start(1)
    assert engine_of(scored(second)) == engine_of(alone)
    first.end()
    assert_right(scored(second), engine_of(alone))


@pytest.mark.fault(
    'cluster="host", and the functions of one rank are not those of another',
    sees="an engine each, and a warning that names the functions",
)
def test_ranks_whose_functions_differ_are_warned(launch: Launch) -> None:
    first = scored(launch.start(0))
    others = scored(launch.start(1, worker_env={"DEVICE": "1"}))
    unlike = scored(launch.start(2, alone=True))
    for answer in (first, others, unlike):
        assert_right(answer)
    assert engine_of(first) != engine_of(others)
    assert (first["warnings"], unlike["warnings"]) == ([], [])
    (warning,) = others["warnings"]
    assert "have 2 engines, with 4 workers each" in warning
    assert "'waits', 'rank_seen'" in warning


def test_cores_go_where_the_work_is(launch: Launch) -> None:
    """Row host-1: 16 prompts of half a second at one rank, on 4 workers: two seconds, where two of
    them would take four."""
    hard, easy = launch.start(0), launch.start(1)
    assert engine_of(scored(hard)) == engine_of(scored(easy))

    def both() -> None:
        hard.score(TEXTS[:16], 0.5)
        easy.score(TEXTS[:16], 0.0)
        assert easy.answer()["rewards"] == VALUES[:16]
        answer = hard.answer()
        assert answer["rewards"] == VALUES[:16]
        assert answer["took"] < 3.5

    one_of_three(both)


def test_a_limit_of_calls_at_a_time_holds_for_all_ranks(launch: Launch) -> None:
    ranks = [launch.start(number, alone=True) for number in range(2)]
    for rank in ranks:
        rank.score(TEXTS[:8], 0.02)
    for rank in ranks:
        assert rank.answer()["rewards"] == VALUES[:8]
    calls = sorted(tuple(map(float, line.split())) for line in Path(launch.log).read_text().splitlines())
    assert len(calls) == 16
    assert all(before[1] <= after[0] for before, after in pairwise(calls))


def wait_for_the_end_of(engines: list[int]) -> None:
    gone = "no process is left, and somebody takes each off the table"
    eventually(lambda: not any(Path(f"/proc/{process}").exists() for process in engines), gone)


@pytest.mark.parametrize(
    ("number", "options", "most_again"),
    [
        fault(
            "the process of the engine that ranks share is killed in mid-batch",
            sees="all values; one warning on each rank, which goes on with workers of its own",
            # Four workers had a call in hand each, and perhaps one more that they had just begun.
            of=(signal.SIGKILL, {}, 8),
        ),
        fault(
            "the process of the engine that ranks share is stopped in mid-batch",
            sees="the same, after 10 s of silence, and that process is killed",
            # Its workers went on with the frames that they had until they were killed with it.
            of=(signal.SIGSTOP, {"silence": 3.0}, 2 * len(TEXTS)),
        ),
    ],
)
def test_fault_shared_engine_killed_or_stopped(
    launch: Launch, number: int, options: dict[str, Any], most_again: int
) -> None:
    """Nothing is lost, little runs twice and nothing three times, and each rank says it once."""
    ranks = [launch.start(rank, **options) for rank in range(2)]
    for rank in ranks:
        scored(rank)
    Path(launch.log).unlink()
    for rank in ranks:
        rank.score(TEXTS, 0.5)
    launch.wait_until_ran(6)
    engines = launch.engines()
    os.kill(engines[0], number)
    begun = time.monotonic()
    for rank in ranks:
        answer = rank.answer()
        assert_right(answer)
        assert len(answer["warnings"]) == 1, answer["warnings"]
        assert "the engine of this host" in answer["warnings"][0]
        again = scored(rank)
        assert_right(again)
        assert len(again["warnings"]) == 1
        assert len(again["workers"]) in (1, 2)  # its share of four
    ran = launch.ran()
    # Each of two ranks scored each text in two batches, the first of which it may have begun twice.
    assert all(4 <= count <= 6 for count in ran.values()), ran
    assert sum(ran.values()) - 4 * len(TEXTS) <= most_again
    assert time.monotonic() - begun < 100.0
    wait_for_the_end_of(engines)


@pytest.mark.parametrize(
    "number",
    [
        fault(
            "the rank that started the shared engine is killed in mid-batch",
            sees="nothing on the other ranks; its calls are ended",
            of=(signal.SIGKILL,),
        ),
        fault(
            "SIGTERM ends a rank in mid-batch that started the engine it shares",
            sees="nothing on the other ranks; its calls are ended",
            of=(signal.SIGTERM,),
        ),
    ],
)
def test_fault_rank_ended(launch: Launch, number: int) -> None:
    (first, _), (second, engine) = begun(launch, 0), begun(launch, 1)
    Path(launch.log).unlink()
    first.score([f"first{size}" for size in range(24)], 2.0)
    launch.wait_until_ran(4)
    first.process.send_signal(number)
    assert first.process.wait(60) == -number
    assert_right(scored(second, 0.05), engine)
    ran = launch.ran()
    assert sum(count for text, count in ran.items() if text.startswith("first")) <= 12
    assert {ran[text] for text in TEXTS} == {1}


@pytest.mark.fault(
    "a rank is killed whose forked child has copies of its descriptors",
    sees="nothing is left of the rank in the shared engine",
)
def test_fault_rank_killed_whose_forked_child_lives(launch: Launch) -> None:
    rank = launch.start(0)
    scored(rank)
    rank.says(fork=True)
    child = rank.answer()["child"]
    engines = launch.engines()
    rank.kill()
    wait_for_the_end_of(engines)
    os.kill(child, signal.SIGKILL)


@pytest.mark.fault(
    "no folder for the socket of the shared engine", sees="all values, from workers of its own, and one warning"
)
def test_fault_no_folder(launch: Launch, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("f")
    for name in ("guerdon", f"guerdon-{os.getuid()}"):
        (folder / name).touch()
    rank = launch.start(0, {"XDG_RUNTIME_DIR": os.fspath(folder), "TMPDIR": os.fspath(folder)})
    answer = scored(rank)
    assert_right(answer)
    assert len(answer["warnings"]) == 1
    assert "the engine of this host" in answer["warnings"][0]
    assert len(answer["workers"]) in (1, 2)


@pytest.mark.fault("nonsense, half a greeting and silence on the socket of the shared engine", sees="nothing")
def test_fault_garbage_on_the_socket(launch: Launch) -> None:
    rank = launch.start(0)
    engine = engine_of(scored(rank))
    (path,) = (name for name in launch.files() if name.endswith(".sock"))
    with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as half:
        for one in (silent, half):
            one.connect(os.fspath(launch.folder / "guerdon" / path))
        half.sendall(b"guerdon host {")
        for nonsense in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b"\n" * 512):
            with socket.socket(socket.AF_UNIX) as other:
                other.settimeout(60)
                other.connect(os.fspath(launch.folder / "guerdon" / path))
                other.sendall(nonsense)
        assert_right(scored(rank), engine)


def assert_only_poison_crashed(answer: dict[str, Any], place: int) -> None:
    """All others as a serial loop would have them."""
    expected = ["OK"] * (len(TEXTS) + 1)
    expected[place] = "CRASHED"
    assert answer["statuses"] == expected
    del answer["rewards"][place]
    assert answer["rewards"] == VALUES


@pytest.mark.fault(
    "a sample kills its worker in the engine that ranks share",
    sees="`crashed` after a second attempt; no other sample of any rank is, and the engine lives on",
)
def test_fault_a_poison_in_the_shared_engine(launch: Launch) -> None:
    (bad, engine), (well, _) = begun(launch, 0), begun(launch, 1)
    bad.score([*TEXTS[:9], "poison", *TEXTS[9:]], 0.05)
    well.score(TEXTS, 0.05)
    answer = bad.answer()
    assert_only_poison_crashed(answer, 9)
    assert answer["warnings"] == []
    other = well.answer()
    assert_right(other)
    assert engine_of(other) == engine_of(answer) == engine
    assert launch.ran()["poison"] == 2


@pytest.mark.fault(
    "a sample kills the process of the engine that ranks share, and then its own worker",
    sees="`crashed`; no other sample of any rank is: each goes on with workers of its own, with one warning",
)
def test_fault_a_poison_kills_the_shared_engine(launch: Launch) -> None:
    (bad, _), (well, _) = begun(launch, 0), begun(launch, 1)
    bad.score([*TEXTS[:9], "poison engine", *TEXTS[9:]], 0.05)
    well.score(TEXTS, 0.05)
    answer, other = bad.answer(), well.answer()
    assert_only_poison_crashed(answer, 9)
    assert_right(other)
    for one in (answer, other):
        assert len(one["warnings"]) == 1, one["warnings"]
        assert engine_of(one)[1] == "lost"


@pytest.mark.fault(
    "the process of the engine that ranks share is slow: stopped for most of the time, over and over",
    sees="nothing: all values, each call once, from that engine",
)
def test_fault_a_slow_shared_engine(launch: Launch) -> None:
    ranks = [begun(launch, number) for number in range(2)]
    Path(launch.log).unlink()
    (process,) = launch.engines()
    over = threading.Event()

    def slow() -> None:
        while not over.is_set():
            os.kill(process, signal.SIGSTOP)
            over.wait(0.2)
            os.kill(process, signal.SIGCONT)
            over.wait(0.05)

    slowing = threading.Thread(target=slow)
    slowing.start()
    try:
        for rank, _ in ranks:
            rank.score(TEXTS, 0.1)
        for rank, engine in ranks:
            assert_right(rank.answer(), engine)
    finally:
        over.set()
        slowing.join()
    assert launch.ran() == dict.fromkeys(TEXTS, 2)


@pytest.mark.fault(
    "a rank starts while another has a batch in the engine that they share", sees="nothing: it shares it"
)
def test_fault_a_rank_joins_in_mid_batch(launch: Launch) -> None:
    first, engine = begun(launch, 0)
    Path(launch.log).unlink()
    first.score(TEXTS, 0.5)  # three seconds
    launch.wait_until_ran(4)
    second = launch.start(1)
    assert_right(scored(second), engine)
    answer = first.answer()
    assert_right(answer)
    assert answer["warnings"] == []
    assert launch.ran() == dict.fromkeys(TEXTS, 2)


@pytest.mark.fault(
    "a rank is stopped (SIGSTOP) in mid-batch, and goes on later",
    sees="nothing on the other ranks; all values on it, each call once",
)
def test_fault_a_rank_is_stopped_for_a_while(launch: Launch) -> None:
    (first, _), (second, engine) = begun(launch, 0), begun(launch, 1)
    Path(launch.log).unlink()
    first.score(TEXTS, 0.1)
    launch.wait_until_ran(4)
    first.process.send_signal(signal.SIGSTOP)
    try:
        assert_right(scored(second))
        time.sleep(1.0)
    finally:
        first.process.send_signal(signal.SIGCONT)
    assert_right(first.answer(), engine)
    assert launch.ran() == dict.fromkeys(TEXTS, 2)

"""A shared engine on bad days: samples that kill, an engine that is slow, ranks that come and
go."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.shared_engine.rank_processes import Launch, Rank, launch_in

TEXTS = ["x" * size for size in range(1, 25)]
VALUES = [float(size) for size in range(1, 25)]


@pytest.fixture
def launch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launch]:
    with launch_in(tmp_path_factory.mktemp("r"), 2) as started:
        yield started


def engine_of(answer: dict[str, Any]) -> tuple[str, str]:
    ((name, node),) = answer["nodes"].items()
    return name, node["state"]


def begun(launch: Launch, number: int, **options: Any) -> tuple[Rank, tuple[str, str]]:
    """A rank that has scored something, and its engine."""
    rank = launch.start(number, **options)
    rank.score(["first"], 0.0)
    return rank, engine_of(rank.answer())


def assert_right(answer: dict[str, Any]) -> None:
    assert (answer["rewards"], answer["status"]) == (VALUES, ["OK"])


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
            answer = rank.answer()
            assert_right(answer)
            assert (answer["warnings"], engine_of(answer)) == ([], engine)
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
    second.score(TEXTS, 0.0)
    late = second.answer()
    assert_right(late)
    assert engine_of(late) == engine
    answer = first.answer()
    assert_right(answer)
    assert (late["warnings"], answer["warnings"]) == ([], [])
    assert launch.ran() == dict.fromkeys(TEXTS, 2)


@pytest.mark.fault(
    "SIGTERM ends a rank in mid-batch that started the engine it shares",
    sees="nothing on the other ranks; its calls are ended",
)
def test_fault_a_rank_gets_sigterm(launch: Launch) -> None:
    (first, _), (second, engine) = begun(launch, 0), begun(launch, 1)
    Path(launch.log).unlink()
    first.score([f"first{size}" for size in range(24)], 2.0)
    second.score(TEXTS, 0.1)
    launch.wait_until_ran(8)
    first.process.send_signal(signal.SIGTERM)
    assert first.process.wait(60) == -signal.SIGTERM
    answer = second.answer()
    assert_right(answer)
    assert (answer["warnings"], engine_of(answer)) == ([], engine)
    ran = launch.ran()
    assert sum(count for text, count in ran.items() if text.startswith("first")) <= 20
    assert {ran[text] for text in TEXTS} == {1}


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
        second.score(TEXTS, 0.0)
        assert_right(second.answer())
        time.sleep(1.0)
    finally:
        first.process.send_signal(signal.SIGCONT)
    answer = first.answer()
    assert_right(answer)
    assert (answer["warnings"], engine_of(answer)) == ([], engine)
    assert launch.ran() == dict.fromkeys(TEXTS, 2)

"""Functions and batches of very different size share the workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from guerdon import Dispatcher, Status, reward
from tests.stress import cheap_and_costly_functions

MB = 2**20


def test_functions_of_very_different_cost_go_through_a_batch_together(tmp_path: Path) -> None:
    """Neither is ever further ahead of the other than the window that the engine keeps, a part of
    the batch."""
    samples, notes = 2048, tmp_path / "notes"
    with Dispatcher(
        [reward(cheap_and_costly_functions.cheap), reward(cheap_and_costly_functions.dear)], workers=2
    ) as dispatcher:
        texts = ["x"] * samples
        result = dispatcher.score(completions=texts, number=list(range(samples)), notes=[str(notes)] * samples)
    assert result.status.max() == Status.OK
    reached, most = [0, 0], [0, 0]
    for function, number in cheap_and_costly_functions.NOTE.iter_unpack(notes.read_bytes()):
        reached[function] = max(reached[function], number)
        most[function] = max(most[function], reached[function] - reached[1 - function])
    # Four frames of 64 a worker, beside those that are on their way.
    assert most[cheap_and_costly_functions.CHEAP] <= 2 * 4 * 64 + 2 * 2 * 64, most
    assert most[cheap_and_costly_functions.DEAR] <= 256, most


def test_groups_complete_throughout_the_batch() -> None:
    """Not all at its end: what is half done has given half of its groups."""
    groups, seconds = 64, 0.01
    functions = [
        reward(cheap_and_costly_functions.doze),
        reward(cheap_and_costly_functions.instant),
        reward(cheap_and_costly_functions.length, lane="thread"),
    ]
    with Dispatcher(functions, workers=2) as dispatcher:
        dispatcher.score(completions=[str(seconds)] * 32, num_generations=4)  # its cost is known
        runs = []
        for _ in range(3):  # in one of them this machine may stand still for a moment
            start = time.monotonic()
            pending = dispatcher.submit(completions=[str(seconds)] * (4 * groups), num_generations=4)
            order, times = [], []
            for group in pending.groups():
                order.append(group.index)
                times.append(time.monotonic() - start)
            assert max(abs(place - index) for place, index in enumerate(order)) <= 8, order
            runs.append(times)
            if times[groups // 4] < 0.5 * times[-1] and times[groups // 2] < 0.75 * times[-1]:
                break
        else:
            pytest.fail(f"groups came late: {runs}")


@pytest.mark.parametrize(
    ("function", "slow"),
    [(cheap_and_costly_functions.spin_if_told, 2), (cheap_and_costly_functions.sleep_if_told, 12)],
)
def test_cheap_calls_pass_slow_ones_of_their_function(function: Callable[[str], float], slow: int) -> None:
    """Only some of many workers run cheap calls; slow ones do not take up these."""
    with Dispatcher([reward(function)], workers=64) as dispatcher:
        dispatcher.score(completions=[""] * 2000)  # the calls count as cheap
        held_up = dispatcher.submit(completions=(["5"] + [""] * 99) * slow)
        start = time.monotonic()
        result = dispatcher.score(completions=[""] * 1000)
        took = time.monotonic() - start
        held_up.cancel()
    assert result.status.max() == Status.OK
    assert took < 2.0, took


def test_waiting_calls_use_all_workers_after_cheap_ones() -> None:
    with Dispatcher([reward(cheap_and_costly_functions.sleep_if_told)], workers=64) as dispatcher:
        dispatcher.score(completions=[""] * 10_000)
        start = time.monotonic()
        result = dispatcher.score(completions=["0.2"] * 64)
        took = time.monotonic() - start
    assert result.status.max() == Status.OK
    assert took < 1.0, took  # eleven rounds of six at a time would be 2.2 s


@pytest.mark.parametrize("samples", [100_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_a_large_batch_streams(samples: int) -> None:
    """Its texts, 5 KB each, are never all on their way: neither the trainer nor a worker grows by a
    part of them."""
    text = "x" * 5000
    with Dispatcher([reward(cheap_and_costly_functions.length)], workers=2) as dispatcher:
        dispatcher.score(completions=[text] * 1000)
        processes = [psutil.Process(), *map(psutil.Process, dispatcher.worker_pids())]
        with peak(processes) as grown:
            result = dispatcher.score(completions=[text] * samples)
    assert result.status.max() == Status.OK
    assert result.rewards.min() == result.rewards.max() == 5000.0
    # The grid and the arrays take about a hundred bytes a sample.
    assert grown[0] < 32 * MB + 150 * samples, grown
    assert max(grown[1:]) < 32 * MB, grown


@contextmanager
def peak(processes: list[psutil.Process]) -> Iterator[list[int]]:
    """How much resident memory each process had more at most, in bytes."""
    first = [process.memory_info().rss for process in processes]
    grown, stop = [0] * len(processes), threading.Event()

    def look() -> None:
        while not stop.wait(0.01):
            for index, process in enumerate(processes):
                grown[index] = max(grown[index], process.memory_info().rss - first[index])

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield grown
    finally:
        stop.set()
        thread.join()

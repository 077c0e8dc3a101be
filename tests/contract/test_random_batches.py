"""Scripted batches through the whole engine: design section 4, invariants 1, 2, 3 and 5 (acceptance 11).

Whatever calls do, on whatever lane and in whatever order they end: cell ``[p, g, f]`` is function ``f`` on sample
``p * G + g``, each call ran as often as its outcome says, each group is announced once, complete, and the array equals
a serial loop's bit for bit.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon import Dispatcher, Group, RewardBatch, Status, Ticket
from guerdon._registration.spec import FunctionSpec, spec_of
from tests.contract.plan import FAILS, Cell, End, foretell, ran
from tests.contract.scripted import EVERY_LANE, HANGING, forked, killable, killable_batch, killable_group


def examples(percent: int) -> settings:
    """Part of what the profile asks for (100, if none was chosen)."""
    return settings(max_examples=max(1, settings().max_examples * percent // 100))


QUIET = ("raise", "exit", "interrupt")
DEADLY = (*QUIET, "die", "kill")
NUMBERS = itertools.count()
DELAYS = (0.001, 0.005, 0.03)  # the last is long enough for what waits behind it to be taken back


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def every_lane() -> Iterator[Dispatcher]:
    with Dispatcher(EVERY_LANE, workers=2, max_failed_fraction=1.0) as made:
        yield made


@pytest.fixture(scope="module")
def hurried() -> Iterator[Dispatcher]:
    """Every lane, with little time for a batch."""
    with Dispatcher(EVERY_LANE, workers=2, max_failed_fraction=1.0, budget=0.05) as made:
        yield made


@pytest.fixture(scope="module")
def hanging() -> Iterator[Dispatcher]:
    with Dispatcher(HANGING, workers=2, max_failed_fraction=1.0) as made:
        yield made


@pytest.fixture(scope="module")
def processes() -> Iterator[Dispatcher]:
    with Dispatcher([killable, killable_group, killable_batch], workers=2, max_failed_fraction=1.0) as made:
        yield made


class Batch:
    """A scripted batch for a list of functions."""

    def __init__(self, functions: Sequence[Any], prompts: int, size: int, log: Path) -> None:
        self.specs: list[FunctionSpec] = [spec_of(function) for function in functions]
        self.size = size
        self.texts = ["x" * (sample * 7 % 50) for sample in range(prompts * size)]
        self.log = str(log)
        log.touch()
        samples = range(prompts * size)
        self.cells = [[Cell(self.log, number, sample) for sample in samples] for number in range(len(self.specs))]

    def put(self, function: int, sample: int, **changes: Any) -> None:
        self.cells[function][sample] = self.cells[function][sample]._replace(**changes)

    def first(self, function: int, sample: int) -> int:
        """The first sample of the call that `sample` belongs to."""
        return {"sample": sample, "group": sample // self.size * self.size, "batch": 0}[self.specs[function].shape]

    def submit(self, dispatcher: Dispatcher) -> Ticket:
        columns = {f"{spec.name}_cell": cells for spec, cells in zip(self.specs, self.cells, strict=True)}
        return dispatcher.submit(
            prompts=["p"] * len(self.texts), completions=self.texts, num_generations=self.size, **columns
        )

    def foretold(self, function: int, sample: int) -> End:
        cells, retries = self.cells[function], self.specs[function].policy.retries
        return foretell(self.texts[sample], cells[sample], cells[self.first(function, sample)], retries)

    def check(self, result: RewardBatch, groups: Sequence[Group]) -> None:
        rewards = np.full(result.rewards.shape, np.nan, np.float32).reshape(len(self.texts), -1)
        status, attempts = np.zeros_like(rewards, np.uint8), np.zeros_like(rewards, np.uint16)
        for function in range(len(self.specs)):
            for sample in range(len(self.texts)):
                end = self.foretold(function, sample)
                status[sample, function], rewards[sample, function], attempts[sample, function] = end
        np.testing.assert_array_equal(result.status, status.reshape(result.status.shape))
        np.testing.assert_array_equal(result.attempts, attempts.reshape(result.status.shape))
        self.check_rewards(result, rewards)
        self.check_failures(result)
        self.check_groups(result, groups)
        started = ran(self.log)
        for function in range(len(self.specs)):
            for sample in range(len(self.texts)):
                if self.first(function, sample) == sample:
                    assert started.pop((function, sample), 0) == attempts[sample, function], (function, sample)
        assert not started

    def check_rewards(self, result: RewardBatch, rewards: Any) -> None:
        """Bit for bit: NaN where there is none, and no other number that is merely close."""
        expected = rewards.reshape(result.rewards.shape)
        np.testing.assert_array_equal(np.isnan(result.rewards), np.isnan(expected))
        there = ~np.isnan(expected)
        np.testing.assert_array_equal(result.rewards[there].view(np.uint32), expected[there].view(np.uint32))

    def check_failures(self, result: RewardBatch) -> None:
        failures = {(failure.function, failure.sample): failure for failure in result.failures()}
        assert len(failures) == int((result.status >= 2).sum())
        for (name, sample), failure in failures.items():
            assert failure.reason, (name, sample)
            assert f"'{name}' on sample {sample}: {failure.status.label}" in str(failure)

    def check_groups(self, result: RewardBatch, groups: Sequence[Group]) -> None:
        assert sorted(group.index for group in groups) == list(range(len(self.texts) // self.size))
        for group in groups:
            np.testing.assert_array_equal(group.rewards, result.rewards[group.index])
            np.testing.assert_array_equal(group.status, result.status[group.index])

    def run(self, dispatcher: Dispatcher) -> tuple[RewardBatch, list[Group]]:
        """The result, and the groups as two iterations at once saw them."""
        ticket = self.submit(dispatcher)
        beside: list[Group] = []
        thread = threading.Thread(target=lambda: beside.extend(ticket.groups(timeout=60)))
        thread.start()
        groups = list(ticket.groups(timeout=60))
        thread.join(60)
        assert [group.index for group in beside] == [group.index for group in groups]
        return ticket.result(timeout=60), groups


@st.composite
def scripts(draw: st.DrawFn, functions: Sequence[Any], moves: Sequence[str], most: int) -> Any:
    """(prompts, group size, changes): a few cells that do something; all others give their number at once."""
    prompts, size = draw(st.integers(1, 8)), draw(st.integers(1, 6))
    specs = [spec_of(function) for function in functions]

    def change(function: int) -> st.SearchStrategy[Any]:
        allowed = [move for move in moves if specs[function].lane == "process" or move in (*QUIET, "hang")]
        steps = st.lists(st.sampled_from(allowed), max_size=3).map(tuple)
        return st.tuples(
            st.just(function),
            st.integers(0, prompts * size - 1),
            st.fixed_dictionaries(
                {},
                optional={
                    "moves": steps,
                    "gives": st.sampled_from(["none", "text"]),
                    "delay": st.sampled_from(DELAYS),
                },
            ),
        )

    changes = draw(st.lists(st.integers(0, len(specs) - 1).flatmap(change), max_size=most))
    return prompts, size, changes


def scripted(functions: Sequence[Any], script: Any, folder: Path) -> Batch:
    prompts, size, changes = script
    batch = Batch(functions, prompts, size, folder / f"log{next(NUMBERS)}")
    for function, sample, change in changes:
        batch.put(function, sample, **change)
    return batch


def check(dispatcher: Dispatcher, batch: Batch) -> None:
    try:
        batch.check(*batch.run(dispatcher))
    finally:
        os.unlink(batch.log)


@pytest.mark.fault(
    "any mix of functions, lanes, delays, failures, retries and deaths (searched)",
    sees="what a serial loop gives; each cell and each group once",
)
@examples(20)
@given(script=scripts(EVERY_LANE, DEADLY, most=12))
def test_row_11_results_equal_a_serial_loop(every_lane: Dispatcher, folder: Path, script: Any) -> None:
    """Acceptance 11: random sizes, groups, lanes, delays, failures, retries and deaths of workers."""
    check(every_lane, scripted(EVERY_LANE, script, folder))


@examples(15)
@given(script=scripts(EVERY_LANE, DEADLY, most=12), when=st.floats(0, 0.08), end=st.sampled_from(["cancel", "budget"]))
def test_inv_2_a_batch_that_is_cut_short_at_any_moment(
    every_lane: Dispatcher, hurried: Dispatcher, folder: Path, script: Any, when: float, end: str
) -> None:
    """Each cell has one outcome: its own, or that of the cut. What is left of the batch harms no later one."""
    batch = scripted(EVERY_LANE, script, folder)  # its log is its own: what was abandoned may write there for a while
    for function in range(len(EVERY_LANE)):
        for sample in range(0, len(batch.texts), 3):
            batch.put(function, sample, delay=max(batch.cells[function][sample].delay, 0.01))
    ticket = batch.submit(every_lane if end == "cancel" else hurried)
    if end == "cancel":
        time.sleep(when)
        ticket.cancel()
    groups = list(ticket.groups(timeout=60))
    result = ticket.result(timeout=60)
    batch.check_groups(result, groups)
    batch.check_failures(result)
    cut = (Status.CANCELLED, "cancelled by the caller") if end == "cancel" else (Status.TIMEOUT, "budget")
    reasons = {(failure.function, failure.sample): failure.reason for failure in result.failures()}
    status, rewards = result.status.reshape(len(batch.texts), -1), result.rewards.reshape(len(batch.texts), -1)
    for function, spec in enumerate(batch.specs):
        for sample in range(len(batch.texts)):
            got = status[sample, function]
            if got == cut[0] and reasons[spec.name, sample] == cut[1]:
                assert np.isnan(rewards[sample, function])
                continue
            first = batch.cells[function][batch.first(function, sample)]
            attempt = int(result.attempts.reshape(status.shape)[sample, function])
            if attempt <= len(first.moves) and got == FAILS[first.moves[attempt - 1]]:
                continue  # it failed, and there was no time for another attempt
            expected = batch.foretold(function, sample)
            assert got == expected.status
            np.testing.assert_array_equal(rewards[sample, function], np.float32(expected.value))
    started, attempts = ran(batch.log), result.attempts.reshape(len(batch.texts), -1)
    assert all(started[function, sample] <= attempts[sample, function] for function, sample in started)
    check(every_lane, Batch(EVERY_LANE, 2, 3, folder / "after"))


@examples(3)
@given(script=scripts(HANGING, ("hang",), most=3))
def test_row_11_with_calls_that_hang(hanging: Dispatcher, folder: Path, script: Any) -> None:
    check(hanging, scripted(HANGING, script, folder))


@examples(4)
@given(script=scripts([forked], DEADLY, most=6))
def test_row_11_with_a_fork_for_each_call(folder: Path, script: Any) -> None:
    with Dispatcher([forked], workers=2, max_failed_fraction=1.0) as made:
        check(made, scripted([forked], script, folder))


@pytest.mark.parametrize("seed", [1, 2])
def test_row_11_a_large_batch_with_a_bit_of_everything(every_lane: Dispatcher, folder: Path, seed: int) -> None:
    """Many frames under way at once, 3 % of the calls in trouble."""
    chance = random.Random(seed)
    batch = Batch(EVERY_LANE, 60, 8, folder / f"large{seed}")
    for function, spec in enumerate(batch.specs):
        for sample in range(len(batch.texts)):
            if chance.random() < 0.03:
                allowed = DEADLY if spec.lane == "process" else QUIET
                moves = tuple(chance.choice(allowed) for _ in range(chance.choice((0, 1, 1, 2, 3))))
                gives = chance.choice(("number", "number", "none", "text"))
                batch.put(function, sample, moves=moves, gives=gives, delay=chance.choice((0.0, *DELAYS)))
    check(every_lane, batch)


@pytest.mark.fault(
    "workers are killed from outside at any moment (searched)",
    sees="what a serial loop gives",
)
@examples(8)
@given(
    seed=st.integers(0, 2**32), when=st.floats(0, 0.1), victims=st.sampled_from(["a worker", "all workers", "zygotes"])
)
def test_row_11_whatever_processes_are_killed_from_outside(
    processes: Dispatcher, folder: Path, seed: int, when: float, victims: str
) -> None:
    """A kill hits the calls in hand; each is tried once more, and nothing else is lost or run twice."""
    chance = random.Random(seed)
    batch = Batch([killable, killable_group, killable_batch], 12, 4, folder / "log")
    for function in range(3):
        for sample in range(len(batch.texts)):
            batch.put(function, sample, delay=chance.choice((0.0, 0.0, 0.002, 0.02)))
    ticket = batch.submit(processes)
    time.sleep(when)
    killed = kill(processes, victims, chance)
    result = ticket.result(timeout=60)
    assert result.status.max() == 0, result.failures()
    expected = [[batch.foretold(function, sample).value for function in range(3)] for sample in range(len(batch.texts))]
    batch.check_rewards(result, np.array(expected, np.float32))
    assert int(result.attempts.max()) <= 2
    attempts = result.attempts.reshape(len(batch.texts), -1)
    calls = {(function, batch.first(function, sample)) for function in range(3) for sample in range(len(batch.texts))}
    again = {call for call in calls if attempts[call[1], call[0]] > 1}
    assert len(again) <= killed
    # A worker that dies between its claim and the first line of the function has started nothing.
    started = ran(batch.log)
    os.unlink(batch.log)
    assert set(started) == calls
    assert all(started[call] == 1 or call in again for call in calls)
    assert all(started[call] <= 2 for call in calls)


def kill(dispatcher: Dispatcher, victims: str, chance: random.Random) -> int:
    """Kills processes of the engine; the number of calls that may have been in hand."""
    workers = dispatcher.worker_pids()
    if victims == "a worker":
        chosen = [chance.choice(workers)] if workers else []
    elif victims == "all workers":
        chosen = workers
    else:
        chosen = sorted({pid for worker in workers for pid in above(worker)})
    for pid in chosen:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return 8 if victims == "zygotes" else len(chosen)


def above(pid: int) -> list[int]:
    """The processes between this one and its descendant `pid`."""
    found = []
    while True:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:  # it ended meanwhile
            return found
        pid = int(stat[stat.rindex(")") + 2 :].split()[1])
        if pid in (0, 1, os.getpid()):
            return found
        found.append(pid)

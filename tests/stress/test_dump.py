"""In-flight snapshots: `dispatcher.dump()` names the calls in flight and their stacks."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, Dump, InFlight, Status, group_reward, reward
from guerdon.errors import RegistrationError
from tests.stress import stuck_functions


@pytest.fixture(autouse=True)
def threads_go_on() -> Iterator[None]:
    stuck_functions.GO.clear()
    yield
    stuck_functions.GO.set()


def _until(dispatcher: Dispatcher, enough: Callable[[Dump], bool], timeout: float = 1.0) -> Dump:
    """The first dump that shows what is awaited."""
    deadline = time.monotonic() + 50  # functions wait for a minute
    while True:
        dump = dispatcher.dump(timeout)
        if enough(dump):
            return dump
        assert time.monotonic() < deadline, str(dump)
        time.sleep(0.02)


def _by_sample(dump: Dump) -> dict[int, InFlight]:
    return {call.samples[0]: call for call in dump}


def _with_stacks(count: int) -> Callable[[Dump], bool]:
    return lambda dump: sum(call.stack is not None and call.phase == "call" for call in dump) == count


def test_every_call_of_the_process_lane_is_named_with_its_stack() -> None:
    texts = ["loop:", "gil:", "sleep:60"]
    with Dispatcher([reward(stuck_functions.stand, timeout=60)], workers=3) as dispatcher:
        pending = dispatcher.submit(completions=texts)
        places = ("in stand", "in hold_gil", "in _rest")
        dump = _until(dispatcher, lambda dump: _with_stacks(3)(dump) and all(place in str(dump) for place in places))
        calls = _by_sample(dump)
        assert set(calls) == {0, 1, 2}
        assert all(call.function == "stand" and call.lane == "process" and call.attempt == 1 for call in dump)
        assert {call.worker for call in dump} == set(dispatcher.worker_pids()) == set(dump.workers)
        for sample, name in [(0, "stand"), (1, "hold_gil"), (2, "_rest")]:
            stack = calls[sample].stack or ""
            assert stack.splitlines()[-2].endswith(f", in {name}"), stack
            assert stack.splitlines()[0].endswith(", in stand"), stack
            assert "_worker" not in stack
        assert "return sum(range(10**13))" in (calls[1].stack or ""), "source lines are shown"
        assert dump.waiting == {"stand": 0}
        assert [call.age_s for call in dump] == sorted((call.age_s for call in dump), reverse=True)
        text = str(dump)
        assert text.startswith("3 calls in flight, 3 worker processes alive\n")
        assert "'stand' on sample 1 of batch 1: runs for " in text
        pending.cancel()


def test_a_dump_disturbs_nothing() -> None:
    function = reward(stuck_functions.stand, timeout=60)
    texts = [f"give:{n}" for n in range(2000)]
    with Dispatcher([function], workers=2) as dispatcher:
        dispatcher.score(completions=texts[:2])
        for _ in range(5):
            pending = dispatcher.submit(completions=texts)
            while not pending.done:
                assert dispatcher.dump() is not None
            result = pending.result()
            assert result.rewards.ravel().tolist() == [float(n) for n in range(2000)]
            assert result.attempts.max() == 1
        assert dispatcher.stats()["kills"] == dispatcher.stats()["worker_restarts"] == 0


def test_workers_that_can_not_answer_are_shown_without_stack() -> None:
    with Dispatcher([reward(stuck_functions.stand, timeout=60)], workers=3) as dispatcher:
        pending = dispatcher.submit(completions=["stop:", "block:", "sleep:60"])

        def enough(dump: Dump) -> bool:
            return len(dump) == 3 and all(
                text in str(dump) for text in ("is stopped", "blocked the signal", "in _rest")
            )

        _until(dispatcher, enough)
        start = time.monotonic()
        dispatcher.dump(2.0)
        assert time.monotonic() - start < 40
        calls = _by_sample(_until(dispatcher, enough, 2.0))
        for sample, why in enumerate(("is stopped", "blocked the signal")):
            assert calls[sample].stack is None
            assert why in (calls[sample].no_stack or "")
        assert "in _rest" in (calls[2].stack or ""), "the other one answers as ever"
        pending.cancel()


@pytest.mark.fault(
    "a function takes every real-time signal for itself",
    sees="nothing: guerdon sends none of them once that call has ended; `dump()` shows later calls without stack",
)
def test_signals_that_a_function_takes_stay_its_own(tmp_path: Path) -> None:
    note = tmp_path / "note"
    with Dispatcher([reward(stuck_functions.stand, timeout=60)], workers=1) as dispatcher:
        dispatcher.score(completions=[f"own:{note}"], num_generations=1)
        dispatcher.score(completions=["give:1"])  # the frame that took them has ended for certain
        pending = dispatcher.submit(completions=["sleep:60"])
        dump = _until(dispatcher, lambda dump: [(call.batch, call.phase) for call in dump] == [(3, "call")])
        assert dump[0].stack is None
        time.sleep(0.1)
        assert not note.exists()
        pending.cancel()


@pytest.mark.fault(
    "a function closes all descriptors and opens files of its own in their place",
    sees="nothing of guerdon in its files; `timeout` without a stack if it then hangs",
)
def test_nothing_is_written_to_files_that_a_function_opened(tmp_path: Path) -> None:
    function = reward(stuck_functions.stand, timeout=6.0, grace=0.1, max_failure_rate=1.0)
    with Dispatcher([function], workers=1) as dispatcher:
        pending = dispatcher.submit(completions=[f"files:{tmp_path}"])
        _until(dispatcher, lambda dump: (tmp_path / "done").exists())
        (call,) = dispatcher.dump(1.0)
        assert call.stack is None
        (failure,) = pending.result().failures()
    assert failure.status == Status.TIMEOUT
    assert failure.traceback is None
    assert [path.read_bytes() for path in tmp_path.iterdir() if path.stat().st_size] == []


def test_group_calls_retries_and_setup_are_named(tmp_path: Path) -> None:
    functions = [
        group_reward(stuck_functions.whole_group, timeout=60, lane="process"),
        reward(stuck_functions.again, timeout=60, retries=1),
        stuck_functions.SlowToSetUp(),
    ]
    texts = [str(tmp_path / name) for name in "ab"]
    with Dispatcher(functions, workers=5) as dispatcher:
        pending = dispatcher.submit(completions=texts, num_generations=2)
        dump = _until(
            dispatcher, lambda dump: len(dump) == 5 and any(c.attempt == 2 for c in dump) and "setup" in str(dump)
        )
        groups = {tuple(call.samples) for call in dump if call.function == "whole_group"}
        assert groups == {(0, 1)}
        second = next(call for call in dump if call.attempt == 2)
        assert second.function == "again"
        assert ", attempt 2: runs" in str(second)
        setup = next(call for call in dump if call.phase == "setup")
        assert setup.function == "SlowToSetUp"
        assert "in setup" in (setup.stack or setup.no_stack or "")
        pending.cancel()


def test_threads_and_loops_are_named_with_their_stacks() -> None:
    functions = [
        reward(stuck_functions.waits, lane="thread", timeout=60),
        reward(stuck_functions.judge, timeout=60),
        reward(stuck_functions.judge, timeout=60, name="blocking", loop="other"),
        stuck_functions.SlowLoop(),
    ]
    with Dispatcher(functions, workers=1) as dispatcher:
        pending = dispatcher.submit(completions=["1", "blocks"])
        dump = _until(dispatcher, lambda dump: _with_stacks(6)(dump) and "setup()" in str(dump))
        waits = [call for call in dump if call.function == "waits"]
        assert {call.samples[0] for call in waits} == {0, 1}
        for call in waits:
            assert call.lane == "thread"
            assert str(call.worker).startswith("guerdon waits ")
            assert (call.stack or "").splitlines()[0].endswith(", in waits")
            assert "threading.py" in (call.stack or "")
        judge = next(call for call in dump if call.function == "judge")
        lines = [line for line in (judge.stack or "").splitlines() if ", in " in line]
        assert lines[0].endswith(", in judge")
        assert lines[1].endswith(", in _ask")
        blocking = next(call for call in dump if call.function == "blocking" and call.samples[0] == 1)
        assert "GO.wait(60)" in (blocking.stack or "")
        assert "guerdon loop other" in str(blocking.worker)
        assert judge.worker == "guerdon loop of judge"
        setup = next(call for call in dump if call.phase == "setup")
        assert list(setup.samples) == [0, 1]
        assert ", in _ask" in (setup.stack or "")
        assert "_lanes" not in str(dump)
        stuck_functions.GO.set()
        pending.cancel()


def test_in_a_signal_handler_while_a_batch_is_waited_for() -> None:
    found: list[Dump] = []
    with Dispatcher([reward(stuck_functions.stand, timeout=60)], workers=1) as dispatcher:
        pending = dispatcher.submit(completions=["sleep:60"])

        def signals() -> None:
            deadline = time.monotonic() + 30
            while not any("in _rest" in str(dump) for dump in found) and time.monotonic() < deadline:
                taken = len(found)
                os.kill(os.getpid(), signal.SIGUSR1)
                while len(found) == taken and time.monotonic() < deadline:
                    time.sleep(0.01)
            pending.cancel()

        before = signal.signal(signal.SIGUSR1, lambda *_: found.append(dispatcher.dump()))
        try:
            thread = threading.Thread(target=signals)
            thread.start()
            result = pending.result()
            thread.join()
        finally:
            signal.signal(signal.SIGUSR1, before)
    assert result.status.item() == Status.CANCELLED
    assert "in _rest" in str(found[-1]), [str(dump) for dump in found]


def test_from_many_threads_at_once() -> None:
    found: list[Dump] = []
    with Dispatcher([reward(stuck_functions.stand, timeout=60)], workers=1) as dispatcher:
        pending = dispatcher.submit(completions=["gil:"] * 6)
        _until(dispatcher, lambda dump: "in hold_gil" in str(dump))
        # a question right after an answer finds the handler that gave it about to return
        for _ in range(5):
            with ThreadPoolExecutor(8) as pool:
                found += pool.map(lambda _: dispatcher.dump(20.0), range(8))
        pending.cancel()
    assert len(found) == 40
    assert not [str(dump) for dump in found if "in hold_gil" not in (dump[0].stack or "")]
    assert all(dump.waiting == {"stand": 5} for dump in found)
    assert str(found[0]).endswith("\n'stand': 5 samples waiting")


def test_before_after_and_in_a_fork_there_is_nothing() -> None:
    dispatcher = Dispatcher([reward(stuck_functions.stand, timeout=60)], workers=1)
    assert str(dispatcher.dump()) == "0 calls in flight, 0 worker processes alive"
    pending = dispatcher.submit(completions=["sleep:60"])
    _until(dispatcher, lambda dump: len(dump) == 1)
    pid = os.fork()
    if pid == 0:
        os._exit(len(dispatcher.dump()))
    assert os.waitpid(pid, 0)[1] == 0
    pending.cancel()
    dispatcher.close()
    dump = dispatcher.dump()
    assert (len(dump), dump.waiting, repr(dump)) == (0, {"stand": 0}, "<Dump of 0 calls in flight>")


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), 10**400, "1", None])
def test_a_bound_that_is_none_is_refused(timeout: Any) -> None:
    with Dispatcher([reward(stuck_functions.stand)]) as dispatcher, pytest.raises(RegistrationError, match="timeout"):
        dispatcher.dump(timeout)

"""A thread of the thread lane that something ends: the call in hand fails, and the function goes on
on another thread."""

from __future__ import annotations

import subprocess
import threading
import time
from typing import Any

import pytest

from guerdon import Dispatcher, Status, group_reward
from guerdon._lanes.lane_threads import LaneThread
from tests.lanes.lane_helpers import scored, threaded
from tests.processes import run_python


class Leaves:
    """A recorded value that can't be written down."""

    def __str__(self) -> str:
        raise SystemExit(3)

    __repr__ = __str__


@pytest.mark.parametrize("shape", ["sample", "batch"])
def test_a_record_whose_text_raises_system_exit_fails_its_call(shape: str) -> None:
    def sample(completion: str) -> object:
        return {"score": 1.0, "why": Leaves() if completion == "1" else "so"}

    def batch(completions: list[str], log_extra: Any, **columns: object) -> list[float]:
        log_extra("why", [Leaves() for _ in completions])
        return [1.0 for _ in completions]

    function = threaded(sample) if shape == "sample" else group_reward(batch, lane="thread")
    with Dispatcher([function], max_failure_rate=1.0) as dispatcher:
        for _ in range(3):
            result = dispatcher.score(completions=["0", "1", "2"], num_generations=3)
            status = result.status[0, :, 0].tolist()
            assert status[1] in (Status.OK, Status.ERROR)  # what can't be written may be left out
            assert shape == "batch" or status[::2] == [Status.OK] * 2


@pytest.mark.parametrize("holding", [False, True], ids=["plain", "holding locks"])
def test_a_thread_that_ends_before_it_runs_lets_its_starter_go_on(holding: bool) -> None:
    """An exception from outside may leave it the locks of `with` statements, since CPython 3.14."""

    class Ends(LaneThread):
        def _set_ident(self) -> None:
            for lock in (self._started._cond, threading._active_limbo_lock) if holding else ():  # type: ignore[attr-defined]
                lock.acquire()
            raise SystemExit

    ended: list[str] = []
    thread = Ends(None, lambda: ended.append("ran"), "short", lambda: ended.append("ended"))  # type: ignore[arg-type]
    starter = threading.Thread(target=thread.start, daemon=True)
    starter.start()
    starter.join(60)
    assert not starter.is_alive()
    assert ended == ["ended"]
    assert thread not in threading.enumerate()


def scores(program: str) -> subprocess.CompletedProcess[str]:
    """Runs a program that is to end with "scored"."""
    done = run_python(program)
    assert done.stdout == "scored\n", done.stderr[-3000:]
    return done


def test_exceptions_from_outside_end_no_function() -> None:
    """They come wherever a thread is: in a call, between two, waiting for work, at its end."""
    done = scores("""
        import ctypes, threading, time
        from guerdon import Dispatcher, Limit, Status, StatefulReward, reward
        from guerdon._lanes.lane_threads import LaneThread

        class Stop(BaseException):
            "As libraries for timeouts raise it."

        class Counts(StatefulReward):
            def setup(self):
                time.sleep(0.001)

            def score(self, completion):
                return float(completion)

        def keep_interrupting():
            while not stop.wait(0.0005):
                for thread in threading.enumerate():
                    if isinstance(thread, LaneThread) and thread.ident is not None:
                        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Stop))

        texts = [str(index) for index in range(200)]
        counts = reward(Counts(), lane="thread", limit=Limit(concurrency=2))
        with Dispatcher([counts], max_failure_rate=1.0) as dispatcher:
            dispatcher.score(completions=texts)
            stop = threading.Event()
            injector = threading.Thread(target=keep_interrupting)
            injector.start()
            failed, end = 0, time.monotonic() + 1.5
            while time.monotonic() < end or not failed:
                result = dispatcher.score(completions=texts)
                assert set(result.status.ravel().tolist()) <= {Status.OK, Status.ERROR}
                failed += int((result.status == Status.ERROR).sum())
            stop.set()
            injector.join()
            for _ in range(3):  # an exception may be on its way still
                result = dispatcher.score(completions=texts)
            assert result.rewards[:, 0, 0].tolist() == list(range(200)), result.failures()
        print("scored")
    """)
    assert "ended a thread of the thread lane" in done.stderr


def test_threads_that_run_out_of_memory_are_replaced() -> None:
    """Allocations fail for real, right after a call has returned."""
    pytest.importorskip("_testcapi")
    scores("""
        import _testcapi
        from guerdon import Dispatcher, Status, reward

        failing = 0

        def function(completion: str) -> object:
            if completion == "x":
                _testcapi.set_nomemory(failing, failing + 3)
            return {"score": 1.0, "why": completion}

        with Dispatcher([reward(function, lane="thread", timeout=20)], max_failure_rate=1.0) as dispatcher:
            for failing in range(40):
                result = dispatcher.score(completions=["a", "x", "b"])
                _testcapi.remove_mem_hooks()
                assert set(result.status.ravel().tolist()) <= {Status.OK, Status.ERROR}, (failing, result.status)
            result = dispatcher.score(completions=["a", "b", "c"])
            assert (result.status == Status.OK).all(), result.failures()
        print("scored")
    """)


def test_a_thread_that_cant_be_started_fails_its_calls_and_the_next_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    start, errors = LaneThread.start, [RuntimeError("can't start new thread"), MemoryError()]

    def refuse(self: LaneThread) -> None:
        if errors:
            raise errors.pop()
        start(self)

    monkeypatch.setattr(LaneThread, "start", refuse)
    with Dispatcher([threaded(lambda completion: 1.0)], max_failure_rate=1.0) as dispatcher:
        for _ in range(2):
            [failure] = dispatcher.score(completions=["a"]).failures()
            assert "no thread could be started" in failure.reason
        assert dispatcher.score(completions=["a"]).rewards.item() == 1.0


def test_one_thread_runs_all_if_no_other_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    start, tries = LaneThread.start, list[str]()

    def refuse(self: LaneThread) -> None:
        tries.append(self.name)
        if len(tries) > 1:
            raise RuntimeError("can't start new thread")
        start(self)

    def slow(completion: str) -> float:
        time.sleep(0.05)
        return float(completion)

    monkeypatch.setattr(LaneThread, "start", refuse)
    assert scored(threaded(slow), 16).rewards[:, 0, 0].tolist() == list(range(16))
    assert len(tries) < 50

"""The process lane under functions that hang, die and misbehave: rows 1 to 4
and 9 of docs/internals/promises.md."""

from __future__ import annotations

import functools
import os
import threading
import time

import pytest

from guerdon import Dispatcher, Status, reward
from tests.stress import failing_functions, limited_functions, plain_functions
from tests.stress.harness import wait_for


@pytest.mark.fault(
    "three samples never return: an endless loop, a regular expression that holds the GIL, a sympy comparison",
    sees="three `timeout` cells after their timeout, with function, sample and stack; the other 253 are scored, the next batch runs at full speed",
)
def test_row_1_three_hangs_of_256_cost_their_timeout_once() -> None:
    # A second of the grace is for saying where they stand.
    function = reward(failing_functions.obey, timeout=5.0, grace=4.0, max_failure_rate=0.5)
    texts = [f"give:{index}" for index in range(256)]
    hung = {17: "loop:", 101: "regex:", 200: "sympy:"}
    with Dispatcher([function], workers=4) as dispatcher:
        dispatcher.score(completions=texts, num_generations=1)
        for index, text in hung.items():
            texts[index] = text
        start = time.monotonic()
        result = dispatcher.score(completions=texts, num_generations=1)
        took = time.monotonic() - start
        start = time.monotonic()
        again = dispatcher.score(completions=[f"give:{index}" for index in range(256)], num_generations=1)
        assert time.monotonic() - start < 5  # no hang's timeout is in it
    assert again.status.max() == Status.OK
    assert 5.0 <= took < 14.5, f"one after another it is 15 s and a grace or two, together 5 s and one: {took}"
    failures = result.failures()
    assert [(f.sample, f.function, f.status) for f in failures] == [(i, "obey", Status.TIMEOUT) for i in hung]
    assert all("5 s; last seen in " in failure.reason for failure in failures)
    assert "last seen in obey (" in failures[0].reason
    assert "failing_functions.py:" in failures[0].reason
    assert "in obey" in (failures[0].traceback or "")
    kept = [index for index in range(256) if index not in hung]
    assert result.rewards[kept, 0, 0].tolist() == [float(index) for index in kept]


@pytest.mark.fault(
    "a hundred hangs in a row",
    sees="a hundred `timeout` cells; at most one kill and one new worker each, and all workers are back at once",
)
@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.soak)])
def test_row_2_a_hundred_hangs_cost_one_worker_each_at_most(count: int) -> None:
    # Long for what gives its number at once, among workers that take all cores.
    function = reward(failing_functions.obey, timeout=1.0, grace=0.5, max_failure_rate=1.0)
    texts = [text for index in range(count) for text in (f"give:{index}", "loop:", f"give:{index}")]
    with Dispatcher([function], workers=4) as dispatcher:
        dispatcher.score(completions=["give:1"])
        result = dispatcher.score(completions=texts, num_generations=1)
        # 200 ms are the aim, which benches/python/bench_timeout_kill.py measures
        wait_for(lambda: len(dispatcher.worker_pids()) >= 4, "all workers are back")
        stats = dispatcher.stats()
        assert stats["kills"] <= count
        assert stats["worker_restarts"] <= count
    for index in range(count):
        assert result.rewards[3 * index, 0, 0] == result.rewards[3 * index + 2, 0, 0] == index
        assert result.status[3 * index + 1, 0, 0] == Status.TIMEOUT
    assert result.attempts.max() == 1


@pytest.mark.fault(
    "a function sets SIGALRM timers of its own, also when scored from a thread",
    sees="nothing: it runs on the main thread of its worker, so `math_verify` and `accuracy_reward` work unmodified",
)
def test_row_3_math_verify_works_unmodified() -> None:
    rewards = pytest.importorskip("trl.rewards")
    accuracy = reward(rewards.accuracy_reward, rowwise=True, timeout=120)
    plain = reward(failing_functions.parse_math, timeout=120)
    found: list[list[list[float]]] = []

    def score() -> None:
        result = dispatcher.score(
            completions=[[{"role": "assistant", "content": rf"so \boxed{{{n}}}"}] for n in (3, 4)],
            prompts=[[{"role": "user", "content": "what?"}]] * 2,
            solution=[r"\boxed{3}"] * 2,
            answer=["$3$"] * 2,
            num_generations=1,
        )
        assert not result.failures()
        found.append(result.rewards[:, 0].tolist())

    with Dispatcher([accuracy, plain], workers=2) as dispatcher:
        score()
        thread = threading.Thread(target=score)
        thread.start()
        thread.join()
    assert found == [[[1.0, 1.0], [0.0, 0.0]]] * 2


@pytest.mark.fault(
    "C code holds the GIL of a worker",
    sees="the trainer and its loops go on",
)
def test_row_4_the_trainer_goes_on_while_a_regex_holds_a_worker() -> None:
    function = reward(failing_functions.obey, timeout=5.0)
    with Dispatcher([function], workers=1) as dispatcher:
        dispatcher.score(completions=["give:1"])
        pending = dispatcher.submit(completions=["regex:"], num_generations=1)
        steps = 0
        while not pending.done:
            time.sleep(0.005)
            steps += 1
        assert pending.result().status[0, 0, 0] == Status.TIMEOUT
    assert steps > 50, "a thousand would fit; with the lock held there is one"


@pytest.mark.fault(
    "a lambda, closure, partial, bound method or callable object is to run in another process",
    sees="it runs there",
)
def test_row_9_functions_of_any_kind_run_in_workers() -> None:
    offset = 2.0
    functions = [
        reward(lambda completion: float(completion) + 0.5, name="lambda", lane="process"),
        reward(lambda completion: float(completion) + offset, name="closure", lane="process"),
        reward(functools.partial(_scaled, scale=3.0), name="partial", lane="process"),
        reward(failing_functions.ScaledReward(4.0).plus_one, name="bound", lane="process"),
        reward(failing_functions.ScaledReward(5.0), name="object", lane="process"),
        reward(failing_functions.pooled, name="pool", timeout=100),
    ]
    with Dispatcher(functions, workers=2) as dispatcher:
        result = dispatcher.score(completions=["2", "3"], num_generations=1)
    assert not result.failures()
    assert result.rewards[0, 0].tolist() == [2.5, 4.0, 6.0, 9.0, 10.0, 1.0]


def test_a_worker_is_a_clean_main_thread() -> None:
    read, write = os.pipe()
    os.set_inheritable(write, True)  # as many a library leaves its descriptors
    with Dispatcher([reward(failing_functions.environment)], workers=1) as dispatcher:
        result = dispatcher.score(completions=["a"], num_generations=1)
    os.close(read)
    os.close(write)
    seen = result.extra
    assert result.rewards[0, 0, 0] == 1.0
    assert seen["environment/main"] == [True]
    assert seen["environment/masked"] == [[]]
    assert seen["environment/stdin"] == [""]
    assert seen["environment/worker_modules"] == [[]]
    assert seen["environment/guerdon"] == [False]
    kinds = [target.split(":")[0] for target in seen["environment/fds"][0]]
    # Standard streams and the mark between functions, its socket, its stack, and what stands where
    # its pages' descriptors were: nothing of its forker's or the trainer's. libffi (for ctypes)
    # keeps its own file open in newer versions.
    expected = ["/dev/null", "/dev/null", "/dev/null", "/memfd", "pipe", "pipe", "pipe", "socket"]
    assert sorted(kind for kind in kinds if not kind.startswith("/proc") and "libffi.so" not in kind) == expected


def test_a_failure_imports_nothing_in_its_worker() -> None:
    """What tracebacks need takes tens of milliseconds, which each new worker would spend."""
    with Dispatcher([reward(plain_functions.look_or_fail, max_failure_rate=1.0)], workers=1) as dispatcher:
        before, failed, after = (
            dispatcher.score(completions=[text], num_generations=1) for text in ("look", "fail", "look")
        )
    assert failed.status.ravel().tolist() == [Status.ERROR]
    assert before.extra["look_or_fail/modules"] == after.extra["look_or_fail/modules"]


def test_the_heavy_and_the_light_share_the_workers() -> None:
    """What waits behind a slow call goes to others: four of 1 s in one frame are spread over two
    workers."""
    with Dispatcher([reward(limited_functions.spin)], workers=2) as dispatcher:
        dispatcher.score(completions=["0"] * 64)
        result = dispatcher.score(completions=["1"] * 4 + ["0"] * 60, num_generations=1)
    assert result.status.max() == Status.OK
    assert len(set(result.extra["spin/pid"][:4])) == 2


def _scaled(completion: str, scale: float) -> float:
    return scale * float(completion)

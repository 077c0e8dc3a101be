"""The process lane under functions that hang, die and misbehave: rows 1 to 9 of
docs/internals/promises.md."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from guerdon import Dispatcher, Status, reward
from tests.stress import failing_functions, plain_functions
from tests.stress.harness import wait_for


def _descendants() -> list[str]:
    return [str(process) for process in psutil.Process().children(recursive=True)]


def _runs(process: psutil.Process) -> bool:
    """Whether it lives: an orphan that has ended may wait a while for init to reap it."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _score(dispatcher: Dispatcher, texts: list[str]) -> tuple[list[float], list[Status]]:
    result = dispatcher.score(completions=texts, num_generations=1)
    return result.rewards[:, 0, 0].tolist(), [Status(status) for status in result.status[:, 0, 0]]


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
@pytest.mark.parametrize("count", [40, pytest.param(100, marks=pytest.mark.soak)])
def test_row_2_a_hundred_hangs_cost_one_worker_each_at_most(count: int) -> None:
    # Long for what gives its number at once, among workers that take all cores.
    function = reward(failing_functions.obey, timeout=1.0, grace=0.5, max_failure_rate=1.0)
    texts = [text for index in range(count) for text in (f"give:{index}", "loop:", f"give:{index}")]
    with Dispatcher([function], workers=4) as dispatcher:
        _score(dispatcher, ["give:1"])
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
@pytest.mark.parametrize("from_thread", [False, True])
def test_row_3_math_verify_works_unmodified(from_thread: bool) -> None:
    rewards = pytest.importorskip("trl.rewards")
    accuracy = reward(rewards.accuracy_reward, rowwise=True, timeout=120)
    plain = reward(failing_functions.parse_math, timeout=120)
    found: list[list[float]] = []

    def score() -> None:
        with Dispatcher([accuracy, plain], workers=2) as dispatcher:
            result = dispatcher.score(
                completions=[[{"role": "assistant", "content": rf"so \boxed{{{n}}}"}] for n in (3, 4)],
                prompts=[[{"role": "user", "content": "what?"}]] * 2,
                solution=[r"\boxed{3}"] * 2,
                answer=["$3$"] * 2,
                num_generations=1,
            )
            found.append(result.rewards[:, 0, 0].tolist())
            assert not result.failures() or all(f.function == "parse_math" for f in result.failures())

    def plainly() -> None:
        with Dispatcher([plain], workers=1) as dispatcher:
            result = dispatcher.score(completions=["$3$", "$4$"], answer=["$3$"] * 2, num_generations=1)
            assert not result.failures()
            found.append(result.rewards[:, 0, 0].tolist())

    for run in (score, plainly):
        if from_thread:
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
        else:
            run()
    assert found == [[1.0, 0.0]] * 2


@pytest.mark.fault(
    "C code holds the GIL of a worker",
    sees="the trainer and its loops go on",
)
def test_row_4_the_trainer_goes_on_while_a_regex_holds_a_worker() -> None:
    function = reward(failing_functions.obey, timeout=5.0)
    with Dispatcher([function], workers=1) as dispatcher:
        _score(dispatcher, ["give:1"])
        pending = dispatcher.submit(completions=["regex:"], num_generations=1)
        steps = 0
        while not pending.done:
            time.sleep(0.005)
            steps += 1
        assert pending.result().status[0, 0, 0] == Status.TIMEOUT
    assert steps > 50, "a thousand would fit; with the lock held there is one"


@pytest.mark.fault(
    "far more calls wait than the timeout would allow to run",
    sees="nothing: the timeout begins when a call starts",
)
@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.soak)])
def test_row_5_queueing_is_not_running(count: int) -> None:
    function = reward(failing_functions.doze, timeout=5.0)
    assert count / 4 * failing_functions.DOZE_S > 1.4 * 5.0
    with Dispatcher([function], workers=4) as dispatcher:
        values, statuses = _score(dispatcher, [str(index) for index in range(count)])
    assert set(statuses) == {Status.OK}
    assert values == [float(index) for index in range(count)]


@pytest.mark.fault(
    "a function raises, raises SystemExit or KeyboardInterrupt, calls `os._exit`, reads a null pointer, runs out of memory",
    sees="each in its own cell: `error` with its traceback or `crashed` with the exit status or signal; siblings are scored",
)
def test_row_6_each_failure_stays_in_its_cell() -> None:
    functions = [
        reward(failing_functions.obey, timeout=20),
        reward(failing_functions.take_memory, timeout=60, memory_limit="1GiB"),
    ]
    texts = [f"give:{index}" for index in range(512)]
    bad = {
        20: ("raise:no luck", Status.ERROR, "ValueError: no luck"),
        21: ("leave:4", Status.ERROR, "SystemExit: 4"),
        100: ("interrupt:", Status.ERROR, "KeyboardInterrupt"),
        300: ("exit:1", Status.CRASHED, "exited with status 1"),
        301: ("null:", Status.CRASHED, "was killed by SIGSEGV"),
    }
    for index, (text, *_) in bad.items():
        texts[index] = text
    with Dispatcher(functions[:1], workers=2) as dispatcher:
        result = dispatcher.score(completions=texts, num_generations=1)
    assert {f.sample: f.status for f in result.failures()} == {index: status for index, (_, status, _) in bad.items()}
    for failure in result.failures():
        assert bad[failure.sample][2] in failure.reason
    good = [index for index in range(512) if index not in bad]
    assert result.rewards[good, 0, 0].tolist() == [float(index) for index in good]
    with Dispatcher(functions[1:], workers=1) as dispatcher:
        result = dispatcher.score(completions=["1", "much", "3"], num_generations=1)
    (failure,) = result.failures()
    assert failure.status == Status.ERROR
    assert failure.reason == "MemoryError (memory_limit of 1 GiB)"
    assert result.rewards[[0, 2], 0, 0].tolist() == [1.0, 3.0]


@pytest.mark.fault(
    "dispatchers are started and closed over and over",
    sees="no process and no descriptor is left",
)
@pytest.mark.parametrize("count", [10, pytest.param(200, marks=pytest.mark.soak)])
def test_row_7_starting_and_closing_leaves_nothing(count: int) -> None:
    with Dispatcher([reward(failing_functions.obey)], workers=2) as dispatcher:
        _score(dispatcher, ["give:1"])
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(count):
        with Dispatcher([reward(failing_functions.obey)], workers=2) as dispatcher:
            _score(dispatcher, ["give:1"])
    wait_for(lambda: len(os.listdir("/proc/self/fd")) <= before, "every descriptor is closed")
    wait_for(lambda: not _descendants(), "every process ends")


@pytest.mark.fault(
    "the trainer is killed (also while a fork of its own lives on), or interrupted by Ctrl-C, in mid-batch",
    sees="zygote and workers are gone within two seconds",
)
@pytest.mark.parametrize("how", ["kill", "kill with a fork that lives on", "interrupt"])
def test_row_7_nothing_outlives_the_trainer(how: str, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"""
import os, sys, time
from guerdon import Dispatcher, reward
from tests.stress import failing_functions
dispatcher = Dispatcher([reward(failing_functions.obey, timeout=600)], workers=2)
dispatcher.score(completions=["give:1"], num_generations=1)
pending = dispatcher.submit(completions=["loop:", "regex:"], num_generations=1)
if {how!r} == "kill with a fork that lives on" and os.fork() == 0:
    time.sleep(600)
time.sleep(0.3)
import psutil
found = [child.pid for child in psutil.Process().children(recursive=True)]
with open({str(pids)!r} + ".new", "w") as file:
    file.write(" ".join(map(str, found)))
os.rename({str(pids)!r} + ".new", {str(pids)!r})
pending.result()
"""
    trainer = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    wait_for(lambda: pids.exists() or trainer.poll() is not None, "the trainer says what it has started")
    assert trainer.poll() is None
    processes = []
    for pid in pids.read_text().split():
        with_name = psutil.Process(int(pid))
        if "_zygote.py" in " ".join(with_name.cmdline()):
            processes.append(with_name)
        else:
            fork = with_name
    assert len(processes) >= 3
    trainer.send_signal(signal.SIGINT if how == "interrupt" else signal.SIGKILL)
    _, left = psutil.wait_procs(processes, timeout=40)
    trainer.wait(40)
    if how == "kill with a fork that lives on":
        fork.kill()
    assert not [process for process in left if _runs(process)]


@pytest.mark.fault(
    "a lambda, closure, partial, bound method or callable object is to run in another process",
    sees="it runs there",
)
def test_row_9_functions_of_any_kind_run_in_workers(tmp_path: Path) -> None:
    offset = 2.0
    functions = [
        reward(lambda completion: float(completion) + 0.5, name="lambda", lane="process"),
        reward(lambda completion: float(completion) + offset, name="closure", lane="process"),
        reward(functools.partial(_scaled, scale=3.0), name="partial", lane="process"),
        reward(failing_functions.Scaled(4.0).plus_one, name="bound", lane="process"),
        reward(failing_functions.Scaled(5.0), name="object", lane="process"),
        reward(failing_functions.pooled, name="pool", timeout=100),
    ]
    with Dispatcher(functions, workers=2) as dispatcher:
        result = dispatcher.score(completions=["2", "3"], num_generations=1)
    assert not result.failures()
    assert result.rewards[0, 0].tolist() == [2.5, 4.0, 6.0, 9.0, 10.0, 1.0]


@pytest.mark.fault(
    "a function hangs inside a process pool that it started",
    sees="`timeout`; the pool is killed with its worker",
)
def test_row_9_a_hung_pool_goes_with_its_worker(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    # The pool is there by then, and what it says.
    with Dispatcher([reward(failing_functions.pooled_for_ever, timeout=8.0, grace=0.1)], workers=1) as dispatcher:
        _, (status,) = _score(dispatcher, [str(note)])
        assert status == Status.TIMEOUT
        pids = [int(pid) for pid in note.read_text().split()]
        wait_for(lambda: not any(map(psutil.pid_exists, pids)), "the pool ends")


def test_row_9_functions_of_the_main_module_may_start_pools(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        """
from concurrent.futures import ProcessPoolExecutor
from guerdon import Dispatcher, reward

def square(number):
    return number * number

def pooled(completion):
    with ProcessPoolExecutor(2) as pool:
        return float(sum(pool.map(square, range(int(completion)))))

if __name__ == "__main__":
    with Dispatcher([reward(pooled, timeout=60)], workers=1) as dispatcher:
        print(dispatcher.score(completions=["4"], num_generations=1).rewards[0, 0, 0])
"""
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=250, check=False)
    assert done.stdout.strip() == "14.0", done.stderr


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
    with Dispatcher([reward(failing_functions.spin)], workers=2) as dispatcher:
        _score(dispatcher, ["0"] * 64)
        result = dispatcher.score(completions=["1"] * 4 + ["0"] * 60, num_generations=1)
    assert result.status.max() == Status.OK
    assert len(set(result.extra["spin/pid"][:4])) == 2


def _scaled(completion: str, scale: float) -> float:
    return scale * float(completion)

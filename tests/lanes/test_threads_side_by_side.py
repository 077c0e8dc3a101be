"""Threads that use one engine at the same moment: what a free-threaded Python allows, and what the
GIL hides."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from guerdon import ClosedError, DataError, Dispatcher, GuerdonError, GuerdonWarning, Status, group_reward, reward
from guerdon._lanes import gil
from guerdon._system.gil import has_gil
from tests.clock import eventually
from tests.lanes.lane_helpers import looped, threaded
from tests.monitor import reading

GROUP = 4
# Elsewhere event loops turn the GIL on.
SAFE_LOOPS = not sysconfig.get_config_var("Py_GIL_DISABLED") or gil.is_mended()


def forms(short: float, soak: float, timeout: int) -> list[Any]:
    """Sizes of a test: the short one is for Pythons without the GIL."""
    free = pytest.mark.skipif(has_gil(), reason="with the GIL one thread runs at a time")
    return [
        pytest.param(short, id="short", marks=free),
        pytest.param(soak, id="soak", marks=[pytest.mark.soak, pytest.mark.timeout(timeout)]),
    ]


def number(completion: str) -> float:
    return float(completion)


async def number_later(completion: str) -> float:
    return float(completion)


@group_reward(lane="thread")
def group_numbers(completions: list[str], extra: list[Any]) -> list[float]:
    return [float(completion) + 0.0 * one["value"] for completion, one in zip(completions, extra, strict=True)]


def batch_numbers(completions: list[str], **columns: Any) -> list[float]:
    return [float(completion) for completion in completions]


def late(completion: str) -> float:
    time.sleep(0.3 if random.random() < 0.002 else 0.0)
    return float(completion)


class Side:
    """Runs functions over and over, each on a thread, until `seconds` are over or one raises."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._raised: list[BaseException] = []

    def run(self, *works: Callable[[], object]) -> None:
        threads = [threading.Thread(target=self._repeat, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._raised:
            raise self._raised[0]

    def _repeat(self, work: Callable[[], object]) -> None:
        try:
            while time.monotonic() < self._end and not self._raised:
                work()
        except BaseException as error:
            self._raised.append(error)


@pytest.mark.filterwarnings("ignore:reward function 'late'")
@pytest.mark.parametrize("seconds", forms(1.5, 600.0, timeout=900))
def test_batches_of_lists_that_change_have_their_own_values(seconds: float) -> None:
    """While others are submitted, streamed, abandoned, dumped and collected."""
    texts = [str(index) for index in range(64)]
    extras: list[Any] = [{"value": index} for index in range(64)]

    def change() -> None:
        for _ in range(50):
            texts[random.randrange(32)] = str(random.randrange(1000))
            extras[random.randrange(32)]["value"] = random.random()
            if random.random() < 0.1:
                texts.append(texts.pop(random.randrange(32)))
                extras.append(extras.pop())
        time.sleep(0.0002)

    second = looped(number_later, name="second") if SAFE_LOOPS else threaded(number, name="second")
    functions = [threaded(number, name="first"), second, group_numbers]
    functions.append(threaded(late, name="late", timeout=0.2, on_failure="abstain"))

    def score(made: Dispatcher) -> None:
        try:
            result = made.score(completions=texts, extra=extras, num_generations=GROUP)
        except DataError:  # one list was shorter than the other
            return
        for function in range(3):
            assert (result.status[:, :, function] == Status.OK).all(), result.failures()[:3]
            assert (result.rewards[:, :, function] == result.rewards[:, :, 0]).all()

    def stream(made: Dispatcher) -> None:
        """Several threads add, and one ends the batch as soon as its places are taken."""
        batch = made.stream(num_generations=GROUP)
        count = 8 * GROUP

        def add(first: int) -> None:
            try:
                for index in range(first, count, GROUP):
                    batch.add(completions=[str(index)], indices=[index])
            except ClosedError:  # the whole groups before it were all
                return

        def finish() -> None:
            while batch.num_groups < 2:
                time.sleep(0)
            while batch.open:
                with suppress(DataError):  # a group lacks samples
                    batch.finish()

        threads = [threading.Thread(target=add, args=(first,)) for first in range(GROUP)]
        threads.append(threading.Thread(target=finish))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        result = batch.result(timeout=60)
        assert (result.status == Status.OK).all(), result.failures()[:3]
        samples = result.rewards.reshape(-1, len(streamed))
        assert (samples == [[index] for index in range(len(samples))]).all()

    pause = threading.Event().wait
    streamed = [*functions[:2], threaded(batch_numbers, name="whole")]
    with (
        Dispatcher(functions, max_failure_rate=1.0) as whole,
        Dispatcher(streamed) as streaming,
    ):
        whole.score(completions=["1"] * GROUP, extra=[1] * GROUP, num_generations=GROUP)
        Side(seconds).run(
            change,
            lambda: score(whole),
            lambda: score(whole),
            lambda: stream(streaming),
            lambda: (whole.dump(), streaming.dump(), pause(0.01)),
            lambda: (gc.collect(), pause(0.05)),
        )


def test_a_function_that_blocks_its_loop_is_named_without_the_gil(monkeypatch: pytest.MonkeyPatch) -> None:
    async def blocks(completion: str) -> float:
        time.sleep(1.5)
        return 1.0

    with Dispatcher([looped(blocks, name="blocks")]) as made:
        monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
        with pytest.warns(GuerdonWarning, match="'blocks'.*blocks its event loop.* Its calls"):
            made.score(completions=["1"])


EXIT = """
import sys, threading, time
from guerdon import Dispatcher, reward

def busy(completion):
    end = time.monotonic() + float(completion)
    while time.monotonic() < end:
        pass
    return end  # equal rewards would be warned of

async def waits(completion):
    return busy(completion)

functions = [reward(busy, lane="thread", name="busy")]
if "loops" in sys.argv:
    functions.append(reward(waits, name="waits"))
dispatcher = Dispatcher(functions, max_failure_rate=1.0)
texts = ["0"] * 100 + ["0.001"] * 2000

def score():
    while True:
        try:
            dispatcher.score(completions=texts)
        except Exception:
            return

for _ in range(3):
    threading.Thread(target=score, daemon=True).start()
time.sleep(float(sys.argv[1]))
sys.exit(0)
"""


@pytest.mark.parametrize("count", forms(2, 100, timeout=1800))
def test_the_interpreter_exits_while_threads_compute(count: int, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(EXIT)
    for _ in range(count):
        command = [sys.executable, str(script), str(random.uniform(0.0, 1.0)), *["loops"] * SAFE_LOOPS]
        done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python can't do without the GIL")
@pytest.mark.parametrize(
    "needs",
    [
        "reward(later)",
        "reward(later, {})",
        "reward(sync, {}, pure=True)",
        "reward(sync, {}, node='any')",
        "reward(sync)",
    ],
)
def test_the_gil_is_turned_on_for_functions_that_need_it(needs: str) -> None:
    """Though it seems to be on, for the moment in which an extension is loaded."""
    code = """
import sys
from guerdon import Dispatcher, reward
enabled = sys._is_gil_enabled
def sync(completion):
    return float(completion)
async def later(completion):
    return float(completion)
with Dispatcher([reward(sync, lane="thread")]) as made:
    made.score(completions=["1", "2"])
print(enabled())
for _ in range(2):
    sys._is_gil_enabled = lambda: True
    made = Dispatcher([NEEDS])
    sys._is_gil_enabled = enabled
    with made:
        made.score(completions=["1", "2"])
print(enabled())
""".replace("NEEDS", needs.format('lane="thread"'))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False, env=environment)
    needed = not gil.is_mended()
    assert (done.returncode, done.stdout.split()) == (0, ["False", str(needed)]), done.stderr
    assert (done.stderr.count("gh-153809"), done.stderr.count("Warning")) == (int(needed), int(needed))


@pytest.mark.parametrize(
    ("version", "mended"),
    [
        ((3, 14, 6, "final", 0), False),
        ((3, 14, 7, "final", 0), True),
        ((3, 15, 0, "beta", 1), False),
        ((3, 15, 0, "final", 0), True),
        ((3, 16, 0, "alpha", 1), True),
    ],
)
def test_versions_before_the_fixes_need_the_gil(version: tuple[int | str, ...], mended: bool) -> None:
    assert gil.is_mended(version) == mended


def test_functions_that_need_a_gil_that_is_kept_off_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gil, "_SAFE", (3, 11))
    monkeypatch.setattr(gil, "is_mended", lambda: False)
    monkeypatch.setattr(gil, "has_gil", lambda: False)
    for function in (looped(number_later), threaded(number_later), threaded(number, pure=True), reward(number)):
        with pytest.raises(GuerdonError, match="gh-153809"):
            Dispatcher([function])
    with pytest.raises(GuerdonError, match="gh-146452"):
        Dispatcher([threaded(number)], journal=tmp_path)
    with (
        pytest.warns(GuerdonWarning, match="returned an awaitable"),
        Dispatcher([threaded(lambda completion: number_later(completion))], max_failure_rate=1.0) as made,
    ):
        result = made.score(completions=["1", "2"])
    assert (result.status == Status.ERROR).all()
    assert "gh-153809" in result.failures()[0].reason


def test_stacks_are_not_read_without_the_gil(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    async def waits(completion: str) -> float:
        await asyncio.to_thread(go.wait)
        return 1.0

    with Dispatcher([threaded(lambda completion: float(go.wait()), name="stands"), looped(waits)]) as made:
        pending = made.submit(completions=["a"])
        eventually(lambda: len(made.dump()) == 2)
        monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
        unreadable = "not readable on free-threaded Python"
        assert [call.no_stack for call in made.dump()] == [unreadable] * 2
        for call in reading.state(made)["in_flight"]:
            # The machine may be too busy for an answer.
            assert call["no_stack"] in (unreadable, "Python did not answer in time")
        go.set()
        assert (pending.result().status == Status.OK).all()


@pytest.mark.skipif(has_gil(), reason="without the GIL a thread inherits the context of its starter")
def test_threads_of_an_engine_inherit_no_filters_of_warnings() -> None:
    code = """
import time, warnings
from guerdon import Dispatcher, reward
with Dispatcher([reward(lambda text: time.sleep(float(text)) or 1.0, lane="thread", name="f", timeout=0.2)]) as made:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.score(completions=["0"])
    made.score(completions=["0"] * 9 + ["1"])
    time.sleep(0.5)
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_CONTEXT_AWARE_WARNINGS"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "past its timeout of 0.2 s" in done.stderr

"""Startup crashes: processes that die while loading, in setup(), or as the loaded zygote."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from guerdon import Dispatcher, reward
from tests.stress import failing_functions, startup_crashes
from tests.stress.chaos_process import tree

TEXTS = [str(index) for index in range(64)]


@pytest.mark.fault(
    "the worker is killed in `setup()`, once",
    sees="nothing but a second attempt on one sample: the setup is tried once more on a fresh worker, like a call whose worker died",
)
def test_a_worker_lost_in_setup_costs_one_more_attempt(tmp_path: Path) -> None:
    with Dispatcher([reward(startup_crashes.DiesOnce(tmp_path / "note"))], workers=1) as dispatcher:
        result = dispatcher.score(completions=TEXTS)
    assert result.rewards.ravel().tolist() == [float(text) for text in TEXTS]
    assert sorted(result.attempts.ravel().tolist()) == [1] * 63 + [2]


@pytest.mark.fault("the zygote is killed while it loads the functions, once", sees="nothing: another one loads them")
def test_a_loader_lost_while_loading_is_replaced(tmp_path: Path) -> None:
    dies_once = reward(startup_crashes.DiesOnceLoading(tmp_path / "note"), name="dies_once")
    with Dispatcher([dies_once], workers=2) as dispatcher:
        result = dispatcher.score(completions=TEXTS)
        _loader()
    assert result.rewards.ravel().tolist() == [float(text) for text in TEXTS]
    assert result.attempts.max() == 1


@pytest.mark.fault("the loaded zygote is killed between two batches", sees="nothing, and it leaves no zombie")
def test_a_lost_loader_is_replaced_and_waited_for() -> None:
    with Dispatcher([reward(failing_functions.Scaled(2.0), name="scaled")], workers=2) as dispatcher:
        for _ in range(3):
            assert dispatcher.score(completions=TEXTS).rewards.ravel().tolist() == [2 * float(text) for text in TEXTS]
            os.kill(_loader(), signal.SIGKILL)
        dispatcher.score(completions=TEXTS)
        (stem,) = tree(os.getpid()).stem
        deadline = time.monotonic() + 60
        while zombies := [
            p for p in psutil.Process(stem).children(recursive=True) if p.status() == psutil.STATUS_ZOMBIE
        ]:
            assert time.monotonic() < deadline, zombies
            time.sleep(0.02)


def _loader() -> int:
    """The loaded zygote, once it has forked a worker: they start as work comes."""
    deadline = time.monotonic() + 60
    while True:
        _, loaders, workers = tree(os.getpid())
        if len(loaders) == 1 and workers:
            return loaders[0]
        assert time.monotonic() < deadline, (loaders, workers)
        time.sleep(0.02)

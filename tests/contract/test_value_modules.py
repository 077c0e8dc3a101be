"""Modules that the values of columns need: their import takes the time of no call."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from guerdon import Dispatcher, Status, reward

# Of a module that imports nothing: a worker loads it within any `setup_timeout`.
from tests.stress.plain_functions import number_of

# Of a module whose class is in a column: what it does where a worker or its loader imports it.
MODULE = """
import os, sys, threading, time
if "_guerdon_worker" in sys.modules:
    with open({notes!r}, "a") as notes:
        notes.write(f"{{os.getpid()}}\\n")
    {harm}
class Value:
    number = 1.0
"""


Made = Callable[[str], tuple[Any, Path]]


@pytest.fixture
def value_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Made:
    """Makes a module that does so much harm; a value of it, and who has imported it."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(harm: str) -> tuple[Any, Path]:
        notes = tmp_path / "notes"
        name = "values_of_" + "".join(char for char in request.node.name if char.isalnum())
        (tmp_path / f"{name}.py").write_text(MODULE.format(notes=str(notes), harm=harm))
        return importlib.import_module(name).Value(), notes

    return make


def test_one_process_imports_them_for_all_workers(value_of: Made) -> None:
    value, notes = value_of("time.sleep(0.8)")
    with Dispatcher([reward(number_of, timeout=0.4)], workers=2) as made:
        result = made.score(completions=["c"] * 64, value=[value] * 64)
        again = made.score(completions=["c"] * 64, value=[value] * 64)
    assert result.rewards.mean() == again.rewards.mean() == 1.0, result.failures()
    assert result.attempts.max() == 1
    assert len(notes.read_text().split()) == 1


def test_workers_that_live_already_import_them_in_the_time_of_no_call(value_of: Made) -> None:
    value, _ = value_of("time.sleep(0.8)")
    with Dispatcher([reward(number_of, timeout=0.4)], workers=2) as made:
        assert made.score(completions=["c"], value=[SimpleNamespace(number=2.0)]).rewards.item() == 2.0
        result = made.score(completions=["c"] * 64, value=[value] * 64)
    assert result.rewards.mean() == 1.0, result.failures()
    assert result.attempts.max() == 1


def test_calls_with_a_worker_each_do_not_import_them_each(value_of: Made) -> None:
    value, notes = value_of("time.sleep(0.2)")
    with Dispatcher([reward(number_of, isolation="call")], workers=2) as made:
        assert made.score(completions=["c"] * 2, value=[SimpleNamespace(number=2.0)] * 2).rewards.mean() == 2.0
        result = made.score(completions=["c"] * 24, value=[value] * 24)
    assert result.rewards.mean() == 1.0, result.failures()
    # Workers that were forked before the values came, a try, and the loader.
    assert len(notes.read_text().split()) < 12


def test_workers_import_for_themselves_what_leaves_threads(value_of: Made, capfd: pytest.CaptureFixture[str]) -> None:
    value, notes = value_of("threading.Thread(target=threading.Event().wait, daemon=True).start()")
    with Dispatcher([reward(number_of, timeout=5)], workers=2) as made:
        result = made.score(completions=["c"] * 64, value=[value] * 64)
        loads = made.stats()["worker_loads"]
    assert result.rewards.mean() == 1.0, result.failures()
    assert loads == 0
    assert 2 <= len(notes.read_text().split()) <= 3
    assert "which values of columns need, left 1 thread" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("harm", "status", "reason"),
    [
        ("os._exit(3)", Status.ERROR, "the worker process exited with status 3 while it imported the modules of its"),
        ("time.sleep(600)", Status.ERROR, "were not imported within the setup_timeout of 1 s"),
        (
            "raise OSError('no disk')",
            Status.ERROR,
            "the arguments could not be unpickled in the worker: OSError: no disk",
        ),
    ],
    ids=["ends", "hangs", "raises"],
)
def test_an_import_that_fails_fails_the_calls(value_of: Made, harm: str, status: Status, reason: str) -> None:
    value, _ = value_of(harm)
    with Dispatcher([reward(number_of, setup_timeout=1)], workers=2, max_failure_rate=1.0) as made:
        result = made.score(completions=["c"] * 4, value=[value] * 4)
        later = made.score(completions=["c"] * 4, value=[SimpleNamespace(number=2.0)] * 4)
    assert later.rewards.mean() == 2.0, later.failures()
    assert {failure.status for failure in result.failures()} == {status}
    assert all(reason in failure.reason for failure in result.failures()), result.failures()[0].reason

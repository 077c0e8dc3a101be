"""Modules of reward functions that leave threads, devices, streams or signals when imported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from guerdon import Dispatcher, Status, reward
from tests.faults import fault
from tests.stress import careless_modules


def _twice(functions: list[object], workers: int = 2) -> dict[str, int]:
    """Scores, loses a worker, and scores again."""
    with Dispatcher(functions, workers=workers) as dispatcher:
        texts = ["a", "bc"] * 20
        assert dispatcher.score(completions=texts).rewards.sum() == 60
        died = dispatcher.score(completions=["die", "bc"])
        assert [failure.status for failure in died.failures()] == [Status.CRASHED]
        assert "exited with status 7" in died.failures()[0].reason
        assert dispatcher.score(completions=texts).rewards.sum() == 60
        return dispatcher.stats()


def _act(**options: float) -> object:
    return reward(careless_modules.act, max_failure_rate=1, **options)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("kind", "warned"),
    [
        fault(
            "a module starts threads when it is imported",
            sees="its functions run; one warning names the threads, and `stats()` counts the workers that load for themselves",
            of=("threads", ["2 threads (heartbeat-0, heartbeat-1)"]),
        ),
        fault(
            "a module makes a CUDA context when it is imported (a file in its place)",
            sees="its functions run in workers that load it for themselves; one warning names the device",
            of=("device", ["an accelerator in use ({device}0)", "torch.cuda.is_available()"]),
        ),
        fault(
            "a module replaces the standard streams by some whose `flush` raises",
            sees="nothing",
            of=("streams", []),
        ),
    ],
)
def test_row_33_threads_devices_and_streams(
    kind: str, warned: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    device = tmp_path / "nvidia-uvm"
    (tmp_path / "nvidia-uvm0").touch()
    monkeypatch.setenv("CARELESS", kind)
    monkeypatch.setenv("CARELESS_DEVICE", str(device))
    loads = _twice([_act()])["worker_loads"]
    assert loads >= 2 if warned else loads == 0
    warnings = [line for line in capfd.readouterr().err.splitlines() if "warning:" in line]
    assert len(warnings) == bool(warned)
    assert all(text.format(device=device) in warnings[0] for text in warned)


@pytest.mark.fault(
    "a module ignores SIGCHLD and blocks SIGURG when it is imported",
    sees="reasons and timeouts as ever; SIGCHLD is ignored in its workers",
)
def test_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARELESS", "signals")
    assert _twice([_act()])["worker_loads"] == 0
    with Dispatcher([_act(timeout=2.0, grace=40), reward(careless_modules.look)], workers=1) as dispatcher:
        result = dispatcher.score(completions=["hang", "a"])
        assert result.extra["look/child_signal_ignored"] == [1.0, 1.0]
        (failure,) = result.failures()
        assert failure.status == Status.TIMEOUT
        assert "time.sleep" in str(failure.traceback)  # by the signal, not killed after the grace


def test_workers_yield_to_the_trainer() -> None:
    with Dispatcher([reward(careless_modules.look)], workers=1) as dispatcher:
        extra = dispatcher.score(completions=["a"]).extra
    assert extra["look/nice"] == [min(19, os.getpriority(os.PRIO_PROCESS, 0) + 3)]
    assert extra["look/core"] == [0.0]
    assert extra["look/oom"] == [1000.0]


def test_pandas_leaves_no_thread(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pandas")
    from tests.stress import imports_pandas

    for name in ("OMP_NUM_THREADS", "JE_ARROW_MALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    with Dispatcher([reward(imports_pandas.length)], workers=2) as dispatcher:
        assert dispatcher.score(completions=["ab", "c"]).rewards.sum() == 3
        assert dispatcher.stats()["worker_loads"] == 0
    assert "warning:" not in capfd.readouterr().err

"""`guerdon top` over a real trainer: its lanes, its hung call with its stack, its workers, its
end."""

from __future__ import annotations

import json
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from guerdon.cli import main
from tests.cli.top.terminal import Terminal
from tests.processes import started_python

TRAINER = """
    import asyncio, threading, time
    from guerdon import Dispatcher, reward

    @reward(timeout=600)
    def stuck(completion: str) -> float:
        if completion == "hang":
            time.sleep(600)  # here it hangs
        return 1.0

    @reward(lane="thread")
    def quick(completion: str) -> float:
        return 1.0

    @reward
    async def waits(completion: str) -> float:
        await asyncio.sleep(0.01)
        return 0.5

    with Dispatcher([stuck, quick, waits], workers=2) as dispatcher:
        hung = dispatcher.submit(completions=["hang"])
        print("ready", flush=True)
        while True:  # step after step
            dispatcher.score(completions=["a", "b"] * 4)
            time.sleep(0.02)
"""


@pytest.fixture
def trainer(runtime: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    script = tmp_path / "trainer.py"
    script.write_text(textwrap.dedent(TRAINER))
    with started_python(script, says="ready") as process:
        yield process


def test_a_trainer_is_seen_at_work(
    trainer: subprocess.Popen[str], terminal: Callable[..., Terminal], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = terminal(columns=120, rows=40)
    shown.wait("stuck[0]")
    for text in (f"process {trainer.pid}", "quick", "waits", "asyncio", "2 workers"):
        shown.wait(text)
    shown.type("j")
    shown.wait("time.sleep(600)")
    out, end = "", time.monotonic() + 60
    # A worker may be too busy to say where it is.
    while "time.sleep(600)" not in out and time.monotonic() < end:
        assert main(["top", "--once", "--timeout", "60", str(trainer.pid)]) == 0
        out = capsys.readouterr().out
    assert "stuck[0]" in out
    assert "time.sleep(600)" in out
    counts, end = {"quick": 0, "waits": 0}, time.monotonic() + 60
    # The first batch may wait for the second worker; it was submitted before anybody counted.
    while not (counts["quick"] and counts["waits"]) and time.monotonic() < end:
        assert main(["top", "--json", "--timeout", "60"]) == 0
        (state,) = json.loads(capsys.readouterr().out)
        assert state["pid"] == trainer.pid
        counts = {one["name"]: one["counts"]["ok"] for one in state["functions"]}
    assert counts["quick"] > 0
    assert counts["waits"] > 0
    trainer.kill()
    trainer.wait()
    shown.wait("ended")
    shown.quit()

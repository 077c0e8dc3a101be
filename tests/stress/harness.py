"""How a fault is judged: the batch ends in time, the guilty cell says what happened, and nobody
else notices."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, final

import psutil
import pytest

from guerdon import Dispatcher, Failure, PendingBatch, RewardBatch, Status, reward
from tests.clock import eventually as wait_for
from tests.processes import gone as gone
from tests.processes import runs as runs
from tests.stress import faulty_functions

WORKERS = 2
SIBLINGS = 40
GUILTY = 17


@final
class Scene:
    """A dispatcher of two workers that runs `faulty_functions.act`, and the folder where its calls
    leave notes.

    Args:
        notes: The folder.
        timeout: Of one call.
        grace: Of one call.
        options: More of `reward`.
    """

    def __init__(self, notes: Path, *, timeout: float = 10.0, grace: float = 0.2, **options: object) -> None:
        self.notes = notes
        self.timeout = timeout
        self.grace = grace
        function = reward(faulty_functions.act, timeout=timeout, grace=grace, max_failure_rate=1.0, **options)
        self.dispatcher = Dispatcher([function], workers=WORKERS)

    def __enter__(self) -> Scene:
        self.score([f"give:{index}" for index in range(8)])
        return self

    def __exit__(self, *_: object) -> None:
        self.dispatcher.close()

    def submit(self, texts: list[str]) -> PendingBatch:
        return self.dispatcher.submit(completions=texts, notes=[str(self.notes)] * len(texts), num_generations=1)

    def score(self, texts: list[str]) -> RewardBatch:
        return self.submit(texts).result()

    def commit(self, deed: str, *, patience: float = 40.0) -> Failure | None:
        """Runs one deed among siblings; its failure, if it failed. Nobody else may notice anything.

        Args:
            deed: What the guilty sample says.
            patience: What the batch may take beyond the guilty call's timeout and grace; those that
                never end take minutes.
        """
        texts = [f"give:{index}" for index in range(SIBLINGS)]
        texts[GUILTY] = deed
        (self.notes / "runs").unlink(missing_ok=True)
        start = time.monotonic()
        result = self.score(texts)
        took = time.monotonic() - start
        assert took < self.timeout + self.grace + patience, f"the batch took {took:.1f} s"
        failures = result.failures()
        assert [failure.sample for failure in failures] in ([], [GUILTY]), failures
        kept = [index for index in range(SIBLINGS) if index != GUILTY]
        assert result.rewards[kept, 0, 0].tolist() == [float(index) for index in kept]
        runs = Counter((self.notes / "runs").read_text().splitlines())
        assert {text: runs[text] for index, text in enumerate(texts) if index != GUILTY} == {
            texts[index]: 1 for index in kept
        }, "a sibling was lost or run twice"
        assert runs[deed] == result.attempts[GUILTY, 0, 0]
        self.expect_whole()
        return failures[0] if failures else None

    def expect_whole(self) -> None:
        """The pool scores as if nothing had been, with as many workers, and no process beside
        them."""
        texts = [f"give:{index}" for index in range(100)]
        start = time.monotonic()
        result = self.score(texts)
        assert time.monotonic() - start < 40
        assert not result.failures()
        assert result.rewards[:, 0, 0].tolist() == [float(index) for index in range(100)]
        wait_for(lambda: self._runs_as_wide_as_before(texts), "all workers are back")

    def _runs_as_wide_as_before(self, texts: list[str]) -> bool:
        # Workers start as work comes, so there must be some.
        if len(self.dispatcher.worker_pids()) < WORKERS:
            self.score(texts)
        return len(self.dispatcher.worker_pids()) == WORKERS

    def zygotes(self) -> tuple[psutil.Process, psutil.Process]:
        """The processes that fork this scene's workers: the stem, this process's child, and its
        loader. Another pool's, which may still be ending, are not among them."""
        return zygotes_of(self.dispatcher)

    def pids(self) -> list[int]:
        """The processes that calls left behind."""
        path = self.notes / "pids"
        return [int(line) for line in path.read_text().split()] if path.exists() else []


def expect(failure: Failure | None, status: Status, reason: str) -> None:
    assert failure is not None, "the guilty call did not fail"
    assert failure.status == status, failure
    assert reason in failure.reason, failure


def zygotes_of(dispatcher: Dispatcher) -> tuple[psutil.Process, psutil.Process]:
    """Stem and loader of one pool, by its workers, of which there must be some soon."""
    found: list[psutil.Process] = []

    def look() -> bool:
        for pid in dispatcher.worker_pids():
            try:
                loader = psutil.Process(psutil.Process(pid).ppid())
                stem = psutil.Process(loader.ppid())
                # one whose loader was killed has another parent
                if stem.ppid() == os.getpid():
                    found[:] = [stem, loader]
                    return True
            except psutil.NoSuchProcess:
                continue
        return False

    wait_for(look, "a worker is there, and what forked it")
    stem, loader = found
    return stem, loader


def descendants() -> list[psutil.Process]:
    found: list[psutil.Process] = psutil.Process().children(recursive=True)
    return found


def another_user(number: int) -> list[str]:
    """The beginning of a command that runs as a user that nobody is, who may still read what
    belongs to us; skips where that takes more rights than we have."""
    setpriv = shutil.which("setpriv")
    if setpriv is None or os.getuid() != 0:
        pytest.skip("another user is needed, and setpriv to become it")
    may = "+dac_override,+dac_read_search"
    return [setpriv, f"--reuid={number}", "--clear-groups", f"--inh-caps={may}", f"--ambient-caps={may}"]


def reported(program: str, *prefix: str, **environment: str) -> tuple[dict[str, Any], str]:
    """The report that a trainer process prints as its last line, and its standard error.

    With a prefix the process is another user's, whose folder of state sockets would stay.
    """
    if prefix:
        environment["GUERDON_TOP"] = "0"
    done = subprocess.run(
        [*prefix, sys.executable, "-c", program],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=250,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found, done.stderr

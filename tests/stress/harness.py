"""How a fault is judged: the batch ends in time, the guilty cell says what happened, and nobody
else notices."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any, final

import psutil
import pytest

from guerdon import Dispatcher, Failure, PendingBatch, RewardBatch, Status, reward
from tests.clock import eventually as wait_for
from tests.processes import gone as gone
from tests.processes import run_python
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

    def __init__(
        self, notes: Path, *, timeout: float = 10.0, grace: float = 0.2, workers: int = WORKERS, **options: object
    ) -> None:
        self.notes = notes
        self.timeout = timeout
        self.grace = grace
        function = reward(faulty_functions.act, timeout=timeout, grace=grace, max_failure_rate=1.0, **options)
        self.workers = workers
        self.dispatcher = Dispatcher([function], workers=workers)

    def __enter__(self) -> Scene:
        self.score([f"give:{index}" for index in range(8)])
        return self

    def __exit__(self, *_: object) -> None:
        self.dispatcher.close()

    def submit(self, texts: list[str], notes: dict[str, Path] | None = None) -> PendingBatch:
        folders = [str((notes or {}).get(text, self.notes)) for text in texts]
        return self.dispatcher.submit(completions=texts, notes=folders, num_generations=1)

    def score(self, texts: list[str], notes: dict[str, Path] | None = None) -> RewardBatch:
        return self.submit(texts, notes).result()

    def commit(self, deed: str, *, patience: float = 40.0) -> Failure | None:
        """Runs one deed among siblings; its failure, if it failed. Nobody else may notice anything.

        Args:
            deed: What the guilty sample says.
            patience: What the batch may take beyond the guilty call's timeout and grace; those that
                never end take minutes.
        """
        return self.commit_all({deed: self.notes}, patience=patience)[deed]

    def commit_all(self, deeds: dict[str, Path], *, patience: float = 40.0) -> dict[str, Failure | None]:
        """The same with several deeds at once, each with a folder for its notes: their failures."""
        texts = [f"give:{index}" for index in range(SIBLINGS)]
        guilty = range(GUILTY, GUILTY + len(deeds))
        texts[GUILTY : guilty.stop] = deeds
        for folder in {self.notes, *deeds.values()}:
            (folder / "runs").unlink(missing_ok=True)
        start = time.monotonic()
        result = self.score(texts, deeds)
        took = time.monotonic() - start
        assert took < self.timeout + self.grace + patience, f"the batch took {took:.1f} s"
        failures = {failure.sample: failure for failure in result.failures()}
        assert failures.keys() <= set(guilty), failures
        kept = [index for index in range(SIBLINGS) if index not in guilty]
        assert result.rewards[kept, 0, 0].tolist() == [float(index) for index in kept]
        runs = Counter(
            text for folder in {self.notes, *deeds.values()} for text in (folder / "runs").read_text().splitlines()
        )
        tries = [1 if index in kept else int(result.attempts[index, 0, 0]) for index in range(SIBLINGS)]
        assert runs == Counter(dict(zip(texts, tries, strict=True))), "a call was lost, or a sibling run twice"
        self.expect_whole()
        return {deed: failures.get(sample) for sample, deed in zip(guilty, deeds, strict=True)}

    def expect_whole(self) -> None:
        """The pool scores as if nothing had been, with as many workers, and no process beside
        them."""
        texts = [f"give:{index}" for index in range(100)]
        start = time.monotonic()
        result = self.score(texts)
        assert time.monotonic() - start < 40
        assert not result.failures()
        assert result.rewards[:, 0, 0].tolist() == [float(index) for index in range(100)]
        wait_for(self._runs_as_wide_as_before, "all workers are back")

    def _runs_as_wide_as_before(self) -> bool:
        # Workers start as work comes, so there must be some.
        if len(self.dispatcher.worker_pids()) < self.workers:
            self.score([f"doze:{index}" for index in range(100)])
        return len(self.dispatcher.worker_pids()) == self.workers

    def zygotes(self) -> tuple[psutil.Process, psutil.Process]:
        """The processes that fork this scene's workers: the stem, this process's child, and its
        loader. Another pool's, which may still be ending, are not among them."""
        return zygotes_of(self.dispatcher)

    def pids(self, notes: Path | None = None) -> list[int]:
        """The processes that calls left behind."""
        path = (notes or self.notes) / "pids"
        return [int(line) for line in path.read_text().split()] if path.exists() else []


def expect(failure: Failure | None, status: Status, reason: str) -> Failure:
    assert failure is not None, "the guilty call did not fail"
    assert failure.status == status, failure
    assert reason in failure.reason, failure
    return failure


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


# The beginning of programs that are trainers.
TRAINER = """
import json, os, resource, time
from pathlib import Path
import psutil
from guerdon import Dispatcher, reward
from tests.stress import faulty_functions

TEXTS = [f"give:{index}" for index in range(60)]
ALL = [float(index) for index in range(60)]

def act(timeout=30, **options):
    return reward(faulty_functions.act, timeout=timeout, max_failure_rate=1.0, **options)

def scored(dispatcher, texts=TEXTS):
    # Returns whether the good samples have their rewards, and why the others failed.
    result = dispatcher.score(completions=texts, notes=[os.environ["NOTES"]] * len(texts), num_generations=1)
    return result.rewards[:60, 0, 0].tolist() == ALL, [failure.reason for failure in result.failures()]

def warm():
    # The engine's own threads and descriptors, before they are counted.
    made = Dispatcher([reward(lambda completion: 1.0, lane="thread", name="warm")])
    made.score(completions=["a"], num_generations=1)
    return made

def limit_processes(most):
    # The processes of this trainer and below it; each may end meanwhile.
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            resource.prlimit(process.pid, resource.RLIMIT_NPROC, most)
        except ProcessLookupError:
            continue
"""


def reported(script: str, notes: Path, *prefix: str, **environment: str) -> tuple[dict[str, Any], str]:
    """The report that a trainer prints as its last line, and its standard error.

    A process with a prefix is another user's, whose folder of state sockets would stay.
    """
    notes.chmod(0o777)
    if prefix:
        environment["GUERDON_TOP"] = "0"
    done = run_python(TRAINER + script, prefix=prefix, env={"NOTES": str(notes), **environment})
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found, done.stderr

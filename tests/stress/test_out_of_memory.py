"""A memory cgroup that is full: workers die, the trainer lives."""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import run_python
from tests.stress.harness import wait_for

LIMIT = 1 << 30
# Four fifths of the cgroup: more than its workers and their loader together.
HELD = 800 << 20

TRAINER = """
import os
with open({cgroup!r} + "/cgroup.procs", "w") as file:
    file.write(str(os.getpid()))
held = bytearray(b"x") * {held}
from guerdon import Dispatcher, reward
from tests.stress import faulty_functions
with Dispatcher([reward(faulty_functions.act, timeout=60, max_failure_rate=1)], workers=2) as dispatcher:
    texts = ["give:1", "give:2", "use_up_memory", "give:3"]
    result = dispatcher.score(completions=texts, notes=[{notes!r}] * 4, num_generations=1)
    print(result.rewards.ravel().tolist(), [(each.status.name, each.reason) for each in result.failures()])
    print(dispatcher.score(completions=["give:4"] * 8, notes=[{notes!r}] * 8).rewards.sum())
"""


@contextlib.contextmanager
def memory_cgroup(limit: int) -> Iterator[Path]:
    """A cgroup of this size without swap; skips where none can be made."""
    for parent, most, swap in (
        (_own_cgroup("/sys/fs/cgroup", "0::"), "memory.max", ("memory.swap.max", "0")),
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", ("memory.memsw.limit_in_bytes", str(limit))),
    ):
        cgroup = parent / f"guerdon-{uuid.uuid4().hex[:12]}"
        try:
            cgroup.mkdir()
        except OSError:
            continue
        try:
            if not (cgroup / most).exists():  # no cgroup, or one without the memory controller
                continue
            (cgroup / most).write_text(str(limit))
            with contextlib.suppress(OSError):  # no swap accounting
                (cgroup / swap[0]).write_text(swap[1])
            yield cgroup
            return
        finally:
            _remove(cgroup)
    pytest.skip("no memory cgroup can be made here: that takes root, or a delegated cgroup")


def _remove(cgroup: Path) -> None:
    processes = cgroup / "cgroup.procs"  # of a killed trainer, for a moment
    wait_for(lambda: not (processes.exists() and processes.read_text()), "the cgroup is empty")
    cgroup.rmdir()


def _own_cgroup(root: str, prefix: str) -> Path:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith(prefix):
            return Path(root, line.removeprefix(prefix).lstrip("/"))
    return Path("/nowhere")


@pytest.mark.fault(
    "a function allocates without end in a memory cgroup of which the trainer holds most",
    sees="`crashed`, by SIGKILL (out of memory?); the trainer and the other samples are not affected",
)
def test_row_31_workers_die_before_the_trainer(tmp_path: Path) -> None:
    with memory_cgroup(LIMIT) as cgroup:
        program = TRAINER.format(cgroup=str(cgroup), held=HELD, notes=str(tmp_path))
        ended = run_python(program, flags=["-W", "ignore"], env={"PYTHONPATH": os.pathsep.join(sys.path)})
    first, second = ended.stdout.splitlines()
    assert first.startswith("[1.0, 2.0, nan, 3.0] [('CRASHED'")
    assert "SIGKILL (out of memory?)" in first
    assert second == "32.0"

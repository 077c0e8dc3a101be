"""How many workers a dispatcher starts by itself, where no launcher is at work."""

from __future__ import annotations

import os
import subprocess
import sys

from guerdon._cpu_count import default_workers, usable_cores


def test_a_process_alone_uses_the_cores_it_may_use() -> None:
    assert 1 <= usable_cores() <= len(os.sched_getaffinity(0))
    assert default_workers() == usable_cores()


def test_affinity_counts() -> None:
    core = min(os.sched_getaffinity(0))
    ended = subprocess.run(
        [sys.executable, "-c", "from guerdon._cpu_count import default_workers; print(default_workers())"],
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.strip() == "1"

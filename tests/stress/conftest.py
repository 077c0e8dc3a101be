"""No test of faults leaves a process behind."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import psutil
import pytest

PATIENCE_S = 60.0  # moments, on a machine that does nothing else


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Soon no descendant of this process is left, before and after.

    A test of another folder may have run before in this process: its pool, dropped without being
    closed, ends meanwhile.
    """
    gc.collect()
    # Another test answers for these.
    earlier = frozenset(process.pid for process in _descendants_after(5))
    yield
    assert not _descendants_after(PATIENCE_S, earlier)


def _descendants_after(patience_s: float, known: frozenset[int] = frozenset()) -> list[psutil.Process]:
    """Those beside the known ones that do not end meanwhile."""
    deadline = time.monotonic() + patience_s
    while left := [one for one in psutil.Process().children(recursive=True) if one.pid not in known]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return left

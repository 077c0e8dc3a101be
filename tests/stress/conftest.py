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
    _descendants_after(PATIENCE_S)
    yield
    assert not _descendants_after(PATIENCE_S)


def _descendants_after(patience_s: float) -> list[psutil.Process]:
    """Those that do not end meanwhile."""
    deadline = time.monotonic() + patience_s
    while (left := psutil.Process().children(recursive=True)) and time.monotonic() < deadline:
        time.sleep(0.01)
    found: list[psutil.Process] = left
    return found

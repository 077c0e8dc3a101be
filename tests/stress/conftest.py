"""No test of faults leaves a process behind."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import psutil
import pytest


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Soon no descendant of this process is left."""
    gc.collect()  # dispatchers that other tests dropped without closing them
    yield
    deadline = time.monotonic() + 30  # moments, on a machine that does nothing else
    while (left := psutil.Process().children(recursive=True)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left

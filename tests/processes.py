"""Processes and descriptors, as the kernel shows them."""

from __future__ import annotations

import gc
import os

import psutil


def runs(pid: int) -> bool:
    """Whether a process lives: an orphan that has ended may wait a while for init to reap it."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def gone(pids: list[int]) -> bool:
    return not any(runs(pid) for pid in pids)


def descriptors() -> dict[int, str]:
    """The open descriptors of this process, and what they lead to."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # the listing's own
            continue
    return found


def eventfds() -> int:
    """How many descriptors wake somebody who waits, those of garbage aside."""
    gc.collect()
    return sum("eventfd" in target for target in descriptors().values())

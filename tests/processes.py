"""Processes and descriptors, as the kernel shows them. Every environment of tests has this module:
it needs nothing but the standard library."""

from __future__ import annotations

import gc
import os
from pathlib import Path


def runs(pid: int) -> bool:
    """Returns whether a process lives; an ended orphan may wait a while for init to reap it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] not in "ZX"


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
    """Counts the descriptors that wake somebody who waits, without those of garbage."""
    gc.collect()
    return sum("eventfd" in target for target in descriptors().values())

"""How many cores this process may use, and how many workers that makes."""

from __future__ import annotations

import os

from guerdon._launcher import launchers_cores, ranks_on_host


def usable_cores() -> int:
    """Cores that this process may run on: its CPU affinity, or the CPU quota of its container, or
    of a control group above it, where that is lower."""
    from guerdon import _native

    return _native.available_parallelism()


def default_workers() -> int:
    """Workers of a dispatcher that was not told: this process's share of the cores, at least one.
    Cores that the launcher has bound this rank to are not divided again; a quota of CPU time is,
    since the ranks of a container share it."""
    ranks = ranks_on_host()
    usable = usable_cores()
    if ranks == 1 or not hasattr(os, "sched_getaffinity"):
        return max(1, usable // ranks)
    bound = len(os.sched_getaffinity(0))
    share = min(bound, launchers_cores() // ranks)
    if usable < bound:  # by a quota
        share = min(share, usable // ranks)
    return max(1, share)

"""How many cores this process may use, and how many workers that makes."""

from __future__ import annotations

import os

from guerdon._launcher import launcher_affinity, launchers_cores, ranks_on_host


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


def host_workers() -> int:
    """Workers of an engine that all ranks of this host share: the cores that they may use
    together, at least one."""
    cores = host_cores()
    usable = usable_cores()
    if not cores:
        return max(1, usable)
    bound = len(os.sched_getaffinity(0))
    # A quota of CPU time holds for all of them.
    return max(1, len(cores) if usable >= bound else min(len(cores), usable))


def host_cores() -> tuple[int, ...]:
    """The cores that the ranks of this host may use together, by number: those of their launcher,
    or this process's own where that can't be told."""
    if not hasattr(os, "sched_getaffinity"):
        return ()
    own = os.sched_getaffinity(0)
    launcher = launcher_affinity()
    return tuple(sorted(launcher if launcher is not None and launcher >= own else own))

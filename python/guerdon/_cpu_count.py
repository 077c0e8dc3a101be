"""How many cores this process may use, and how many workers that makes."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Cores that this process may run on: its CPU affinity, or the CPU quota of its container where
    that is lower."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    return max(1, cores if quota is None else min(cores, round(quota)))


def ranks_on_host() -> int:
    """Training processes that share this host, as torchrun and accelerate tell them
    (``LOCAL_WORLD_SIZE``)."""
    try:
        return max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    except ValueError:
        return 1


def default_workers() -> int:
    """Workers of a dispatcher that was not told: this process's share of the cores, at least
    one."""
    return max(1, usable_cores() // ranks_on_host())


def _quota() -> float | None:
    """Cores' worth of time that the container is allowed; None without a limit or without
    cgroups."""
    try:
        limit, period = (_CGROUP / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            limit = (_CGROUP / "cpu" / "cpu.cfs_quota_us").read_text()
            period = (_CGROUP / "cpu" / "cpu.cfs_period_us").read_text()
        except OSError:
            return None
    try:
        allowed = int(limit) / int(period)
    except (ValueError, ZeroDivisionError):  # "max": no limit
        return None
    return allowed if allowed > 0 else None

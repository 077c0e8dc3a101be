"""Ray on this machine, for the length of a test."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import ray


@contextmanager
def ray_cluster(**options: int) -> Iterator[None]:
    """Ray with these logical resources; nothing of it or its workers' engines is left."""
    environment = {"PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    ray.init(include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": environment}, **options)
    children = psutil.Process().children(recursive=True)
    try:
        yield
    finally:
        children += psutil.Process().children(recursive=True)
        ray.shutdown()
    deadline = time.monotonic() + 120
    while any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children):
        assert time.monotonic() < deadline, "processes are left"
        time.sleep(0.1)

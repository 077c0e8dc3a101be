"""Ray on this machine, for the length of a test."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import ray

from tests.clock import eventually
from tests.processes import gone


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
    eventually(lambda: gone([child.pid for child in children]), "no process is left", seconds=120)

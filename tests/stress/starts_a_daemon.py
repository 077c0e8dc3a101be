"""A module that starts a daemon when a worker's loader imports it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tests.stress import faulty_functions

if "_guerdon_worker" in sys.modules:
    faulty_functions.daemonise("", os.environ["NOTES"])


def act(completion: str) -> float:
    """Whether the daemon lives."""
    if completion == "hang":
        time.sleep(faulty_functions.FOR_EVER)
    os.kill(int(Path(os.environ["NOTES"], "pids").read_text()), 0)
    return 1.0

"""Functions that a serial loop can compute, for several servers behind one `http_reward`."""

from __future__ import annotations

import zlib

TEXT = """
import time
import zlib
from guerdon import reward

@reward(timeout=20)
def value(text: str) -> float | None:
    number = zlib.crc32(text.encode())
    time.sleep(number % 7 / 1000)
    return None if number % 11 == 0 else number % 1000 / 10
"""

# The same; some samples kill their worker or hang, and the server may be a slow one.
HARMFUL = """
import os
import signal
import time
import zlib
from guerdon import reward

@reward(timeout=50)
def value(text: str) -> float | None:
    if text.startswith("poison"):
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(40 if text == "nap" else float(os.environ.get("SLOW_S", "0.004")))
    number = zlib.crc32(text.encode())
    return None if number % 11 == 0 else number % 1000 / 10
"""


def value(text: str) -> float | None:
    """What the servers' function gives."""
    number = zlib.crc32(text.encode())
    return None if number % 11 == 0 else number % 1000 / 10

"""Functions that a serial loop can compute, for several servers behind one `http_reward`."""

from __future__ import annotations

import zlib

TEXT = """
import os
import time
import zlib
from guerdon import reward

@reward(timeout=250)
def value(text: str) -> float | None:
    while text.startswith("wait for ") and not os.path.exists(text.removeprefix("wait for ")):
        time.sleep(0.02)
    number = zlib.crc32(text.encode())
    time.sleep(number % 7 / 1000)
    return None if number % 11 == 0 else number % 1000 / 10
"""

# The same; some samples kill their worker or hang, and the server may be a slow one, until there is
# a file that lets all make haste.
HARMFUL = """
import os
import signal
import time
import zlib
from guerdon import reward

@reward(timeout=500)
def value(text: str) -> float | None:
    if text.startswith("poison"):
        os.kill(os.getpid(), signal.SIGKILL)
    if text == "nap":
        time.sleep(400)
    if not os.path.exists(os.environ.get("HASTE", "")):
        time.sleep(float(os.environ.get("SLOW_S", "0.004")))
    number = zlib.crc32(text.encode())
    return None if number % 11 == 0 else number % 1000 / 10
"""


def value(text: str) -> float | None:
    """What the servers' function gives."""
    number = zlib.crc32(text.encode())
    return None if number % 11 == 0 else number % 1000 / 10

"""Several servers behind one `http_reward`, whose function a serial loop can compute."""

from __future__ import annotations

import math
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from guerdon import Limit, RewardBatch, RewardFunction, Status, http_reward
from tests.serve.serving import RunningServer, serving

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


def replica(stack: ExitStack, folder: Path, *options: object, text: str = HARMFUL, **environment: str) -> RunningServer:
    folder.mkdir()
    return stack.enter_context(serving(folder, *options, functions="", text=text, **environment))


def behind(*addresses: str, **options: Any) -> RewardFunction:
    given: dict[str, Any] = {"timeout": 60.0, "total_timeout": 250.0, "retries": 8, "limit": Limit(concurrency=16)}
    return http_reward([one + "/score" for one in addresses], columns=["text"], name="served", **{**given, **options})


def value(text: str) -> float | None:
    """What the servers' function gives."""
    number = zlib.crc32(text.encode())
    return None if number % 11 == 0 else number % 1000 / 10


def assert_as_serial(result: RewardBatch, texts: list[str]) -> None:
    """Each sample has what a serial loop gives it; a poisonous one has ended its worker."""
    expected = [None if text.startswith("poison") else value(text) for text in texts]
    found = [None if math.isnan(reward) else reward for reward in result.rewards.ravel().tolist()]
    assert found == [None if one is None else float(np.float32(one)) for one in expected]
    poison, none, number = Status.CRASHED, Status.ABSTAINED, Status.OK
    assert [Status(status) for status in result.status.ravel()] == [
        poison if text.startswith("poison") else none if one is None else number
        for text, one in zip(texts, expected, strict=True)
    ]

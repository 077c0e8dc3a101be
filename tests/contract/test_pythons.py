"""Each lane on the Python at hand: what docs/compatibility.md says of it is recorded here."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from guerdon import Dispatcher, Status, http_reward, reward
from tests.compatibility.recorder import Note
from tests.contract import misbehaving_functions as behaviours
from tests.http.server import serving

TIMEOUT_S = 1.0


@pytest.mark.parametrize("lane", ["process", "thread", "asyncio", "http"])
def test_a_lane_gives_its_values_and_ends_what_hangs(lane: str, compatibility: Note) -> None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}{sys.abiflags}"
    compatibility("pythons", python, f"{lane} lane", packages=("numpy",))

    def answer(path: str, body: dict[str, float]) -> dict[str, float]:
        time.sleep(body["seconds"])
        return {"score": 1.0}

    with serving(answer) as server:
        functions: dict[str, Any] = {
            "process": reward(behaviours.sleep, timeout=TIMEOUT_S),
            "thread": reward(behaviours.sleep, lane="thread", timeout=TIMEOUT_S),
            "asyncio": reward(behaviours.wait, timeout=TIMEOUT_S),
            "http": http_reward(server.url, columns=["seconds"], timeout=TIMEOUT_S, retries=0),
        }
        with Dispatcher([functions[lane]], workers=2, max_failure_rate=1.0) as dispatcher:
            result = dispatcher.score(completions=["c"] * 16, seconds=[0.0] * 15 + [4.0])
    assert result.status[:15].ravel().tolist() == [Status.OK] * 15
    assert result.status[15, 0, 0] == Status.TIMEOUT

"""Reward functions for the tests of limits, importable by workers."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from guerdon import RetryAfter


def one(completion: str) -> float:
    return 1.0


def busy_at_first(completion: str, path: str, times: int) -> float:
    """Tells the first `times` attempts to come back in 0.15 s."""
    with open(path, "a") as file:
        file.write(f"{time.monotonic()}\n")
    if len(Path(path).read_text().splitlines()) <= times:
        raise RetryAfter(0.15)
    return 1.0


def telling(completion: str) -> dict[str, Any]:
    """Tells the tokens that it used, as the object of a client would."""
    return {"score": 1.0, "usage": SimpleNamespace(prompt_tokens=20, total_tokens=50)}

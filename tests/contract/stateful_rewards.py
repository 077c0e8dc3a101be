"""Stateful rewards for the tests. Workers import this module."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

from guerdon import StatefulReward


class Shaping(StatefulReward):
    """Scores and finishes as the columns say; writes down the scores that its groups got."""

    def __init__(self, notes: Path) -> None:
        self.notes = notes

    def score(self, own: Any) -> float | None:
        if own == "error":
            raise ValueError("no score")
        return own  # type: ignore[no-any-return]

    def finish_group(self, scores: list[float | None], finish: list[Any]) -> list[Any]:
        with open(self.notes, "a") as file:
            file.write(f"{scores}\n")
        if finish[0] == "raise":
            raise ValueError("no finish")
        if finish[0] == "short":
            return [1.0]
        if finish[0] == "echo":
            return list(scores)
        return [2 * (score or 0.0) if one == ["double"] else one for score, one in zip(scores, finish)]  # noqa: B905


class AsyncShaping(Shaping):
    async def setup(self) -> None:  # type: ignore[override]
        await asyncio.sleep(0)

    async def score(self, own: Any) -> float | None:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().score(own)

    async def finish_group(self, scores: list[float | None], finish: list[Any]) -> list[Any]:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().finish_group(scores, finish)


class BrokenSetup(StatefulReward):
    """Fails as long as there is no file."""

    def __init__(self, model: Path) -> None:
        self.model = model

    def setup(self) -> None:
        if not self.model.exists():
            raise RuntimeError("no model here")
        self.scale = 2.0

    def score(self, own: float) -> float:
        return own * self.scale


class SlowSetup(StatefulReward):
    def __init__(self, seconds: float, *, wait: bool = False) -> None:
        self.seconds = seconds
        self.wait = wait

    def setup(self) -> Any:
        if self.wait:
            return asyncio.sleep(self.seconds)
        time.sleep(self.seconds)
        return None

    def score(self, own: float) -> float:
        return own


class Lifecycle(StatefulReward):
    """Writes down what happens to it and where; a negative score ends its worker."""

    def __init__(self, notes: Path, *, wait: bool = False) -> None:
        self.notes = notes
        self.wait = wait

    def setup(self) -> Any:
        self.note("setup")
        return asyncio.sleep(0) if self.wait else None

    def score(self, own: float) -> Any:
        self.note("score")
        if own < 0:
            self.note("end")
            os._exit(1)
        if self.wait:
            return asyncio.sleep(0, own)
        time.sleep(own)
        return own

    def close(self) -> Any:
        self.note("close")
        return asyncio.sleep(0) if self.wait else None

    def note(self, word: str) -> None:
        text = f"{word} {os.getpid()} {threading.get_ident()}\n"
        with open(self.notes, "a") as file:
            file.write(text)

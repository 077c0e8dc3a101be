"""Ranks that are threads of the test: the collectives of modules that ranks meet in, in memory."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest


class RankThreads:
    """So many ranks, whose collectives stand in for those of `modules`."""

    def __init__(self, ranks: int, patch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
        self.ranks = ranks
        self._meeting = threading.Barrier(ranks, timeout=60)
        self._brought: dict[int, Any] = {}
        self._mine = threading.local()
        for module in modules:
            for name in ("gather_object", "broadcast_object_list", "gather_on_first"):
                if hasattr(module, name):
                    patch.setattr(module, name, getattr(self, name))

    def run(self, one: Callable[[int], Any]) -> list[Any]:
        """What `one` returns on each rank; an error of any is raised."""

        def on(rank: int) -> Any:
            self._mine.rank = rank
            try:
                return one(rank)
            except BaseException:
                self._meeting.abort()  # the others wait for this one in vain
                raise

        with ThreadPoolExecutor(self.ranks) as pool:
            futures = [pool.submit(on, rank) for rank in range(self.ranks)]
        errors = [error for error in (future.exception() for future in futures) if error is not None]
        for error in errors:
            if not isinstance(error, threading.BrokenBarrierError):
                raise error
        return [future.result() for future in futures]

    def _all(self, value: Any) -> list[Any]:
        self._meeting.wait()
        self._brought[self._mine.rank] = pickle.dumps(value)
        self._meeting.wait()
        return [pickle.loads(self._brought[rank]) for rank in range(self.ranks)]

    def gather_object(self, values: list[Any]) -> list[Any]:
        return [value for of_rank in self._all(values) for value in of_rank]

    def broadcast_object_list(self, values: list[Any], from_process: int) -> None:
        values[:] = self._all(values)[from_process]

    def gather_on_first(self, value: Any) -> list[Any] | None:
        every = self._all(value)
        return every if self._mine.rank == 0 else None

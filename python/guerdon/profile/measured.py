"""A reward function that records the costs of each of its calls, in the worker that runs it.

- It returns and raises what the function does; what it notes goes to a file, a line of JSON a call.
- A call that never returns leaves no line: the engine's outcome tells of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import threading
import time
from collections.abc import Iterator
from typing import Any

__all__ = ["AT_ONCE", "AsyncMeasuredFunction", "AtOnce", "MeasuredFunction", "nothing"]

AT_ONCE = 4
"""Calls that `AtOnce` runs side by side."""

_REMEMBERED_S = 0.002


class MeasuredFunction:
    """Runs `item`, any sync reward function or `StatefulReward`, and appends to the file `path`."""

    def __init__(self, item: Any, path: str) -> None:
        self._item = item
        self._path = path
        self._target: Any = None

    def __call__(self, *values: Any, **keywords: Any) -> Any:
        with self._noted():
            return self._function()(*values, **keywords)

    def score(self, *values: Any, **keywords: Any) -> Any:
        """As `__call__`, for what is registered as a `StatefulReward`."""
        return self(*values, **keywords)

    def setup(self) -> Any:
        """That of a `StatefulReward`."""
        return self._loaded().setup()

    def close(self) -> Any:
        """That of a `StatefulReward`."""
        return self._loaded().close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_target": None}

    def _loaded(self) -> Any:
        if self._target is None:
            self._target = getattr(self._item, "__guerdon_target__", self._item)
        return self._target

    def _function(self) -> Any:
        target = self._loaded()
        return target.score if hasattr(target, "setup") and hasattr(target, "score") else target

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        pid = os.getpid()
        before, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        queued = _queued_s()
        start = time.perf_counter()
        try:
            yield
        finally:
            wall = time.perf_counter() - start
            queued = _queued_s() - queued
            after = resource.getrusage(resource.RUSAGE_SELF)
            own, others = _seconds(before, after), _seconds(children, resource.getrusage(resource.RUSAGE_CHILDREN))
            note = {
                "pid": pid,
                "forked": os.getpid() != pid,
                "wall_s": wall,
                "queued_s": min(wall, queued),
                "cpu_s": own + others,
                "after_bytes": _resident_bytes(),
                "peak_bytes": after.ru_maxrss << 10,
                "children": _children(),
            }
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(file, json.dumps(note).encode() + b"\n")
            finally:
                os.close(file)


class AsyncMeasuredFunction(MeasuredFunction):
    """The same for async functions, which are awaited here."""

    async def __call__(self, *values: Any, **keywords: Any) -> Any:
        with self._noted():
            return await self._function()(*values, **keywords)

    async def score(self, *values: Any, **keywords: Any) -> Any:
        return await self(*values, **keywords)


class AtOnce(AsyncMeasuredFunction):
    """Scores a call by how it shares its event loop.

    The score is the time of `AT_ONCE` calls at once as a share of their time one after another. It
    is 0 if the loop served others for half of it: then calls wait for each other, not for the loop.
    """

    async def __call__(self, *values: Any, **keywords: Any) -> Any:
        def clock() -> float:
            # If cores are short it also waits for one: not its doing.
            return time.perf_counter() - _queued_s()

        function, stalled, last = self._function(), 0.0, 0.0
        result = await function(*values, **keywords)
        start = clock()
        for _ in range(AT_ONCE):
            await function(*values, **keywords)
        alone = clock() - start

        def look() -> None:
            nonlocal last, stalled
            now = clock()
            stalled += now - last if now - last > alone / AT_ONCE / 2 else 0.0
            last = now

        async def keep_looking() -> None:
            while True:
                await asyncio.sleep(0.001)
                look()

        looking = asyncio.create_task(keep_looking())
        await asyncio.sleep(0)
        start = last = clock()
        await asyncio.gather(*(function(*values, **keywords) for _ in range(AT_ONCE)))
        look()
        looking.cancel()
        at_once = last - start
        if alone < AT_ONCE * _REMEMBERED_S:  # it keeps answers: only the first call waited
            stalled = 0.0
        share = at_once / alone if stalled > at_once / 2 else 0.0
        return [share] if isinstance(result, list) else share


def nothing(completion: str) -> float:
    """A reward function that takes next to nothing: what an empty worker runs."""
    return 0.0


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _queued_s() -> float:
    """Seconds that this thread was ready to run and had no core."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError):  # a kernel without it
        return 0.0


def _children() -> int:
    """Child processes of this thread that are still there."""
    try:
        with open(f"/proc/self/task/{threading.get_native_id()}/children", "rb") as file:
            return len(file.read().split())
    except OSError:  # a kernel without it
        return 0


def _seconds(before: resource.struct_rusage, after: resource.struct_rusage) -> float:
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

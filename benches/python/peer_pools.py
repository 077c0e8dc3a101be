"""The process pools that the process lane is compared with, each with the same three tasks for the
same function.

Missing features of a pool are added as its user would add them: if no call can be ended, the pool
is killed and made again, and unfinished calls are submitted again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures import TimeoutError as FutureTimeout
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

from benches.python.workloads import obey
from guerdon import Dispatcher, Status, reward

WORKERS = 2
TIMEOUT = 0.5
CHUNK = 64
# Interval at which a pool without timeouts is checked for ended calls.
LOOK_S = 0.01

Values = list[float | None]


class Guerdon:
    name = "guerdon, process lane"

    def __init__(self) -> None:
        function = reward(obey, timeout=TIMEOUT, grace=0.05, max_failure_rate=1.0)
        self._dispatcher = Dispatcher([function], workers=WORKERS)
        self.score(["x"])

    def score(self, texts: Sequence[str]) -> Values:
        """All values, the fastest way there is."""
        result = self._dispatcher.score(completions=texts)
        ended = zip(result.rewards.ravel().tolist(), result.status.ravel().tolist(), strict=True)
        return [value if status == Status.OK else None for value, status in ended]

    def guarded(self, texts: Sequence[str]) -> Values:
        """The same with a timeout for each call; None where it passed."""
        return self.score(texts)

    def insist(self, text: str) -> float | None:
        """The value of one text, whose first process ends during the call."""
        return self.score([text])[0]

    def close(self) -> None:
        self._dispatcher.close()


class Executor:
    """No timeouts, and one lost process ends it."""

    name = "ProcessPoolExecutor"

    def __init__(self) -> None:
        self._pool = self.made()

    def made(self) -> Any:
        pool = ProcessPoolExecutor(WORKERS, mp_context=get_context("forkserver"))
        list(pool.map(obey, ["x"] * WORKERS))
        return pool

    def kill(self) -> None:
        for process in list(self._pool._processes.values()):
            process.kill()
        self._pool.shutdown(wait=True)

    def score(self, texts: Sequence[str]) -> Values:
        return list(self._pool.map(obey, texts, chunksize=CHUNK))

    def guarded(self, texts: Sequence[str]) -> Values:
        # There are at most as many calls as processes, so each call has begun and its age is
        # certain.
        found: dict[int, float | None] = {}
        waiting = list(reversed(range(len(texts))))
        out: dict[Future[float], tuple[int, float]] = {}
        while waiting or out:
            while waiting and len(out) < WORKERS:
                index = waiting.pop()
                out[self._pool.submit(obey, texts[index])] = (index, time.monotonic())
            for future in wait(out, LOOK_S, FIRST_COMPLETED).done:
                found[out.pop(future)[0]] = future.result()
            late = {index for index, begun in out.values() if time.monotonic() - begun > TIMEOUT}
            if late:
                found.update(dict.fromkeys(late))
                waiting += [index for index, _ in out.values() if index not in late]
                out.clear()
                self.kill()
                self._pool = self.made()
        return [found[index] for index in range(len(texts))]

    def insist(self, text: str) -> float | None:
        while True:
            try:
                return self._pool.submit(obey, text).result()  # type: ignore[no-any-return]
            except BrokenProcessPool:
                self._pool.shutdown(wait=False)
                self._pool = self.made()

    def close(self) -> None:
        self._pool.shutdown()


class Loky(Executor):
    """Like the executor, with processes that loky starts and can kill."""

    name = "loky"

    def made(self) -> Any:
        import loky

        pool = loky.ProcessPoolExecutor(WORKERS)
        list(pool.map(obey, ["x"] * WORKERS))
        return pool

    def kill(self) -> None:
        self._pool.shutdown(wait=True, kill_workers=True)


class Pebble:
    """Has a timeout for each call, and replaces killed processes."""

    name = "pebble"

    def __init__(self) -> None:
        import pebble

        self._died = pebble.ProcessExpired
        self._pool = pebble.ProcessPool(WORKERS, context=get_context("forkserver"))
        self.score(["x"] * WORKERS)

    def score(self, texts: Sequence[str]) -> Values:
        return list(self._pool.map(obey, texts, chunksize=CHUNK).result())

    def guarded(self, texts: Sequence[str]) -> Values:
        found: Values = []
        for future in [self._pool.schedule(obey, args=[text], timeout=TIMEOUT) for text in texts]:
            try:
                found.append(future.result())
            except FutureTimeout:
                found.append(None)
        return found

    def insist(self, text: str) -> float | None:
        while True:
            try:
                return self._pool.schedule(obey, args=[text]).result()  # type: ignore[no-any-return]
            except self._died:
                continue

    def close(self) -> None:
        self._pool.close()
        self._pool.join()


POOLS: list[Any] = [Guerdon, Executor, Loky, Pebble]

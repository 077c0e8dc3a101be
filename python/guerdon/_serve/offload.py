"""Keeps long computing off the event loop, so that others are answered meanwhile.

- Work for a big request runs on a thread, one request's part at a time.
- Results that a cancelled caller no longer takes go to `drop`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_BIG: Final = 256 << 10  # bytes: some milliseconds of JSON
_THREAD: Final = ThreadPoolExecutor(1, "guerdon-big-requests")  # starts with the first big request


def is_big(size: int) -> bool:
    """Returns whether the body of a request is so large that its work leaves the event loop."""
    return size > _BIG


async def run(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `work` for a request of `size` bytes."""
    if not is_big(size):
        return work(*args, **kwargs)
    return await asyncio.wrap_future(_THREAD.submit(work, *args, **kwargs))


async def run_owned(make: Callable[[], T], drop: Callable[[T], object]) -> T:
    """Runs `make` on the thread; its result goes to `drop` if the caller is cancelled."""
    future = _THREAD.submit(make)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        future.add_done_callback(lambda made: _drop(made, drop))
        raise


def _drop(made: Future[T], drop: Callable[[T], object]) -> None:
    if not made.cancelled() and made.exception() is None:
        drop(made.result())

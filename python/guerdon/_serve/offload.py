"""Keeps long computing off the event loop, so that others are answered meanwhile.

- Work for a big request runs on a thread of the loop's executor, which ends with the loop.
- Results that a cancelled caller no longer takes go to `drop`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_BIG: Final = 256 << 10  # bytes: some milliseconds of JSON


def is_big(size: int) -> bool:
    """Returns whether the body of a request is so large that its work leaves the event loop."""
    return size > _BIG


async def run(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `work` for a request of `size` bytes."""
    return await asyncio.to_thread(work, *args, **kwargs) if is_big(size) else work(*args, **kwargs)


async def run_owned(make: Callable[[], T], drop: Callable[[T], object]) -> T:
    """Runs `make` on a thread; its result goes to `drop` if the caller is cancelled."""
    making = asyncio.ensure_future(asyncio.to_thread(make))
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        making.add_done_callback(lambda made: _drop(made, drop))
        raise


def _drop(made: asyncio.Future[T], drop: Callable[[T], object]) -> None:
    if not made.cancelled() and made.exception() is None:
        drop(made.result())

"""What the tests of the lanes share."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from guerdon import Dispatcher, GuerdonWarning, StatefulReward, reward
from guerdon.results import RewardBatch
from tests.clock import eventually


def scored(functions: object, count: int, **options: Any) -> RewardBatch:
    """One batch of `count` samples, whose completions are their numbers."""
    functions = functions if isinstance(functions, list) else [functions]
    with Dispatcher(functions, max_failure_rate=1.0) as dispatcher:
        return dispatcher.score(completions=[str(index) for index in range(count)], **options)


def threaded(function: Callable[..., Any] | StatefulReward, **options: Any) -> Any:
    return reward(function, lane="thread", **{"name": "function", **options})


def looped(function: Callable[..., Any] | StatefulReward, **options: Any) -> Any:
    return reward(function, lane="asyncio", **{"name": "function", **options})


def ours(caught: Sequence[warnings.WarningMessage]) -> list[warnings.WarningMessage]:
    """Not Python's own, of what other tests left to the garbage collector."""
    return [one for one in caught if one.category is GuerdonWarning]


@contextmanager
def no_new_threads() -> Iterator[None]:
    """Checks that no thread is left."""
    before = set(threading.enumerate())
    yield
    eventually(lambda: not set(threading.enumerate()) - before)

"""What counts as an async function; its calls may give whatever `await` takes, nothing else."""

from __future__ import annotations

import asyncio
import functools
import types
import warnings
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any

import pytest

from guerdon import Status, reward
from guerdon._worker.invoke.async_detection import is_async
from tests.lanes.lane_helpers import looped, scored


async def plain(completion: str) -> float:
    await asyncio.sleep(0)
    return 1.0


@types.coroutine
def by_generator(completion: str) -> Generator[None, None, float]:
    yield
    return 2.0


class Scorer:
    async def __call__(self, completion: str) -> float:
        await asyncio.sleep(0)
        return 3.0

    async def method(self, completion: str) -> float:
        return 4.0

    @classmethod
    async def of_class(cls, completion: str) -> float:
        return 5.0

    @staticmethod
    async def of_none(completion: str) -> float:
        return 6.0


def marked(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **options: Any) -> Any:
        return function(*args, **options)

    return wrapper


async def with_option(completion: str, *, value: float) -> float:
    return value


KINDS: dict[str, tuple[Any, float]] = {
    "function": (plain, 1.0),
    "generator": (by_generator, 2.0),
    "object": (Scorer(), 3.0),
    "method": (Scorer().method, 4.0),
    "classmethod": (Scorer.of_class, 5.0),
    "staticmethod": (Scorer.of_none, 6.0),
    "partial": (functools.partial(with_option, value=7.0), 7.0),
    "partial of partial": (functools.partial(functools.partial(with_option), value=8.0), 8.0),
    "partial of object": (functools.partial(Scorer()), 3.0),
    "wrapped": (marked(plain), 1.0),
    "wrapped twice": (marked(marked(plain)), 1.0),
    "wrapped partial": (marked(functools.partial(with_option, value=9.0)), 9.0),
    "partial of wrapped": (functools.partial(marked(with_option), value=9.5), 9.5),
}


@pytest.mark.parametrize("kind", KINDS)
def test_async_functions_of_all_kinds_are_known(kind: str) -> None:
    function, value = KINDS[kind]
    assert is_async(function)
    result = scored(reward(function, name="function"), 3)
    assert result.rewards[:, 0, 0].tolist() == [value] * 3, result.failures()[:1]


def wraps_itself() -> float:
    return 1.0


wraps_itself.__wrapped__ = wraps_itself  # type: ignore[attr-defined]


@pytest.mark.parametrize("function", [len, int, Scorer, "".upper, functools.partial(len), lambda: 1.0, wraps_itself])
def test_sync_functions_are_known(function: Callable[..., Any]) -> None:
    assert not is_async(function)


class Later:
    """Awaitable by `__await__`."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __await__(self) -> Generator[Any, None, float]:
        yield from asyncio.sleep(0).__await__()
        return self.value


def unmarked(completion: str) -> Any:
    return plain(completion)


def as_task(completion: str) -> Any:
    return asyncio.ensure_future(plain(completion))


def as_future(completion: str) -> Any:
    future = asyncio.get_running_loop().create_future()
    future.get_loop().call_soon(future.set_result, 2.0)
    return future


def as_object(completion: str) -> Any:
    return Later(3.0)


def as_generator(completion: str) -> Any:
    return by_generator(completion)


def sometimes(completion: str) -> Any:
    return plain(completion) if int(completion) % 2 else 1.0


@pytest.mark.parametrize(
    ("function", "value"),
    [(unmarked, 1.0), (as_task, 1.0), (as_future, 2.0), (as_object, 3.0), (as_generator, 2.0), (sometimes, 1.0)],
)
def test_awaitables_returned_by_sync_functions_are_awaited(function: Callable[..., Any], value: float) -> None:
    result = scored(looped(function), 6)
    assert result.rewards[:, 0, 0].tolist() == [value] * 6, result.failures()[:1]


async def gives_a_coroutine(completion: str) -> Any:
    return plain(completion)


async def gives_an_object(completion: str) -> Any:
    return Later(1.0)


async def gives_a_generator(completion: str) -> Any:
    async def values() -> AsyncIterator[float]:
        yield 1.0

    return values()


def gives_async_values(completion: str) -> Any:
    async def values() -> AsyncIterator[float]:
        yield 1.0

    return values()


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (gives_a_coroutine, "coroutine"),
        (gives_an_object, "Later"),
        (gives_a_generator, "async_generator"),
        (gives_async_values, "async_generator"),
    ],
)
def test_an_awaitable_that_an_awaited_function_returns_is_refused_by_name(function: Any, named: str) -> None:
    """Not awaited behind its back: a task each would give the same object.

    Nor a value that was never asked for.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a coroutine that nobody awaits
        result = scored(looped(function), 2)
    assert (result.status == Status.ERROR).all()
    assert f"{named} (" in result.failures()[0].reason

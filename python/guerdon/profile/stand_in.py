"""Stand-ins for a function in a worker, which look at more than its scores: threads, clock,
arguments.

A stand-in takes the samples of one call, calls the function on each as its contract says, and gives
one number a sample. Workers import this module: it imports neither the dispatcher nor NumPy.
"""

from __future__ import annotations

import asyncio
import copy
import datetime
import inspect
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from guerdon._functions.callables import innermost

if TYPE_CHECKING:
    from guerdon._functions.spec import FunctionSpec

__all__ = ["CLOCKS", "MODES", "THREADS", "StandIn", "TextStandIn"]

CLOCKS: Final = {"clock": 40_000_000.25, "other clock": 23_977_800.5}
"""Seconds by which the clock is put forward, by mode.

Some 463 days less 53 minutes, and 277 days and twelve hours and a half. One alone would miss a
function that asks for the parity of the day, for an hour after midnight.
"""
MODES: Final = ("threads", *CLOCKS, "arguments")
THREADS: Final = 8

_SINGULAR: Final = {"prompts": "prompt", "completions": "completion", "texts": "text"}


class StandIn:
    """Calls a function in one of the `MODES`; None stands for a call that raised.

    Args:
        cases: How many of the samples are the caller's; `padded` adds those that follow.
    """

    def __init__(self, spec: FunctionSpec, mode: str, cases: int) -> None:
        # Its target would be pickled by value: its module has the decorated function.
        self.item = spec.item
        self.cases = cases
        self.wants = spec.wants
        self.lists = spec.shape == "batch" or spec.shape == "group"
        self.lists_of_one = spec.rowwise or spec.batch_size is not None
        self.stateful = spec.stateful
        self.mode = mode
        self.ready: Callable[..., Any] | None = None
        self.__name__ = f"{spec.name}, {mode}"

    def __call__(
        self, completions: list[Any], prompts: list[Any], completion_ids: Any = None, **columns: Any
    ) -> list[float | None]:
        given = {"completions": completions, "prompts": prompts, **columns}
        if completion_ids is not None:
            given["completion_ids"] = completion_ids
        size = len(completions)
        if self.lists:
            # A function may raise on a made text, and then on all samples of the call.
            cases = {name: values[: self.cases] for name, values in given.items()}
            if self.mode == "arguments":
                return [float(self._changes(cases) or self._changes(given))] * size
            (found,) = self._results([cases])
            scores = list(found or [None] * min(size, self.cases))
            return scores + [None] * (size - len(scores))
        calls = [{name: values[n : n + 1] for name, values in given.items()} for n in range(size)]
        if self.mode == "arguments":
            return [float(self._changes(call)) for call in calls]
        return self._results(calls)

    def _results(self, calls: list[dict[str, Any]]) -> list[Any]:
        if self.mode in CLOCKS:
            with _later(self._function(), CLOCKS[self.mode]):
                return [self._value(call) for call in calls]
        if self.lists:
            # Lists of its own for each thread: whether arguments are changed is not asked here.
            calls = [*calls, *(copy.deepcopy(calls[0]) for _ in range(THREADS - 1))]
            return self._threaded(calls)[:1]
        return self._threaded(calls)

    def _function(self) -> Callable[..., Any]:
        ready = self.ready
        if ready is None:
            target: Any = getattr(self.item, "__guerdon_target__", self.item)
            if self.stateful:
                getattr(target, "setup", lambda: None)()
            ready = self.ready = target.score if self.stateful else target
        return ready

    def _call(self, lists: Mapping[str, Any]) -> Any:
        """One call, with what the function's signature asks for."""
        given: dict[str, Any] = dict(lists)
        if not self.lists and not self.lists_of_one:
            given = {_SINGULAR.get(name, name): values[0] for name, values in lists.items()}
        names, by_position = self.wants.arrange(given)
        records = dict.fromkeys(self.wants.records, _nothing)
        if by_position:
            return self._function()(*(given[name] for name in names), **records)
        return self._function()(**{name: given[name] for name in names}, **records)

    def _value(self, lists: Mapping[str, Any]) -> Any:
        try:
            return self._plain(_awaited(self._call(lists)))
        except Exception:
            return None

    def _plain(self, value: Any) -> Any:
        if self.lists_of_one:
            value = value[0]
        return value.get("score") if isinstance(value, dict) else value

    def _threaded(self, calls: Sequence[Mapping[str, Any]]) -> list[Any]:
        function = self._function()
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
            return asyncio.run(self._gathered(calls))
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)  # so that threads change within short calls too
        try:
            with ThreadPoolExecutor(THREADS) as pool:
                return list(pool.map(self._value, calls))
        finally:
            sys.setswitchinterval(interval)

    async def _gathered(self, calls: Sequence[Mapping[str, Any]]) -> list[Any]:
        async def one(lists: Mapping[str, Any]) -> Any:
            try:
                return self._plain(await self._call(lists))
            except Exception:
                return None

        return list(await asyncio.gather(*map(one, calls)))

    def _changes(self, lists: Mapping[str, Any]) -> bool:
        """Returns whether the function changes its arguments."""
        before = copy.deepcopy(dict(lists))
        self._value(lists)
        return any(not _equal(value, before[name]) for name, value in lists.items())


class TextStandIn(StandIn):
    """The texts of completions. Completions other than texts and messages have none."""

    def __call__(  # type: ignore[override]  # what it asks a batch for
        self, completions: list[Any], prompts: list[Any], texts: list[str], completion_ids: Any = None, **columns: Any
    ) -> list[float | None]:
        return super().__call__(completions, prompts, completion_ids, texts=texts, **columns)


def _nothing(*_: Any) -> None:
    """A log that is not read."""


def _awaited(value: Any) -> Any:
    async def wait() -> Any:
        return await value

    return asyncio.run(wait()) if inspect.isawaitable(value) else value


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # arrays
        return repr(one) == repr(other)


@contextmanager
def _later(function: Callable[..., Any], seconds: float) -> Iterator[None]:
    """The clock is put forward, for the function's own module and for whoever asks ``time``."""
    real, exact = time.time, datetime.datetime

    class Later(exact):  # type: ignore[valid-type, misc]
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return exact.now(tz) + datetime.timedelta(seconds=seconds)

        @classmethod
        def utcnow(cls) -> Any:
            return cls.now(datetime.UTC).replace(tzinfo=None)

    replacements = {id(real): lambda: real() + seconds, id(exact): Later}
    kept: list[tuple[dict[str, Any], str, Any]] = []
    spaces: list[dict[str, Any]] = [vars(time), vars(datetime), getattr(innermost(function), "__globals__", {})]
    try:
        for space in spaces:
            for name, value in list(space.items()):
                if id(value) in replacements:
                    kept.append((space, name, value))
                    space[name] = replacements[id(value)]
        yield
    finally:
        for space, name, value in kept:
            space[name] = value

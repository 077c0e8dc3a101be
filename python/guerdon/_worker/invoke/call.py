"""One reward function as its lane calls it, the same on every lane.

- C-1  A plain positional function is called with nothing in between: `Call.bind` gives back the function itself.
- C-2  What is recorded in a call belongs to that call: a recorder kept and used later reaches no other call's records.
- C-3  No record can make a call fail, whatever its values are.
- C-4  A `Call` serves one call at a time; lanes that run several at once take a `twin` for each.
"""

from __future__ import annotations

import functools
import inspect
import json
import types
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from .http_errors import tokens_of
from .returned_values import to_single

Names = tuple[str, ...]

# What a function names that runs coroutines to their end instead of returning them.
_DRIVERS = frozenset({"async_to_sync", "run", "run_coroutine_threadsafe", "run_sync", "run_until_complete"})


class Call:
    """A target (function, callable object or `guerdon.StatefulReward` instance) and the recipe of how to call it.

    Args:
        target: What to call.
        recipe: ``name``, ``shape``, ``rowwise``, ``records`` and ``stateful``, as the registration fixed them.
    """

    __slots__ = ("_bound", "_items", "_recipe", "_score", "_target", "_tokens", "is_async", "name", "wants_records")

    def __init__(self, target: Any, recipe: dict[str, Any]) -> None:
        self.name: str = recipe["name"]
        self._target = target
        self._recipe = recipe
        self._score: Callable[..., Any] = target.score if recipe["stateful"] else target
        self.is_async = is_async(self._score)
        self.wants_records = bool(recipe["records"])
        # Written by the recorders of the call in hand and by `add_fields`, taken by `records`.
        self._items: list[list[Any]] | None = None
        self._tokens: float | None = None
        self._bound: dict[tuple[bool, Names | None], Callable[..., Any]] = {}

    def twin(self) -> Call:
        """The same function for another runner, with records of its own."""
        return Call(self._target, self._recipe)

    def bind(self, names: Names | None) -> Callable[..., Any]:
        """The callable for values in the order of `names`, or by position when None; it may return an awaitable."""
        key = (False, names)
        bound = self._bound.get(key)
        if bound is None:
            bound = self._bound[key] = self._make(names)
        return bound

    def bind_finish(self, names: Names) -> Callable[..., Any]:
        """The callable of `finish_group`: the scores, then the lists in the order of `names`."""
        key = (True, names)
        bound = self._bound.get(key)
        if bound is None:
            finish = self._target.finish_group

            def bound(scores: list[float | None], *values: object) -> Any:
                return finish(scores, **dict(zip(names, values, strict=True)))

            self._bound[key] = bound
        return bound

    def setup(self) -> Any:
        """Runs the target's `setup`; may return an awaitable."""
        return self._target.setup() if self._recipe["stateful"] else None

    def close(self) -> Any:
        """Runs the target's `close`; may return an awaitable."""
        return self._target.close() if self._recipe["stateful"] else None

    def add_fields(self, fields: dict[str, Any]) -> None:
        """Keeps the extra fields of a dict result with the call's records, its ``usage`` as the tokens that it is."""
        tokens = tokens_of(fields.get("usage"))
        if tokens is not None:
            self._tokens = tokens
            fields = {**fields, "usage": tokens}
        if self._items is None:
            self._items = []
        self._items.append(["fields", fields])

    def records(self) -> bytes | None:
        """What the call recorded since the last take, as JSON; None if nothing.

        A list of ``["extra", column, values]``, ``["metric", name, value]`` and ``["fields", {name: value}]``.
        """
        items = self._items
        if not items:
            return None
        self._items = None
        return encode_records(items)

    def tokens(self) -> float | None:
        """The tokens that the call told it used, since the last take."""
        tokens, self._tokens = self._tokens, None
        return tokens

    def drop_records(self) -> None:
        """Forgets what a failed call recorded."""
        self._items = self._tokens = None

    def _make(self, names: Names | None) -> Callable[..., Any]:
        score, rowwise = self._score, self._recipe["rowwise"]
        wanted: tuple[str, ...] = tuple(self._recipe["records"])
        if not rowwise and not wanted:
            if names is None:
                return score  # C-1
            return lambda *values: score(**dict(zip(names, values, strict=True)))

        def call(*values: object) -> Any:
            if rowwise:  # rows become lists of one; the trainer's state is one object, not a row
                values = tuple(v if n == "trainer_state" else [v] for n, v in zip(names or (), values, strict=True))
            keywords: dict[str, Any] = {} if names is None else dict(zip(names, values, strict=True))
            if wanted:
                keywords.update(self._recorders(wanted))
            raw = score(*values, **keywords) if names is None else score(**keywords)
            if not rowwise:
                return raw
            return _single_of(raw) if is_awaitable(raw) else to_single(raw)

        return call

    def _recorders(self, wanted: tuple[str, ...]) -> dict[str, Callable[..., None]]:
        items: list[list[Any]] = []  # of this call alone (C-2)
        self._items = items

        def log_extra(column: str, values: list[Any]) -> None:
            items.append(["extra", column, values])

        def log_metric(name: str, value: float) -> None:
            items.append(["metric", name, value])

        recorders: dict[str, Callable[..., None]] = {"log_extra": log_extra, "log_metric": log_metric}
        return {name: recorders[name] for name in wanted}


class Awaiter:
    """Awaits what functions return, on a loop kept for the thread that uses it.

    `warn` is called once per function name with what to change. Not for an async function: it runs where nobody would
    look for it only if its lane was asked for by name.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._warned: set[str] = set()
        self._loop: Any = None

    def result(self, call: Call, raw: Any) -> Any:
        """`raw`, which `call` returned, or what it gives when awaited."""
        if not is_awaitable(raw):
            return raw
        if not call.is_async and call.name not in self._warned:
            self._warned.add(call.name)
            self._warn(
                f"reward function {call.name!r} is not an async function but returned an awaitable; it was awaited "
                f"where it ran, one call at a time: declare it with lane='asyncio' to run its calls together"
            )
        return self.run(raw)

    def run(self, awaitable: Awaitable[Any]) -> Any:
        """Runs an awaitable to its end on the kept loop."""
        loop = self._loop
        if loop is None:
            import asyncio

            loop = self._loop = asyncio.new_event_loop()
        value, error = self._outcome(loop, awaitable)
        if error is None:
            return value
        try:
            raise error
        finally:
            del error  # else it and its traceback hold each other until Python's collector comes round

    def _outcome(self, loop: Any, awaitable: Awaitable[Any]) -> tuple[Any, BaseException | None]:
        told: list[tuple[Any, BaseException | None]] = []
        task = loop.create_task(_tell_outcome(awaitable, told))
        try:
            loop.run_until_complete(task)
            return told.pop()
        except BaseException:
            if not task.done():
                # The exception came from outside the task (a signal): the task must not go on in the next call.
                self.close()
            raise

    def close(self) -> None:
        """Ends the loop; what still runs on it is cancelled."""
        loop, self._loop = self._loop, None
        if loop is not None:
            _end_loop(loop)


def is_async(target: Any) -> bool:
    """Whether calling it gives a coroutine, as far as inspection can say.

    Sees through partials, methods, callable objects and wrapped functions.
    """
    seen = 0
    while seen < 64:  # a __wrapped__ that leads back to itself ends here
        seen += 1
        if _is_coroutine_function(target):
            return True
        if isinstance(target, (functools.partial, functools.partialmethod)):
            target = target.func
        elif isinstance(target, types.MethodType):
            target = target.__func__
        elif callable(getattr(target, "__wrapped__", None)):
            if not _DRIVERS.isdisjoint(getattr(getattr(target, "__code__", None), "co_names", ())):
                return False  # a sync wrapper that runs the coroutine itself
            target = target.__wrapped__
        elif isinstance(target, (types.FunctionType, types.BuiltinFunctionType, type)):
            return False
        else:
            call = inspect.getattr_static(type(target), "__call__", None)
            if not isinstance(call, types.FunctionType):
                return False
            target = call
    return False


def is_awaitable(raw: Any) -> bool:
    """Whether `await raw` would work."""
    kind = type(raw)
    return hasattr(kind, "__await__") or (kind is types.GeneratorType and inspect.isawaitable(raw))


def encode_records(items: list[list[Any]]) -> bytes | None:
    """Records as JSON; values that JSON lacks become their `item()` or their text (C-3)."""
    try:
        return json.dumps(items, default=_plain, ensure_ascii=False).encode("utf-8", "surrogatepass")
    except Exception:  # odd keys, cycles, a __str__ that raises: keep what can be kept
        kept = []
        for item in items:
            try:
                kept.append(json.loads(json.dumps(_stringed(item, 0))))
            except Exception:  # C-3
                continue
        return json.dumps(kept, ensure_ascii=False).encode("utf-8", "surrogatepass") if kept else None


def _is_coroutine_function(target: Any) -> bool:
    if inspect.iscoroutinefunction(target) or getattr(target, "_is_coroutine", None) is not None:
        return True
    flags = getattr(getattr(target, "__code__", None), "co_flags", 0)
    return isinstance(flags, int) and bool(flags & inspect.CO_ITERABLE_COROUTINE)  # made by `types.coroutine`


async def _tell_outcome(awaitable: Awaitable[Any], told: list[tuple[Any, BaseException | None]]) -> None:
    """Adds what it gives, or raises, to `told`, from where it is taken.

    A task that kept it would hold the exception, whose traceback holds asyncio's frames, which hold the task.
    """
    try:
        told.append((await awaitable, None))
    except BaseException as error:
        told.append((None, error))


async def _single_of(awaitable: Awaitable[Any]) -> object:
    return to_single(await awaitable)


def _end_loop(loop: Any) -> None:
    import asyncio

    try:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            ended: Coroutine[Any, Any, Any] = asyncio.wait(tasks, timeout=1.0)
            loop.run_until_complete(ended)
        loop.run_until_complete(loop.shutdown_asyncgens())
    except BaseException:  # whatever is left in user code must not keep the loop's descriptors open
        return
    finally:
        if not loop.is_running():
            loop.close()


def _plain(value: Any) -> Any:
    """What `json` should write for a value that it doesn't know."""
    item = getattr(value, "item", None)
    if item is not None:
        try:
            single = item()
        except Exception:  # an array of several elements
            single = None
        if isinstance(single, (bool, int, float, str)):
            return single
    tolist = getattr(value, "tolist", None)
    if tolist is not None:
        try:
            return tolist()
        except Exception:  # not an array after all
            return str(value)
    return str(value)


def _stringed(value: Any, depth: int) -> Any:
    """A copy that `json` can always write: odd keys as text, what is nested too deep as text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if depth > 8:
        return type(value).__name__
    if isinstance(value, dict):
        return {str(key): _stringed(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_stringed(inner, depth + 1) for inner in value]
    return _stringed(_plain(value), depth + 1)

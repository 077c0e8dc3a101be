"""Detects async functions, and values that can be awaited."""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any

# Names in the code of a sync wrapper that runs coroutines itself instead of returning them.
_RUNNERS = frozenset({"async_to_sync", "run", "run_coroutine_threadsafe", "run_sync", "run_until_complete"})


def is_async(target: Any) -> bool:
    """Returns whether calling it returns a coroutine, as far as inspection can tell.

    Looks through partials, methods, callable objects and wrapped functions.
    """
    seen = 0
    while seen < 64:  # __wrapped__ may form a cycle
        seen += 1
        if _is_coroutine_function(target):
            return True
        if isinstance(target, (functools.partial, functools.partialmethod)):
            target = target.func
        elif isinstance(target, types.MethodType):
            target = target.__func__
        elif callable(getattr(target, "__wrapped__", None)):
            if not _RUNNERS.isdisjoint(getattr(getattr(target, "__code__", None), "co_names", ())):
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
    """Returns whether `await raw` would work."""
    kind = type(raw)
    return hasattr(kind, "__await__") or (kind is types.GeneratorType and inspect.isawaitable(raw))


def _is_coroutine_function(target: Any) -> bool:
    if inspect.iscoroutinefunction(target) or getattr(target, "_is_coroutine", None) is not None:
        return True
    flags = getattr(getattr(target, "__code__", None), "co_flags", 0)
    # made by `types.coroutine`
    return isinstance(flags, int) and bool(flags & inspect.CO_ITERABLE_COROUTINE)

"""Proxies: functions and methods that look like the user's own and run on the engine.

Attributes that a trainer reads of a tool stay: its name, signature, docstring and annotations (the
schema is made of them), and whether it is a coroutine function. A proxy is a method in the sense of
`inspect`, as schemas are made of methods and functions only; it pickles if its function does. A
caller that knows proxies can `launch` one and wait later; any other calls it and waits.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import types
import weakref
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Any, Final

from guerdon._functions.callables import innermost
from guerdon.integrations.trl.tool_calls.executor import PendingCall, in_tool_call

_FINALIZE: Final = weakref.finalize.__call__.__code__
_LAUNCH = "__guerdon_launch__"

Launcher = Callable[[tuple[Any, ...], Mapping[str, Any]], PendingCall]
"""Starts a call with these arguments."""


def launcher_of(tool: Callable[..., Any]) -> Launcher | None:
    """Returns the launcher that starts a call of a proxy without waiting for it; None if `tool` is
    not a proxy."""
    launch = getattr(getattr(tool, "__func__", None), _LAUNCH, None)
    return None if launch is None else functools.partial(launch, getattr(tool, "__self__"))  # noqa: B009 - a function, to mypy, has none


def make_proxy(
    original: Callable[..., Any],
    name: str,
    launch: Callable[[Any, tuple[Any, ...], Mapping[str, Any]], PendingCall],
    direct: Callable[..., Any],
    *,
    asynchronous: bool,
    method: bool,
    waited_for: Callable[[Any], bool] = lambda this: False,
) -> Callable[..., Any]:
    """A function whose first parameter is its object, and that `inspect` sees as `original`.

    Args:
        original: What it stands for; with `method` a function of a class, whose first
            parameter is dropped too.
        launch: Starts a call: the object, positional arguments, keywords.
        direct: What code that runs on the engine already calls instead, with the object first.
        asynchronous: Whether it is a coroutine function.
        waited_for: Whether a call has to be direct, as what runs on the engine waits for it.
    """
    proxy: Callable[..., Any]
    if asynchronous:

        async def wait(this: Any, /, *args: Any, **kwargs: Any) -> Any:
            if in_tool_call() or _in_finalizer() or waited_for(this):
                return await direct(this, *args, **kwargs)
            pending = await asyncio.get_running_loop().run_in_executor(None, launch, this, args, kwargs)
            return await pending.aresult()

        proxy = wait
    else:

        def block(this: Any, /, *args: Any, **kwargs: Any) -> Any:
            if in_tool_call() or _in_finalizer() or waited_for(this):
                return direct(this, *args, **kwargs)
            return launch(this, args, kwargs).result()

        proxy = block
    inner = _described(original)
    proxy.__name__, proxy.__doc__ = name, inner.__doc__
    proxy.__qualname__ = getattr(inner, "__qualname__", name)
    proxy.__module__ = getattr(inner, "__module__", None) or __name__
    signature = _signature(original, method=method)
    hints = getattr(inner, "__annotations__", {})
    proxy.__annotations__ = {key: hint for key, hint in hints.items() if key in {*signature.parameters, "return"}}
    setattr(proxy, "__wrapped__", inner)  # noqa: B010 - string annotations are read in its globals
    setattr(proxy, "__signature__", signature)  # noqa: B010 - mypy knows no such attribute of a function
    setattr(proxy, _LAUNCH, launch)
    return proxy


def _in_finalizer() -> bool:
    """Returns whether a ``__del__`` or a `weakref.finalize` calls. It runs wherever garbage is
    collected, under a lock or on a thread of the engine, and must not wait there for another
    thread."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "__del__" or frame.f_code is _FINALIZE:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _described(original: Callable[..., Any]) -> Callable[..., Any]:
    """The function that has the annotations and the docstring."""
    function = innermost(original)
    if isinstance(function, types.MethodType):
        return function.__func__
    if not inspect.isroutine(function) and not isinstance(function, type):
        call = type(function).__call__
        return call if isinstance(call, types.FunctionType) else function
    return function


def _signature(original: Callable[..., Any], *, method: bool) -> Signature:
    """The signature of `original` behind a first parameter, without what a partial has set."""
    signature = inspect.signature(original)
    parameters = list(signature.parameters.values())[1 if method else 0 :]
    fixed: set[str] = set()
    function: Any = original
    while isinstance(function, functools.partial):
        fixed.update(function.keywords)
        function = function.func
    kept = [parameter for parameter in parameters if parameter.name not in fixed]
    return signature.replace(parameters=[Parameter("_this", Parameter.POSITIONAL_ONLY), *kept])

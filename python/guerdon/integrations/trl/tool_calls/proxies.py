"""Routed callables: functions and methods that look as before and run on the engine.

What a trainer reads of a tool stays: its name, its signature, its docstring and annotations (the schema is made of
them), and whether it is a coroutine function.

- C-1  A routed callable is a method in the sense of `inspect`, because that and plain functions are what schemas are made
       of; it can be pickled if what it calls can.
- C-2  Who knows it is routed can `launch` it and wait later; who doesn't calls it and waits.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import types
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Any, Protocol

from guerdon._registration.callables import innermost
from guerdon.integrations.trl.tool_calls.executor import Running, Tally, inside

__all__ = ["Launcher", "launcher_of", "shaped", "tally_of"]

_LAUNCH = "__guerdon_launch__"
_TALLY = "__guerdon_tally__"


class Launcher(Protocol):
    """Starts a call with these arguments."""

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Running: ...


def launcher_of(tool: Callable[..., Any]) -> Launcher | None:
    """How to start a routed callable without waiting for it; None if it isn't one."""
    launch = getattr(getattr(tool, "__func__", None), _LAUNCH, None)
    return None if launch is None else functools.partial(launch, getattr(tool, "__self__"))  # noqa: B009 - a function, to mypy, has none


def tally_of(tool: Callable[..., Any]) -> Tally | None:
    """Where the calls of a routed callable are counted; None if it isn't one."""
    return getattr(getattr(tool, "__func__", None), _TALLY, None)


def shaped(
    original: Callable[..., Any],
    name: str,
    launch: Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Running],
    direct: Callable[..., Any],
    tally: Tally,
    *,
    asynchronous: bool,
    method: bool,
) -> Callable[..., Any]:
    """A function whose first parameter is its object, like `original` for whoever inspects it.

    Args:
        original: What it stands for; with `method` a function of a class, whose first parameter is dropped too.
        launch: Starts a call: the object, positional arguments, keywords.
        direct: What is called instead by code that runs on the engine already, with the object first.
        tally: Where its calls are counted.
        asynchronous: Whether it is a coroutine function.
    """
    call: Callable[..., Any]
    if asynchronous:

        async def wait(this: Any, /, *args: Any, **kwargs: Any) -> Any:
            if inside():
                return await direct(this, *args, **kwargs)
            running = await asyncio.get_running_loop().run_in_executor(None, launch, this, args, kwargs)
            return await running.aresult()

        call = wait
    else:

        def block(this: Any, /, *args: Any, **kwargs: Any) -> Any:
            if inside():
                return direct(this, *args, **kwargs)
            return launch(this, args, kwargs).result()

        call = block
    inner = _described(original)
    call.__name__, call.__doc__ = name, inner.__doc__
    call.__qualname__ = getattr(inner, "__qualname__", name)
    call.__module__ = getattr(inner, "__module__", None) or __name__
    signature = _signature(original, method=method)
    hints = getattr(inner, "__annotations__", {})
    call.__annotations__ = {key: hint for key, hint in hints.items() if key in {*signature.parameters, "return"}}
    setattr(call, "__wrapped__", inner)  # noqa: B010 - as below; string annotations are read in its globals
    setattr(call, "__signature__", signature)  # noqa: B010 - mypy knows no such attribute of a function
    setattr(call, _LAUNCH, launch)
    setattr(call, _TALLY, tally)
    return call


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
    """The signature of `original` behind a first parameter of its own; what a partial has set is not asked for."""
    signature = inspect.signature(original)
    parameters = list(signature.parameters.values())[1 if method else 0 :]
    fixed: set[str] = set()
    function: Any = original
    while isinstance(function, functools.partial):
        fixed.update(function.keywords)
        function = function.func
    kept = [parameter for parameter in parameters if parameter.name not in fixed]
    return signature.replace(parameters=[Parameter("_this", Parameter.POSITIONAL_ONLY), *kept])

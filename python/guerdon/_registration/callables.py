"""What kind of callable something is: its name, and whether calling it gives an awaitable.

- K-1  Names are TRL's: the ``__name__`` of what a partial wraps, else the class name, so that metrics keep their names.
- K-2  Async is recognised as the lanes do: through partials, bound methods, ``async __call__`` and functools.wraps. A
       sync wrapper that drives a loop by itself (``asyncio.run``) is sync.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from guerdon._worker.invoke.async_detection import is_async

__all__ = ["code_names", "innermost", "is_async", "is_reward_model", "name_of"]


def innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` without the partials around it."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def code_names(target: Any, word: str) -> bool:
    """Whether the code of `target` (function, partial, method, callable object, `StatefulReward`) has `word` as a name or as a
    text."""
    target = innermost(target) if callable(target) else target
    functions = [target, getattr(target, "__wrapped__", None)]
    if not isinstance(target, (types.FunctionType, types.MethodType)):
        functions += [getattr(type(target), name, None) for name in ("__call__", "score", "finish_group")]
    return any(_in_code(getattr(function, "__code__", None), word) for function in functions)


def _in_code(code: types.CodeType | None, word: str) -> bool:
    if code is None:
        return False
    if word in code.co_names or word in code.co_consts:
        return True
    return any(_in_code(inner, word) for inner in code.co_consts if isinstance(inner, types.CodeType))


def name_of(target: object) -> str:
    """What metrics call it (K-1): ``"<lambda>"`` for a lambda, as TRL has it."""
    function = innermost(target) if callable(target) else target
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) and name else type(function).__name__


def is_reward_model(item: object) -> bool:
    """Whether TRL itself runs it, a reward model: a model name or a ``torch.nn.Module``. Doesn't import torch."""
    if isinstance(item, str):
        return True
    return any(
        base.__name__ == "Module" and base.__module__ == "torch.nn.modules.module" for base in type(item).__mro__
    )

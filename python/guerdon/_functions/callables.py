"""The name of a callable, and whether calling it gives an awaitable.

- Names are TRL's: the ``__name__`` of what a partial wraps, else the class name, so that metrics
  keep their names.
- Async is detected as the lanes do it: through partials, bound methods, ``async __call__`` and
  functools.wraps. A sync wrapper that runs a loop itself (``asyncio.run``) is sync.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from guerdon._worker.invoke.async_detection import is_async

__all__ = ["code_mentions", "find_attribute", "innermost", "is_async", "is_reward_model", "name_of"]


def innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` without the partials around it."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def code_mentions(target: Any, name: str) -> bool:
    """Returns whether the code of `target` (any callable or `StatefulReward`) has a name or string
    `name`."""
    target = innermost(target) if callable(target) else target
    functions = [target, getattr(target, "__wrapped__", None)]
    if not isinstance(target, (types.FunctionType, types.MethodType)):
        functions += [getattr(type(target), method, None) for method in ("__call__", "score", "finish_group")]
    return any(_in_code(getattr(function, "__code__", None), name) for function in functions)


def _in_code(code: types.CodeType | None, name: str) -> bool:
    if code is None:
        return False
    if name in code.co_names or name in code.co_consts:
        return True
    return any(_in_code(inner, name) for inner in code.co_consts if isinstance(inner, types.CodeType))


def name_of(target: object) -> str:
    """Its name in metrics; ``"<lambda>"`` for a lambda, as in TRL."""
    function = innermost(target) if callable(target) else target
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) and name else type(function).__name__


def find_attribute(module: types.ModuleType | None, qualname: str) -> object:
    """The attribute ``module.qualname``, or None if it does not exist."""
    found: object = module
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found


def is_reward_model(item: object) -> bool:
    """Returns whether it is a reward model, which TRL runs: a model name or a ``torch.nn.Module``.

    Doesn't import torch.
    """
    if isinstance(item, str):
        return True
    return any(
        base.__name__ == "Module" and base.__module__ == "torch.nn.modules.module" for base in type(item).__mro__
    )

"""An environment's own ``get_reward`` as a reward column of a dispatcher.

It runs on the environment concurrently, with a timeout, and its failures are those of any other
function.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any

from guerdon.dispatcher import Dispatcher
from guerdon.errors import RegistrationError, ToolError
from guerdon.functions import reward
from guerdon.integrations.trl.tool_calls.environments import REWARD, Environments, owner_of, user_class_of
from guerdon.limits import Limit
from guerdon.results.status import Status

# Rewards of environments that may be computed at once in this process.
_MAX_CONCURRENT = 128


def use_reward_columns(functions: list[Any], factories: Sequence[Environments]) -> Dispatcher | None:
    """Puts columns of a dispatcher in place of the functions that a trainer made of ``get_reward``.

    Args:
        functions: All of the trainer's.
        factories: Of its environments.

    Returns:
        The dispatcher; None if no environment has a reward of its own.
    """
    classes = {}
    for index, function in enumerate(functions if factories else ()):
        kind = _environment_class_of(function)
        if kind is not None:
            classes[index] = kind
    if not classes:
        return None
    dispatcher = _reward_dispatcher(list(classes.values()), factories)
    for index, column in zip(classes, dispatcher.reward_funcs, strict=True):
        functions[index] = column
    return dispatcher


def _reward_dispatcher(kinds: Sequence[type], factories: Sequence[Environments]) -> Dispatcher:
    """A dispatcher with the ``get_reward`` of each of these classes of environments.

    Args:
        factories: Those of the environments; each environment has the timeout of its own.

    Raises:
        RegistrationError: Two classes have one name.
    """
    names = [kind.__name__ for kind in kinds]
    for name in names:
        if names.count(name) > 1:
            raise RegistrationError(
                f"two factories make environments of classes called {name}, whose rewards would be two columns of that "
                "name: rename one."
            )
    longest = max(factory.timeout_of(REWARD) for factory in factories)
    limit = Limit(concurrency=_MAX_CONCURRENT)
    functions = [reward(_GetReward(kind, longest), name=kind.__name__, timeout=longest, limit=limit) for kind in kinds]
    return Dispatcher(functions, workers=1)


class _GetReward:
    """``get_reward`` of one class of environments; abstains on others.

    Args:
        timeout: Of the column. Environments of a factory with a shorter one end by that.
    """

    def __init__(self, kind: type, timeout: float) -> None:
        self._kind = kind
        self._timeout = timeout

    async def __call__(self, environment: Any) -> Any:
        if user_class_of(type(environment)) is not user_class_of(self._kind):
            return None
        owner = owner_of(environment)
        if owner is None:  # made by the caller and by no factory
            value = await asyncio.to_thread(environment.get_reward)
            return await value if inspect.isawaitable(value) else value
        own = owner.timeout_of(REWARD)
        try:
            async with asyncio.timeout(own if own < self._timeout else None) as bound:
                return await owner.reward(environment)
        except TimeoutError:
            if bound.expired():
                raise ToolError(f"get_reward took longer than {own:g} s", Status.TIMEOUT) from None
            raise


def _environment_class_of(function: Any) -> type | None:
    """The class whose ``get_reward`` a trainer wrapped in this function; None for any other
    function."""
    if not getattr(function, "__qualname__", "").endswith("__init__.<locals>.get_reward"):
        return None
    parameter = inspect.signature(function).parameters.get("_env_type")
    kind = None if parameter is None else parameter.default
    return kind if isinstance(kind, type) else None

"""An environment's own ``get_reward`` as a reward column of a dispatcher.

It runs on the environment concurrently, with a timeout, and its failures are those of any other
function.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
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

    Raises:
        RegistrationError: Two classes have one name.
    """
    found = {index: _environment_class_of(function) for index, function in enumerate(functions)}
    kinds = {index: kind for index, kind in found.items() if kind is not None}
    if not factories or not kinds:
        return None
    longest = max(factory.timeout_of(REWARD) for factory in factories)
    limit = Limit(concurrency=_MAX_CONCURRENT)
    rewards: dict[str, Any] = {}
    for kind in kinds.values():
        name = kind.__name__
        if name in rewards:
            raise RegistrationError(
                f"two factories make environments of classes called {name}, whose rewards would be two columns of that "
                "name: rename one."
            )
        rewards[name] = reward(_GetReward(kind, longest), name=name, timeout=longest, limit=limit)
    dispatcher = Dispatcher(rewards.values(), workers=1)
    for index, column in zip(kinds, dispatcher.reward_funcs, strict=True):
        functions[index] = column
    return dispatcher


@dataclass(frozen=True, eq=False)
class _GetReward:
    """``get_reward`` of one class of environments; abstains on others.

    Attributes:
        timeout: Of the column. Environments of a factory with a shorter one end by that.
    """

    kind: type
    timeout: float

    async def __call__(self, environment: Any) -> Any:
        if user_class_of(type(environment)) is not user_class_of(self.kind):
            return None
        owner = owner_of(environment)
        if owner is None:  # made by the caller and by no factory
            value = await asyncio.to_thread(environment.get_reward)
            return await value if inspect.isawaitable(value) else value
        own = owner.timeout_of(REWARD)
        try:
            async with asyncio.timeout(own if own < self.timeout else None) as bound:
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
    return parameter.default if parameter is not None and isinstance(parameter.default, type) else None

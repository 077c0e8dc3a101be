"""An environment's own ``get_reward`` as a reward column of a dispatcher.

It runs on the environment concurrently, with a timeout, and its failures are those of any other
function.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from guerdon.dispatcher import Dispatcher
from guerdon.errors import RegistrationError
from guerdon.functions import reward
from guerdon.integrations.trl.tool_calls.environments import REWARD, owner_of, owner_of_class, user_class_of
from guerdon.limits import Limit

__all__ = ["use_reward_columns"]

# Rewards of environments that may be computed at once in this process.
_MAX_CONCURRENT = 128


def use_reward_columns(trainer: Any) -> Dispatcher | None:
    """Puts columns of a dispatcher in place of the functions that a trainer made of ``get_reward``.

    Returns:
        The dispatcher; None if no environment has a reward of its own.
    """
    classes = {}
    for index, function in enumerate(trainer.reward_funcs):
        kind = _environment_class_of(function)
        if kind is not None:
            classes[index] = kind
    if not classes:
        return None
    dispatcher = _reward_dispatcher(list(classes.values()))
    for index, column in zip(classes, dispatcher.reward_funcs, strict=True):
        trainer.reward_funcs[index] = column
    return dispatcher


def _reward_dispatcher(kinds: Sequence[type]) -> Dispatcher:
    """A dispatcher with the ``get_reward`` of each of these classes of environments.

    Raises:
        RegistrationError: Two classes have one name.
    """
    named: dict[str, type] = {}
    for kind in kinds:
        if (other := named.get(kind.__name__)) is not None:
            same = user_class_of(other) is user_class_of(kind)
            cure = "give them to one call, environments({...}), or derive a class for one" if same else "rename one"
            raise RegistrationError(
                f"two factories make environments of {'the class' if same else 'classes called'} {kind.__name__}, "
                f"whose rewards would be two columns of that name: {cure}."
            )
        named[kind.__name__] = kind
    functions = []
    for kind in kinds:
        owner = owner_of_class(kind)
        plain = user_class_of(kind)
        timeout = None if owner is None else owner.timeout_of(REWARD)
        limit = Limit(concurrency=_MAX_CONCURRENT)
        functions.append(reward(_GetReward(plain), name=plain.__name__, timeout=timeout, limit=limit))
    return Dispatcher(functions, workers=1)


class _GetReward:
    """``get_reward`` of one class of environments; abstains on others."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    async def __call__(self, environment: Any) -> Any:
        if user_class_of(type(environment)) is not self._kind:
            return None
        owner = owner_of(environment)
        return environment.get_reward() if owner is None else await owner.reward(environment)


def _environment_class_of(function: Any) -> type | None:
    """The class whose ``get_reward`` a trainer wrapped in this function; None for any other
    function."""
    if not getattr(function, "__qualname__", "").endswith("__init__.<locals>.get_reward"):
        return None
    parameter = inspect.signature(function).parameters.get("_env_type")
    kind = None if parameter is None else parameter.default
    return kind if isinstance(kind, type) else None

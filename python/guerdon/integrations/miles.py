"""miles' custom reward, ``async rm(args, sample)``, by ``--custom-rm-path my_rewards.rm``.

miles took slime's contract over, samples, lists and ``remove_sample`` included.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from guerdon.dispatcher import Dispatcher
from guerdon.integrations import slime

__all__ = ["reward_function"]


def reward_function(dispatcher: Dispatcher, *, failure_value: float) -> Callable[..., Awaitable[Any]]:
    """Returns a custom reward for miles; see `guerdon.integrations.slime.reward_function`.

    Raises:
        RegistrationError: A function works on whole groups, or `failure_value` is not finite.
    """
    return slime.reward_function(dispatcher, failure_value=failure_value, framework="miles")

"""`probe`: the level of isolation that holds on this machine, or the missing parts.

Everything forbidden is tried once in a process; what holds does not change while that runs.
"""

from __future__ import annotations

from functools import cache

from guerdon.errors import RegistrationError
from guerdon.rewards.code.zygote.fence import FenceSpec
from guerdon.rewards.code.zygote.fence_probe import ProbeError, attempts
from guerdon.rewards.code.zygote.level import Level, checked_level

__all__ = ["Level", "probe"]


@cache
def probe(spec: FenceSpec) -> Level:
    """The level that holds on this machine.

    Raises:
        RegistrationError: Something forbidden succeeded under ``"strict"``, could not be tried, or
            honest programs can't do their work there.
    """
    if spec.isolation == "none":
        return Level("none")
    try:
        found = attempts(spec)
    except ProbeError as error:
        raise RegistrationError(f'code_reward: isolation="strict" could not be tried here: {error}') from error
    level = checked_level(found.layers, found.acts)
    if found.shortcomings:
        raise RegistrationError(
            f'code_reward: isolation="strict" keeps honest programs from their work here: none can {found.shortcomings[0]}'
        )
    return level

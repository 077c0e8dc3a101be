"""`probe`: the level of isolation that holds on this machine, or what is missing for it.

Everything forbidden is tried once in a process; what holds does not change while that runs.
"""

from __future__ import annotations

from functools import cache

from guerdon._code.fence import FenceSpec
from guerdon._code.fence_probe import ProbeError, attempts
from guerdon._code.level import Level, checked_level
from guerdon.errors import RegistrationError

__all__ = ["Level", "probe"]


@cache
def probe(spec: FenceSpec) -> Level:
    """The level that holds on this machine.

    Raises:
        RegistrationError: Something forbidden succeeded under ``"strict"``, or could not be tried.
    """
    if spec.isolation == "none":
        return Level("none")
    try:
        found = attempts(spec)
    except ProbeError as error:
        raise RegistrationError(f'code_reward: isolation="strict" could not be tried here: {error}') from error
    return checked_level(found.layers, found.acts)

"""DAPO's penalty for responses that are almost too long, by the settings of verl's DAPO manager.

``overlong_buffer_cfg`` and ``max_resp_len`` have DAPO's meaning: within the last ``len`` of
``max_resp_len`` tokens the penalty grows from 0 to ``penalty_factor``, and on beyond them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from guerdon.errors import RegistrationError

_WHERE: Final = "reward.reward_kwargs"
_FIELDS: Final = ("enable", "len", "penalty_factor", "log")


@dataclass(frozen=True)
class Overlong:
    """The penalty.

    Attributes:
        buffer: Tokens over which it grows.
        factor: What it reaches at `most` tokens.
        most: Tokens of the longest response.
        log: Whether each response's ``reward_extra_info`` has it.
    """

    buffer: int
    factor: float
    most: int
    log: bool

    def penalty(self, tokens: int) -> float:
        """Returns the penalty on a response of this length: 0 or less."""
        return min(-(tokens - (self.most - self.buffer)) / self.buffer * self.factor, 0.0)

    def info(self, penalty: float) -> dict[str, Any]:
        """Returns the figures of one response, for verl's log."""
        return {"overlong_reward": penalty, "overlong": penalty < 0} if self.log else {}


def read(given: Mapping[str, Any]) -> Overlong | None:
    """The penalty that ``reward_kwargs`` ask for; None without one.

    Raises:
        RegistrationError: A setting is missing or can't work.
    """
    config = given.get("overlong_buffer_cfg")
    if config is None:
        return None
    if not isinstance(config, Mapping):
        raise RegistrationError(f"{_WHERE}.overlong_buffer_cfg={config!r}: expected settings by name: {_names()}.")
    unknown = [name for name in config if name not in _FIELDS]
    if unknown:
        raise RegistrationError(f"{_WHERE}.overlong_buffer_cfg.{unknown[0]} is unknown. Its settings are {_names()}.")
    if not config.get("enable"):
        return None
    buffer = _tokens("overlong_buffer_cfg.len", config.get("len"))
    most = _tokens("max_resp_len", given.get("max_resp_len"))
    if most < buffer:
        raise RegistrationError(
            f"{_WHERE}.max_resp_len={most} is less than overlong_buffer_cfg.len={buffer}: the buffer is the end of a response."
        )
    factor = config.get("penalty_factor")
    if not isinstance(factor, (int, float)) or isinstance(factor, bool) or not math.isfinite(factor):
        raise RegistrationError(f"{_WHERE}.overlong_buffer_cfg.penalty_factor={factor!r}: expected a number.")
    return Overlong(buffer, float(factor), most, bool(config.get("log")))


def _names() -> str:
    return ", ".join(_FIELDS)


def _tokens(name: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise RegistrationError(
        f"{_WHERE}.{name}={value!r}: with overlong_buffer_cfg.enable=True expected a number of tokens, at least 1."
    )

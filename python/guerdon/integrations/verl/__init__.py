"""verl's reward loop: `RewardManager`, chosen by configuration alone.

This module holds only the map of public names, each imported when first used: importing it imports neither verl nor torch.

- `manager`: the class that verl makes, one in each of its reward workers.
- `settings`: what the configuration says, checked.
- `sample`: what verl knows of a response, as the columns that reward functions name.
- `compute_score`: a function of verl's own contract as a reward function.
- `bursts`: responses that come in one moment, scored together.
- `groups`, `peers`: the responses of one prompt put together, wherever they arrive.
- `early`: a group that is scored while it fills.
- `answer`: rewards as verl takes them, and what becomes of a failure.
"""

from __future__ import annotations

from typing import Final

__all__ = ["RewardManager"]

_HOMES: Final[dict[str, str]] = {"RewardManager": "manager"}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

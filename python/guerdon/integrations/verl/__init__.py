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

from typing import TYPE_CHECKING, Final

from guerdon._lazy_imports import names as _names

if TYPE_CHECKING:
    from guerdon.integrations.verl.reward_manager import RewardManager

__all__ = ["RewardManager"]

_HOMES: Final = {"RewardManager": "reward_manager"}

__getattr__, __dir__ = _names(globals(), _HOMES)

"""verl's reward loop: `RewardManager`, chosen by configuration alone.

Importing this module imports neither verl nor torch: the class is loaded when first used.

- `reward_manager`, `plugin`: the class that verl makes, one in each reward worker, and its name.
- `settings`, `overlong`, `compute_score`: what the configuration says, and verl's own function as a
  reward.
- `sample`, `reward_output`: a response as columns, and its reward as verl takes it.
- `groups`, `siblings`, `routing`, `origin`: the responses of one prompt put together, wherever they
  come.
- `worker_restarts`, `answered_groups`: a reward worker that is lost is started again, and its
  responses are answered once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guerdon._system.lazy_imports import names as _names

if TYPE_CHECKING:
    from guerdon.integrations.verl.reward_manager import RewardManager

__all__ = ["RewardManager"]

_HOMES: Final = {"RewardManager": "reward_manager"}

# Found by its own name, for any name that verl gives the module that it loads from a file's path.
__getattr__, __dir__ = _names(globals(), _HOMES, package="guerdon.integrations.verl")

"""Has Ray start verl's reward workers again when they are lost, and make their calls again.

verl makes them without restarts, and asks for all of a batch's scores at once: one lost worker
would end the training step. Therefore the one method that makes them is wrapped, in the trainer's
process, for our managers alone. A verl without that method is left as it is, with a warning.
"""

from __future__ import annotations

import functools
import sys
import warnings
from typing import Any, Final

from guerdon.errors import GuerdonWarning
from guerdon.integrations.verl import settings

_LOOP: Final = "verl.experimental.reward_loop.reward_loop"
_DONE: Final = "_guerdon_restarts"


def install() -> None:
    """Wraps the method, once; verl has imported it when it loads a reward manager."""
    loop = sys.modules.get(_LOOP)
    manager = getattr(loop, "RewardLoopManager", None)
    make = getattr(manager, "_init_reward_loop_workers", None)
    if make is None or not hasattr(loop, "RewardLoopWorker"):
        _warn(f"{_LOOP} has no RewardLoopManager._init_reward_loop_workers or no RewardLoopWorker")
    elif not hasattr(make, _DONE):

        @functools.wraps(make)
        def with_restarts(self: Any) -> None:
            _change(self, loop)
            make(self)

        setattr(with_restarts, _DONE, True)
        manager._init_reward_loop_workers = with_restarts  # type: ignore[union-attr]


def _change(manager: Any, loop: Any) -> None:
    """The class of the workers that `manager` is about to make."""
    if not hasattr(manager, "reward_manager_cls") or not hasattr(manager, "reward_loop_workers_class"):
        _warn("RewardLoopManager has no reward_manager_cls or no reward_loop_workers_class")
        return
    restarts = (
        settings.restarts(manager.config) if getattr(manager.reward_manager_cls, "restarts_workers", False) else 0
    )
    if restarts:
        import ray

        made = ray.remote(max_restarts=-1, max_task_retries=restarts)
        manager.reward_loop_workers_class = made(loop.RewardLoopWorker)


def _warn(lacks: str) -> None:
    warnings.warn(
        f"{lacks} in this version of verl: a reward worker that is lost (its process killed, its node gone) is not started "
        "again, and the training step fails with it. verl 0.9.1 is the version that this was made for.",
        GuerdonWarning,
        stacklevel=2,
    )

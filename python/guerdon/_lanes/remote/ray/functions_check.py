"""The last check of a node before any call: its functions can be imported there, and set up."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from guerdon._functions.functions_check import check

if TYPE_CHECKING:
    from guerdon._lanes.remote.agent import NodeAgent

__all__ = ["check_functions"]


def check_functions(agent: NodeAgent, timeout: float) -> None:
    """Refuses functions that can't run on this machine.

    Args:
        agent: The one that is to run them.
        timeout: Seconds that they may take together.

    Raises:
        RegistrationError: One can't; each with its reason.
    """
    # All that functions name in env=: each of them may need some in its setup().
    named = dict(pair for config in agent.content.functions for pair in config["resource_limits"]["environment"])
    end = time.monotonic() + timeout
    for functions, environment in (
        (agent.functions, dict(agent.environment) | named),
        (agent.own_functions, dict(os.environb)),
    ):
        if functions is not None:
            check(agent.python, agent.worker_dir, functions, environment, max(0.0, end - time.monotonic()))

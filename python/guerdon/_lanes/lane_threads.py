"""The threads of the lanes, and how to tell that the code at hand runs on one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from guerdon._native import Lanes

__all__ = ["LaneThread", "is_lane_thread"]


class LaneThread(threading.Thread):
    """A thread that runs reward functions for an engine.

    Attributes:
        lanes: The engine's, those of its `ThreadSupervisor`.
    """

    def __init__(self, lanes: Lanes, target: Callable[[], None], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self.lanes = lanes


def is_lane_thread(lanes: Lanes) -> bool:
    """Whether this is a thread of these lanes, which can't wait for its own end."""
    current = threading.current_thread()
    return isinstance(current, LaneThread) and current.lanes is lanes

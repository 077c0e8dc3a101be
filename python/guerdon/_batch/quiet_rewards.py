"""Reports reward functions that always abstain, or give every sample the same reward.

- A function is checked until two of its answers differ, or until it was reported: from then on a
  batch costs nothing.
- Calls that failed or were skipped do not count as answers.
- It is a warning and never an error: the dataset may be the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from guerdon._system.warning import warn
from guerdon.errors import QuietRewardWarning
from guerdon.results.status import Status

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ABSTAINED_SAMPLES: Final = 64
"""Samples after which a function that has abstained on each is reported."""

EQUAL_SAMPLES: Final = 256
"""Samples after which a function that gave each the same number is reported."""


class QuietRewards:
    """The functions of one dispatcher whose answers were all alike so far.

    Args:
        names: Of all its functions, in order.
        example: Gives the beginning of a completion that was scored.
    """

    def __init__(self, names: Iterable[str], example: Callable[[], str]) -> None:
        self._example = example
        # By place: the name, the samples that were answered alike, and their reward, None for
        # abstentions and before the first. Threads that complete batches write it; two at once may
        # lose a count, which makes a report come later.
        self._open = {place: _EqualAnswers(name) for place, name in enumerate(names)}

    def allow_equal(self) -> None:
        """Stops all reports."""
        self._open.clear()

    def check(self, rewards: NDArray[np.float32], status: NDArray[np.uint8]) -> None:
        """Checks the cells of some samples; the last axis is the functions."""
        for place in tuple(self._open):
            so_far = self._open.get(place)
            if so_far is None:
                continue
            message = so_far.add(rewards[..., place], status[..., place])
            # Only the thread that takes it out reports it.
            if so_far.decided and self._open.pop(place, None) is not None and message is not None:
                warn(f"{message} The first completion was: {self._example()}", category=QuietRewardWarning)


class _EqualAnswers:
    """The answers of one function, as long as they are all alike."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._samples = 0
        self._reward: float | None = None
        self.decided = False

    def add(self, rewards: NDArray[np.float32], status: NDArray[np.uint8]) -> str | None:
        """Checks some cells; returns the message if the function is to be reported."""
        given = rewards[status == Status.OK]
        abstained = int((status == Status.ABSTAINED).sum())
        if given.size == 0:
            self.decided = abstained > 0 and self._reward is not None
            self._samples += abstained
            if self.decided or self._samples < ABSTAINED_SAMPLES or self._reward is not None:
                return None
            self.decided = True
            return (
                f"reward function {self._name!r} abstained on each of its first {self._samples} samples: it returned None, "
                "so no sample has a reward from it. Does it forget a return? Does a branch without one take every "
                "sample, since completions or columns are not in the form that it expects? If it is right, and the "
                "data too hard or not meant for it, ignore this."
            )
        value = float(given.flat[0])
        before = self._reward if self._samples else value
        if abstained or before != value or bool((given != given.flat[0]).any()):
            self.decided = True
            return None
        self._reward = value
        self._samples += given.size
        if self._samples < EQUAL_SAMPLES:
            return None
        self.decided = True
        return (
            f"reward function {self._name!r} gave the reward {value:g} to each of its first {self._samples} samples: nothing "
            "can be learned from it. Does it read the right column, and the form that completions have? Does it catch "
            "an exception and return a default? A hard data set may be the reason too, or an easy one: then ignore this."
        )

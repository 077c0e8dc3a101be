"""Results of a batch: `RewardBatch`, its groups, samples, failures and the status of a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon.results.status import Status

if TYPE_CHECKING:
    from guerdon.results.reward_batch import Failure, Group, RewardBatch, SampleResult

__all__ = ["Failure", "Group", "RewardBatch", "SampleResult", "Status"]


def __getattr__(name: str) -> object:
    # A status is used where NumPy is not, so the rest is loaded when used.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from guerdon.results import reward_batch

    found = globals()[name] = getattr(reward_batch, name)
    return found

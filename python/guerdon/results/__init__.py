"""What comes of a batch: `RewardBatch`, its groups, samples, failures and the status of a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guerdon._system.lazy_imports import names as _names

if TYPE_CHECKING:
    from guerdon.results.reward_batch import Failure, Group, RewardBatch, SampleResult
    from guerdon.results.status import Status

__all__ = ["Failure", "Group", "RewardBatch", "SampleResult", "Status"]

_HOMES: Final = {**dict.fromkeys(__all__, "reward_batch"), "Status": "status"}

# A status is used where NumPy is not: what needs it is loaded when used.
__getattr__, __dir__ = _names(globals(), _HOMES)

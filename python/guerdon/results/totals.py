"""Sums of a sample's cells; arrays are ``[..., F]``, results ``[...]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from guerdon.results.status import Status

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Constant that TRL adds to the standard deviation that it divides by: trl/trainer/grpo_trainer.py,
# `advantages / (std_rewards + 1e-4)`.
EPSILON: Final = 1e-4
_LARGEST: Final = float(np.finfo(np.float32).max)


def failed_samples(rewards: NDArray[np.float32], status: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Samples on which a function failed without leaving a number."""
    failed = (status >= Status.TIMEOUT) & (status <= Status.CANCELLED)
    return np.asarray((failed & np.isnan(rewards)).any(axis=-1))


def unscorable(rewards: NDArray[np.float32], status: NDArray[np.uint8], incomplete: str) -> NDArray[np.bool_]:
    """Samples without a total: those without any number, and unless `incomplete` is "sum" the
    failed ones."""
    empty = np.asarray(np.isnan(rewards).all(axis=-1))
    return empty if incomplete == "sum" else empty | failed_samples(rewards, status)


def total(
    rewards: NDArray[np.float32], unscorable: NDArray[np.bool_], weights: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Weighted sum of the cells that hold a number; NaN for an unscorable sample.

    A sum beyond float32 is the largest float32 of its sign: an infinite one would leave its whole
    group without an advantage.
    """
    # Equals TRL's sum to the bit, in float32; what overflows there is summed again, in float64.
    with np.errstate(over="ignore", invalid="ignore"):
        summed = np.asarray(np.nansum(rewards * weights, axis=-1, dtype=np.float32))
    beyond = ~np.isfinite(summed)
    if beyond.any():
        terms = rewards[beyond].astype(np.float64) * np.broadcast_to(weights, rewards.shape)[beyond]
        summed[beyond] = np.clip(np.nansum(terms, axis=-1), -_LARGEST, _LARGEST)
    summed[unscorable] = np.nan
    return summed


def advantages(total: NDArray[np.float32], scale: str) -> NDArray[np.float32]:
    """``[P, G]``: each total minus the mean of its group's numbers; 0 for an unscorable sample.

    Args:
        total: ``[P, G]``, NaN for an unscorable sample.
        scale: As in `RewardBatch.advantages`.
    """
    wide = total.astype(np.float64)
    found = wide - _mean(wide)
    if scale == "group":
        found /= (_std(wide) if wide.shape[1] > 1 else 0.0) + EPSILON
    elif scale == "batch":
        found /= (_std(wide.reshape(1, -1)) if wide.size > 1 else 0.0) + EPSILON
    return np.clip(np.nan_to_num(found, nan=0.0), -_LARGEST, _LARGEST).astype(np.float32)


def _mean(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of each row's numbers, ``[rows, 1]``; The mean of a row without numbers is NaN."""
    counts = (~np.isnan(rows)).sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.nansum(rows, axis=1, keepdims=True) / counts)


def _std(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard deviation of each row's numbers with Bessel's correction; NaN with fewer than two
    (trl/trainer/utils.py, `nanstd`)."""
    counts = (~np.isnan(rows)).sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = np.nansum((rows - _mean(rows)) ** 2, axis=1, keepdims=True) / (counts - 1)
    return np.asarray(np.sqrt(np.where(counts > 1, variance, np.nan)))

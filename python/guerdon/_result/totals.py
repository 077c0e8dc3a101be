"""What a sample's cells add up to; arrays are ``[..., F]``, results ``[...]``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from guerdon.status import Status

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
    """Weighted sum of the cells that hold a number; NaN for an unscorable sample."""
    summed = np.asarray(np.nansum(rewards * weights, axis=-1, dtype=np.float32))
    summed[unscorable] = np.nan
    return summed

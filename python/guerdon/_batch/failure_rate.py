"""Failure rates of functions, over their last samples on all ranks together.

- failure-rate-1  A function is judged after its first 64 samples, over the last 256 of them (over
  all of the last batch if that is larger). Before, only a batch of at least 8 samples that all
  failed is too much.
- Samples for which a function was not called (``run_if``) don't count.
- failure-rate-2  The rate depends only on the batches that were added, so ranks that add the same
  ones get the same result. A function that was found to fail too often starts from zero.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from guerdon._batch.failures import BatchFailures, FunctionFailures, describe

WINDOW: Final = 256
"""Samples of a function over which its failures are counted."""

MIN_JUDGED: Final = 64
"""Samples of a function before which its rate is not judged."""

MIN_ALL_FAILED: Final = 8
"""Samples of a batch that end it at once if all of them failed."""


class _Run(NamedTuple):
    """Some samples that came together, and the places of those that failed, ascending."""

    samples: int
    failed: tuple[int, ...]


class FailureWindow:
    """The last samples of one function.

    Attributes:
        samples: How many they are.
        failed: How many of them failed.
    """

    def __init__(self) -> None:
        self._runs: deque[_Run] = deque()  # empty while none has failed
        self.samples = 0
        self.failed = 0

    def add(self, samples: int, failed: Sequence[int] = ()) -> None:
        """Adds a batch, and drops the oldest samples.

        Args:
            failed: Places of the samples that failed, ascending.
        """
        if samples == 0:
            return
        if not failed and not self.failed:  # what most batches are
            self._runs.clear()
            self.samples = min(self.samples + samples, max(WINDOW, samples))
            return
        if not self._runs and self.samples:
            self._runs.append(_Run(self.samples, ()))
        self._runs.append(_Run(samples, tuple(failed)))
        self.samples += samples
        self.failed += len(failed)
        excess = self.samples - max(WINDOW, samples)
        while excess > 0:
            oldest = self._runs.popleft()
            gone = min(excess, oldest.samples)
            cut = bisect_left(oldest.failed, gone)
            if gone < oldest.samples:
                rest = tuple(place - gone for place in oldest.failed[cut:])
                self._runs.appendleft(_Run(oldest.samples - gone, rest))
            self.samples -= gone
            self.failed -= cut
            excess -= gone

    def too_many(self, samples: int, failed: int, limit: float) -> bool:
        """Returns whether the function fails too often, after a batch of `samples` samples was
        added, of which `failed` failed (failure-rate-1)."""
        if failed == 0 or limit >= 1:
            return False
        return _all_failed(samples, failed) or (self.samples >= MIN_JUDGED and self.failed > limit * self.samples)


class FailureRate:
    """The failure rates of a dispatcher's functions, as one trainer sees them.

    Args:
        limits: The share of failures that is allowed, by function.
    """

    def __init__(self, limits: Mapping[str, float]) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._windows = {name: FailureWindow() for name in limits}  # under the lock

    def add(self, ranks: Sequence[BatchFailures | None]) -> str | None:
        """Counts a batch.

        Args:
            ranks: Its failures on each rank, None for a rank that scored nothing.

        Returns:
            The error message if a function fails too often, the same on every rank.
        """
        known = [(rank, one) for rank, one in enumerate(ranks) if one is not None]
        with self._lock:
            messages = [self._add(name, known, len(ranks)) for name in self._limits]
        return "\n".join(filter(None, messages)) or None

    def add_whole(self, samples: int) -> None:
        """Counts a batch in which every call gave a number."""
        with self._lock:
            for window in self._windows.values():
                window.add(samples)

    def after_fork(self) -> None:
        """Runs in a forked child: the lock may have been held."""
        self._lock = threading.Lock()

    def _add(self, name: str, known: Sequence[tuple[int, BatchFailures]], ranks: int) -> str | None:
        places: list[int] = []
        samples = 0
        found: list[tuple[int, FunctionFailures]] = []
        for rank, batch in known:
            failures = batch.functions.get(name)
            skipped = batch.skipped.get(name, ())
            if failures is not None:
                found.append((rank, failures))
                called = (sample - bisect_left(skipped, sample) for sample in failures.samples)
                places.extend(samples + place for place in called)
            samples += batch.samples - len(skipped)
        # A batch with cancelled calls is judged by itself, because these are not evidence about
        # later calls.
        alone = any(batch.cancelled for _, batch in known)
        window = FailureWindow() if alone else self._windows[name]
        window.add(samples, places)
        limit = self._limits[name]
        if not window.too_many(samples, len(places), limit):
            return None
        if not alone:
            self._windows[name] = FailureWindow()  # (failure-rate-2)
        everywhere = f" on {ranks} ranks" if ranks > 1 else ""
        allowed = f"(limit {100 * limit:.3g} %)"
        failed = f"{len(places)} of {samples} samples{everywhere} {allowed}"
        if window.samples > samples and not _all_failed(samples, len(places)):
            last = f"{window.failed} of its last {window.samples} samples{everywhere} {allowed}"
            failed = f"{last}, in this batch on {len(places)} of {samples}"
        return describe(name, failed, found, ranks=ranks)


def _all_failed(samples: int, failed: int) -> bool:
    """Returns whether a batch shows by itself that the function does not work."""
    return failed == samples >= MIN_ALL_FAILED

"""Bounds of the work taken in at once: samples, and bytes of bodies.

- A permit is given back exactly once, by leaving the `with`.
- A request of many samples that is refused has room kept for it until it comes again.
- `Retry-After` is how long the samples ahead take at the pace of the last ones, 1 to 30 s.

All of it runs on one event loop: no locks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final

from guerdon._serve.errors import RequestError

if TYPE_CHECKING:
    from typing import Self

_SOONEST_S: Final = 1.0
_LATEST_S: Final = 30.0
_LATE_S: Final = 1.0  # a client comes that much later than it was told
_MEMORY: Final = 0.9  # of the pace so far, with each second


class Permits:
    """The permits of one server.

    Args:
        max_samples: Samples in flight and queued.
        max_bytes: Bytes of bodies that are read or scored.
        clock: Seconds.

    Attributes:
        samples: In flight and queued now.
        bytes: Of bodies now.
    """

    def __init__(self, max_samples: int, max_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_samples = max_samples
        self._max_bytes = max_bytes
        self._clock = clock
        self.samples = 0
        self.bytes = 0
        self._pace = 0.0  # samples a second
        self._since = clock()
        self._ended = 0
        # Samples kept free for a refused request of several, and from when until when.
        self._kept = 0
        self._kept_from = self._kept_until = self._since

    def take_samples(self, count: int) -> Samples:
        """Takes permits for `count` samples.

        Raises:
            RequestError: There are more than there can ever be (413), or at present (429).
        """
        if count > self._max_samples:
            raise RequestError(
                413, f"{count} samples in one request: this server takes {self._max_samples} at once (--max-samples)."
            )
        now = self._clock()
        kept = self._kept if count < self._kept and now < self._kept_until else 0
        if self.samples + count + kept > self._max_samples:
            self._keep_room(count, now)
            raise RequestError(
                429,
                f"{self.samples} samples are in flight, of {self._max_samples} (--max-samples).",
                retry_after=self.retry_after(count),
            )
        if self._kept and count >= self._kept:
            self._kept, self._kept_from, self._kept_until = 0, now, now
        self.samples += count
        return Samples(self, count)

    def _keep_room(self, count: int, now: float) -> None:
        """Keeps room for a refused request, so that single samples don't keep it out for ever.

        Room that nobody came for is not kept again for as long as it was: a client that does not
        come back, or only asks, keeps nobody out for more than half of the time.
        """
        if count > 1 and now >= self._kept_until + (self._kept_until - self._kept_from):
            self._kept, self._kept_from = count, now
            self._kept_until = now + self.retry_after(count) + _LATE_S

    def retry_after(self, count: int) -> float:
        """Seconds until there may be room for `count` samples."""
        self._measure()
        ahead = self.samples + count - self._max_samples
        return min(max(ahead / self._pace if self._pace else _SOONEST_S, _SOONEST_S), _LATEST_S)

    def _take_bytes(self, count: int) -> None:
        if self.bytes and self.bytes + count > self._max_bytes:
            raise RequestError(429, f"bodies of {self.bytes >> 20} MB are in memory already.", retry_after=_SOONEST_S)
        self.bytes += count

    def _end(self, count: int) -> None:
        self.samples -= count
        self._ended += count
        self._measure()

    def _measure(self) -> None:
        passed = self._clock() - self._since
        if passed >= 1.0:
            kept = _MEMORY**passed if self._pace else 0.0
            self._pace = kept * self._pace + (1 - kept) * self._ended / passed
            self._since += passed
            self._ended = 0


class Samples:
    """Permits for some samples, given back on leaving."""

    def __init__(self, owner: Permits, count: int) -> None:
        self._owner = owner
        self._count = count

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._owner._end(self._count)


class Bytes:
    """Permits for the bytes of one request, its body or its answer, given back on leaving."""

    def __init__(self, owner: Permits) -> None:
        self._owner = owner
        self._count = 0

    def take(self, count: int) -> None:
        """Takes more.

        Raises:
            RequestError: There are none at present.
        """
        self._owner._take_bytes(count)
        self._count += count

    def keep(self, count: int) -> None:
        """Holds `count` permits instead of the present number; they are there already, so none are
        refused."""
        self._owner.bytes += count - self._count
        self._count = count

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._owner.bytes -= self._count

"""Bounds of the work taken in at once: samples, and bytes of bodies.

A permit is given back exactly once, by leaving the `with`. All of it runs on one event loop: no
locks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Final

from guerdon._serve.errors import RequestError

if TYPE_CHECKING:
    from typing import Self

_RETRY_AFTER_S: Final = 1.0


class Permits:
    """The permits of one server.

    Args:
        max_samples: Samples in flight and queued.
        max_bytes: Bytes of bodies that are read or scored.

    Attributes:
        samples: In flight and queued now.
        bytes: Of bodies now.
    """

    def __init__(self, max_samples: int, max_bytes: int) -> None:
        self._max_samples = max_samples
        self._max_bytes = max_bytes
        self.samples = 0
        self.bytes = 0

    @contextmanager
    def take_samples(self, count: int) -> Iterator[None]:
        """Takes permits for `count` samples.

        Raises:
            RequestError: There are more than there can ever be (413), or at present (429).
        """
        if count > self._max_samples:
            raise RequestError(
                413, f"{count} samples in one request: this server takes {self._max_samples} at once (--max-samples)."
            )
        if self.samples + count > self._max_samples:
            raise RequestError(
                429,
                f"{self.samples} samples are in flight, of {self._max_samples} (--max-samples).",
                retry_after=_RETRY_AFTER_S,
            )
        self.samples += count
        try:
            yield
        finally:
            self.samples -= count

    def _take_bytes(self, count: int) -> None:
        if self.bytes and self.bytes + count > self._max_bytes:
            raise RequestError(
                429, f"bodies of {self.bytes >> 20} MB are in memory already.", retry_after=_RETRY_AFTER_S
            )
        self.bytes += count


class Bytes:
    """Permits for the bytes of one request, given back on leaving."""

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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._owner.bytes -= self._count

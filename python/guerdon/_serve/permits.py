"""Bounds of the work taken in at once: samples, and bytes of bodies.

A permit is given back exactly once, by leaving the `with`. All of it runs on one event loop: no
locks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from guerdon._serve.errors import RequestError

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

    @contextmanager
    def take_bytes(self) -> Iterator[Callable[[int], None]]:
        """Gives a function that takes permits for more bytes of one request; it raises
        `RequestError` (429) where there are none at present."""
        taken = 0

        def take(count: int) -> None:
            nonlocal taken
            if self.bytes and self.bytes + count > self._max_bytes:
                raise RequestError(
                    429, f"bodies of {self.bytes >> 20} MB are in memory already.", retry_after=_RETRY_AFTER_S
                )
            self.bytes += count
            taken += count

        try:
            yield take
        finally:
            self.bytes -= taken

"""``Batch``: how many samples a function takes in one call, and how long a call waits to be full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from guerdon._units import number
from guerdon.errors import RegistrationError

__all__ = ["Batch"]

_MOST: Final = 65536
_LONGEST_MS: Final = 60_000


@dataclass(frozen=True)
class Batch:
    """Calls on several samples at once, for functions that are faster so: reward models, embeddings.

    ``@reward(batch=Batch(max_size=32))`` has the function called with lists, one value a sample, in order. It returns a
    list of as many numbers. Samples of batches that wait at the same time go together. A call that fails is split in two, and
    so on, until the bad sample is alone: docs/batching.md.

    Args:
        max_size: The most samples of one call, 1 to 65536.
        max_wait_ms: Milliseconds that a sample waits for others, 0 to 60000, in a batch to which samples are still added.
            Where no more can come nothing waits: batches that were submitted whole never do.

    Raises:
        RegistrationError: A value is out of range.

    Example:
        >>> from guerdon import reward
        >>> @reward(batch=Batch(max_size=32))
        ... def lengths(texts: list[str]) -> list[float]:
        ...     return [float(len(text)) for text in texts]
        >>> lengths.spec.batch
        Batch(max_size=32, max_wait_ms=5.0)
    """

    max_size: int
    max_wait_ms: float = 5.0

    def __post_init__(self) -> None:
        # What was given, whatever the types say.
        size: object = self.max_size
        wait: object = self.max_wait_ms
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= _MOST:
            raise RegistrationError(
                f"Batch(max_size={size!r}): expected a whole number, 1 to {_MOST}: the most samples of one call."
            )
        if not 0 <= number(wait) <= _LONGEST_MS:
            raise RegistrationError(
                f"Batch(max_wait_ms={wait!r}): expected milliseconds, 0 to {_LONGEST_MS}: how long a sample may wait for "
                "others."
            )

"""How much of a reward function may run at once."""

from __future__ import annotations

from dataclasses import dataclass

from guerdon.errors import NotYetError, RegistrationError

__all__ = ["Limit"]


@dataclass(frozen=True)
class Limit:
    """A limit on the calls of one reward function.

    Args:
        concurrency: Calls in flight at once, at least 1. Without a limit: 256 on the asyncio lane, 8 on the thread
            lane, the number of workers on the process lane.
        rpm: Requests per minute. Not yet.
        tpm: Tokens per minute. Not yet.
        key: The endpoint whose limit this is, shared by all functions that name it. Not yet.

    Raises:
        RegistrationError: ``concurrency`` is not a whole number of at least 1, or nothing is limited.
        NotYetError: ``rpm``, ``tpm`` or ``key`` is given.

    Example:
        >>> Limit(concurrency=64).concurrency
        64
    """

    concurrency: int | None = None
    rpm: float | None = None
    tpm: float | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        for option in ("rpm", "tpm", "key"):
            if getattr(self, option) is not None:
                raise NotYetError(
                    f"Limit({option}=…) is not supported yet. Use Limit(concurrency=…), which bounds the calls in "
                    "flight."
                )
        if self.concurrency is None:
            raise RegistrationError("Limit() limits nothing. Give concurrency=, the number of calls in flight at once.")
        if isinstance(self.concurrency, bool) or not isinstance(self.concurrency, int):
            raise RegistrationError(
                f"Limit(concurrency={self.concurrency!r}): expected a whole number, got "
                f"{type(self.concurrency).__name__}."
            )
        if not 1 <= self.concurrency <= 65536:
            raise RegistrationError(f"Limit(concurrency={self.concurrency}): expected 1 to 65536 calls in flight.")

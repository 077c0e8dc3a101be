"""Limits on how fast, and how many at once, calls go to an endpoint; and how a function reports
that it was throttled.

A key is one endpoint: all functions, dispatchers and processes of this user on this host that name
a key share its limit, with the same numbers. Its file is in `folder`, under a hash of the key.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from guerdon._system.units import number
from guerdon.errors import GuerdonError, RegistrationError, with_known_options

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Limit", "RetryAfter"]

FOLDER = "GUERDON_LIMITS_DIR"
# Version of a shared limit's file, and of the engine: versions with different ones share no file.
_LAYOUT = 10
USUAL_CONCURRENCY = 256
"""Default of calls in flight at once, over all ranks, of a function on a lane whose calls wait; the
same as in the engine."""
_MOST_RATE = 1e9


@with_known_options
@dataclass(frozen=True)
class Limit:
    """A limit on the calls of a reward function, or of all that share an endpoint.

    Waiting for a limit is queueing: it never counts toward ``timeout``, only toward
    ``total_timeout`` and ``batch_timeout``. Each attempt counts, retries too. Throttling (status
    429, `RetryAfter`) lowers the rates for a while; successful calls raise them again.

    Args:
        concurrency: Calls in flight at once of each rank, at least 1. Without a limit: on the
            asyncio and http lanes 256 divided by the ranks of the run (``WORLD_SIZE``), at least 1;
            8 on the thread lane, the number of workers on the process lane. With a key: of all that
            name it together. Without one, under ``Dispatcher(cluster="host")``: limits of judges
            and asyncio functions, and all with rates, are those of all ranks of the host together.
        rpm: Requests (calls) per minute, at a steady rate, without an opening burst.
        tpm: Tokens per minute. What a call used is taken from its result, a dict with ``"score"``
            and ``"usage"`` (the object or dict that OpenAI-compatible servers send, or a number); a
            judge takes it from the response. Before that it counts the average of earlier calls.
        key: The endpoint whose limit this is: shared by all functions that name it, on any lane,
            and by all processes of this user on this host, ranks included. All of them must give
            the same numbers. Calls in flight of a process that dies are free again.
        tokens: An estimate of the tokens of a call until calls report their use, and for functions
            that can't report it (of groups and batches). Default: 1000. Or a function that counts
            them for each sample before its call: it takes columns by name, as a per-sample reward
            function does, and runs in this process when a batch is submitted; the reported use then
            corrects it. No more than ``tpm``: a call with more fails at once.

    Raises:
        RegistrationError: A value is out of range, or nothing is limited.

    Examples:
        >>> Limit(rpm=600, tpm=90_000, key="judge")
        Limit(concurrency=None, rpm=600, tpm=90000, key='judge', tokens=None)
    """

    concurrency: int | None = None
    rpm: float | None = None
    tpm: float | None = None
    key: str | None = None
    tokens: float | Callable[..., float] | None = None

    def __post_init__(self) -> None:
        if not any(given is not None for given in (self.concurrency, self.rpm, self.tpm, self.key)):
            raise RegistrationError(
                "Limit() limits nothing. Give concurrency=, the number of calls in flight at once; rpm= or tpm=, "
                "requests or tokens per minute; or key=, an endpoint whose limits other functions give."
            )
        if self.concurrency is not None:
            if isinstance(self.concurrency, bool) or not isinstance(self.concurrency, int):
                raise RegistrationError(
                    f"Limit(concurrency={self.concurrency!r}): expected a whole number, got "
                    f"{type(self.concurrency).__name__}."
                )
            if not 1 <= self.concurrency <= 65536:
                raise RegistrationError(f"Limit(concurrency={self.concurrency}): expected 1 to 65536 calls in flight.")
        for option in ("rpm", "tpm"):
            rate = getattr(self, option)
            if rate is not None and not 0 < number(rate) <= _MOST_RATE:
                raise RegistrationError(f"Limit({option}={rate!r}): expected a number a minute, above 0.")
        key: object = self.key
        if key is not None and not (isinstance(key, str) and key.strip() and key.isprintable()):
            raise RegistrationError(f"Limit(key={self.key!r}): expected the name of an endpoint, as printable text.")
        if self.tokens is not None:
            if self.tpm is None and self.key is None:
                raise RegistrationError("Limit(tokens=…) without tpm=, the tokens per minute that they count toward.")
            if not callable(self.tokens):
                if not 0 <= number(self.tokens) <= _MOST_RATE:
                    raise RegistrationError(
                        f"Limit(tokens={self.tokens!r}): expected the number of tokens of a call, or a function that counts them."
                    )
                if self.tpm is not None and number(self.tokens) > number(self.tpm):
                    raise RegistrationError(
                        f"Limit(tokens={self.tokens!r}, tpm={self.tpm!r}): one call needs more tokens than a minute allows, and could "
                        "never start. Raise tpm=, or pass the tokens of one call."
                    )


@dataclass(frozen=True)
class DefaultLimit(Limit):
    """The limit of a function that was given none: the ranks of a run share it."""

    concurrency: int | None = USUAL_CONCURRENCY


@dataclass(frozen=True)
class SharedLimit(Limit):
    """A limit without a key that all ranks of a host share (``Dispatcher(cluster="host")``): they
    find it by its identity."""

    identity: str = ""


class RetryAfter(GuerdonError):
    """Raised by a reward function that was throttled: try this call again later.

    It is not a failure and uses up no retry: the call is deferred by at least that time (two
    minutes at most), up to 8 times, or 32 under a `Limit` (or ``retries`` times, if that is more).
    The limit stops all calls meanwhile, and allows fewer afterwards. Errors of httpx, aiohttp,
    openai and the like with status 429 mean the same without it.

    Args:
        seconds: How long to wait, at least 0.
        message: What happened.

    Raises:
        ValueError: ``seconds`` is negative or not finite.

    Examples:
        >>> str(RetryAfter(2.5))
        'try again after 2.5 s'
    """

    status_code = 429  # where HTTP clients' errors have it

    def __init__(self, seconds: float = 0.0, message: str | None = None) -> None:
        if not 0 <= number(seconds) < math.inf:
            raise ValueError(f"RetryAfter({seconds!r}): expected seconds, at least 0 and finite.")
        super().__init__(message if message is not None else f"try again after {float(seconds):g} s")
        self.retry_after = float(seconds)

    def __reduce__(self) -> tuple[type[RetryAfter], tuple[float, str]]:
        return type(self), (self.retry_after, str(self))


def folder() -> Path:
    """The folder of shared limits' files: in memory where the system has that, else the temporary
    folder.

    ``GUERDON_LIMITS_DIR`` names another, the same for all processes that share limits.
    """
    # Workers load this module with each function that names a limit, and need no folder.
    import tempfile
    from pathlib import Path

    given = os.environ.get(FOLDER)
    if given:
        return Path(given)
    memory = Path("/dev/shm")  # the engine checks that the folder below it is this user's own
    base = memory if memory.is_dir() and os.access(memory, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    return base / f"guerdon-{os.getuid()}"


def native(limit: Limit | None, lane: str, concurrency: int | None = None) -> dict[str, Any] | None:
    """The limit as the engine takes it, with the calls in flight that are allowed; None if the lane
    alone enforces it.

    On lanes where calls only wait, each call takes a permit, so that throttling can lower the
    limit. Workers and threads with nothing but a concurrency get whole frames of calls.
    """
    if limit is None:
        return None
    shared = limit.identity if isinstance(limit, SharedLimit) else limit.key
    if limit.rpm is None and limit.tpm is None and shared is None and lane in ("process", "code", "thread"):
        return None
    key = None
    if shared is not None:
        import hashlib

        name = hashlib.sha256(shared.encode("utf-8", "surrogatepass")).hexdigest()[:32] + f".{_LAYOUT}"
        key = (shared, bytes(folder() / name))
    return {
        "rules": {"rpm": limit.rpm, "tpm": limit.tpm, "concurrency": concurrency},
        "key": key,
        "tokens": None if limit.tokens is None or callable(limit.tokens) else float(limit.tokens),
    }

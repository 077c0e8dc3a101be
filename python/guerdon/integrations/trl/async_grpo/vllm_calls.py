"""Timeouts and retries of requests to a vLLM server: `VLLMCalls`, the same for every kind of
request.

Every request ends: each attempt has a timeout, the attempts are counted, and an unreachable server
is waited for only so long. Errors that another attempt can't fix (a wrong request, a missing
permission) are not retried. The final error names request, server, attempts, last answer, and what
to change.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from guerdon._engine import dispatcher_options
from guerdon.errors import RegistrationError, VLLMServerError

# Answers of a server, or of a proxy before it, that may differ the next time.
RETRYABLE: Final = frozenset((408, 409, 425, 429, 500))
# Statuses of a proxy for a server that it can't reach.
UNREACHABLE: Final = frozenset((502, 503, 504))

_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 15.0
_SHOWN: Final = 300


@dataclass(frozen=True)
class VLLMCalls:
    """Timeouts and retries of a trainer's calls to its vLLM server.

    Args:
        timeout: Seconds for one attempt at a completion; None: the config's ``request_timeout``.
        control_timeout: Seconds for one attempt at any other request (pause, resume, adapters, …).
            Transfers of weights by NCCL keep the config's ``weight_sync_timeout``.
        retries: Attempts after the first, where the server answers with an error or not in time.
        restart_timeout: Seconds that the server may be unreachable (connections refused or lost)
            before a request fails: what a restart takes, with some to spare.
        health_interval: Seconds between health checks: whether the server is there and still the
            same process.

    Raises:
        RegistrationError: A value is out of range.

    Examples:
        >>> from guerdon.integrations.trl import VLLMCalls
        >>> VLLMCalls(retries=2).restart_timeout
        300.0
    """

    timeout: float | None = None
    control_timeout: float = 120.0
    retries: int = 5
    restart_timeout: float = 300.0
    health_interval: float = 10.0

    def __post_init__(self) -> None:
        dispatcher_options.seconds("timeout", self.timeout)
        for name in ("control_timeout", "restart_timeout", "health_interval"):
            dispatcher_options.bound(name, getattr(self, name))
        if type(self.retries) is not int or self.retries < 0:
            raise RegistrationError(f"VLLMCalls(retries={self.retries!r}): expected a whole number, 0 or more.")


@dataclass(frozen=True)
class FailedAttempt:
    """A failed attempt: an HTTP `status`, no answer in time (`late`), or no server."""

    what: str
    status: int | None = None
    late: bool = False
    retry_after: float | None = None

    @property
    def unreachable(self) -> bool:
        """Returns whether the server could not be reached."""
        return (self.status is None and not self.late) or self.status in UNREACHABLE


class Attempts:
    """The attempts at one request: the pause before the next one, or the reason why there is
    none."""

    def __init__(self, calls: VLLMCalls, request: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._calls = calls
        self._request = request  # for messages: "POST http://…/pause"
        self._clock = clock
        self._began = clock()
        self._unreachable_since: float | None = None
        self._waits = 0  # since the server was last reached
        self._failed = 0  # attempts that reached a server
        self._made = 0

    def next_wait(self, failed: FailedAttempt, *, once: bool = False) -> float:
        """Seconds to wait before the next attempt.

        Args:
            once: The request must not be made twice.

        Raises:
            VLLMServerError: There is no next attempt.
        """
        self._made += 1
        now = self._clock()
        if once:
            raise self._error(failed, "the request must not be made twice")
        if failed.unreachable:
            if self._unreachable_since is None:
                self._unreachable_since, self._waits = now, 0
            left = self._unreachable_since + self._calls.restart_timeout - now
            if left <= 0:
                raise self._error(failed, f"unreachable for {self._calls.restart_timeout:g} s (restart_timeout)")
            return min(self._wait(failed), left)
        if self._unreachable_since is not None:
            self._unreachable_since, self._waits = None, 0
        if not failed.late and failed.status not in RETRYABLE:
            raise self._error(failed, "a retry would get the same answer")
        self._failed += 1
        if self._failed > self._calls.retries:
            raise self._error(failed, f"retries={self._calls.retries}")
        return self._wait(failed)

    def connection_lost(self, what: str, *, once: bool = False) -> float:
        """`next_wait` after a connection broke while the server had the request: counts as an
        attempt."""
        self._failed += 1
        if self._failed > self._calls.retries:
            self._made += 1
            raise self._error(FailedAttempt(what), f"retries={self._calls.retries}")
        return self.next_wait(FailedAttempt(what), once=once)

    def _wait(self, failed: FailedAttempt) -> float:
        """The server's Retry-After, else exponential backoff with full jitter."""
        self._waits += 1
        if failed.retry_after is not None:
            return min(failed.retry_after, self._calls.restart_timeout)
        return random.uniform(0.0, min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** min(self._waits - 1, 10)))

    def _error(self, failed: FailedAttempt, why: str) -> VLLMServerError:
        attempts = "1 attempt" if self._made == 1 else f"{self._made} attempts"
        last = " ".join(failed.what.split())
        return VLLMServerError(
            f"{self._request} failed after {attempts} in {self._clock() - self._began:.1f} s: {why}. "
            f"The last attempt: {last[:_SHOWN]}. {_advice(failed)}"
        )


def _advice(failed: FailedAttempt) -> str:
    if failed.status in (401, 403):
        return "The server requires a key or forbids this request: check how it was started."
    if failed.status == 404 and '"Not Found"' in failed.what:  # other 404s name the missing object
        return (
            "The server has no such path: start it with VLLM_SERVER_DEV_MODE=1 in its environment, and for weights by NCCL with "
            """--weight-transfer-config '{"backend":"nccl"}'."""
        )
    if failed.unreachable:
        return "See the server's log; if it only takes longer to restart, raise VLLMCalls(restart_timeout=)."
    if failed.late:
        return "The server may be overloaded: raise VLLMCalls(timeout=) or VLLMCalls(control_timeout=), or send less at once."
    if failed.status in RETRYABLE:
        return "See the server's log, or raise VLLMCalls(retries=)."
    return "The server's answer says what is wrong with the request."


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that an answer asks to wait; None if it doesn't, or names a date."""
    try:
        seconds = float(headers.get("Retry-After", ""))
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def process_start(metrics: str) -> str | None:
    """When the process behind ``/metrics`` started, which identifies it; None if unknown."""
    for line in metrics.splitlines():
        if line.startswith("process_start_time_seconds "):
            return line.split()[1]
    return None


SERVER_RESTARTED: Final = (
    "the vLLM server at {url} restarted. It serves the weights that it was started with, not the policy's, and can't "
    "receive weights by NCCL, because its transfer group ended with the old process. Resume from the last checkpoint: "
    "trainer.train(resume_from_checkpoint=True). With a peft_config and a server with --enable-lora, adapters are "
    "published again and training goes on."
)

"""How long and how often a vLLM server is asked, the same for every kind of request.

- S-1  Every request ends: each try has a time-out, the tries are counted, and a server that can't be reached is waited
       for only so long.
- S-2  What asking again can't mend (a wrong request, a missing permission) is not asked again.
- S-3  When it is given up, the error says which request to which server, how often and how long, what came last, and
       what to change.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from guerdon import _options
from guerdon.errors import RegistrationError, VLLMServerError

# Answers of a server, or of what stands before it, that another time may be others.
AGAIN: Final = frozenset((408, 409, 425, 429, 500))
# What a proxy answers for a server that is not there; treated as one that can't be reached.
AWAY: Final = frozenset((502, 503, 504))

_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 15.0
_SHOWN: Final = 300


@dataclass(frozen=True)
class VLLMCalls:
    """How a trainer calls its vLLM server.

    Args:
        timeout: Seconds for one try of a completion; None: the config's ``request_timeout``.
        control_timeout: Seconds for one try of any other request (pause, resume, adapters, …). Transfers of weights by
            NCCL keep the config's ``weight_sync_timeout``.
        retries: Tries after the first, where the server answered with a failure or not in time.
        restart_timeout: Seconds that the server may be away (connections refused or cut) before it is given up. What it
            takes to start it again, with some to spare.
        health_interval: Seconds between looks at whether the server is there and still the same one.

    Raises:
        RegistrationError: A value that can't be.

    Example:
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
        _options.seconds("timeout", self.timeout)
        for name in ("control_timeout", "restart_timeout", "health_interval"):
            _options.bound(name, getattr(self, name))
        if type(self.retries) is not int or self.retries < 0:
            raise RegistrationError(f"VLLMCalls(retries={self.retries!r}): expected a whole number, 0 or more.")


@dataclass(frozen=True)
class Trouble:
    """What came of one try: an answer that is none (`status`), no answer in time (`late`), or no server."""

    what: str
    status: int | None = None
    late: bool = False
    retry_after: float | None = None

    @property
    def away(self) -> bool:
        """Whether the server could not be reached."""
        return (self.status is None and not self.late) or self.status in AWAY


class Tries:
    """The tries of one request: asks for the next one, or says why there is none."""

    def __init__(self, calls: VLLMCalls, request: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._calls = calls
        self._request = request  # for messages: "POST http://…/pause"
        self._clock = clock
        self._began = clock()
        self._away_since: float | None = None
        self._waits = 0  # since the server was last reached
        self._failed = 0  # tries that a server had in hand
        self._made = 0

    def again(self, trouble: Trouble, *, once: bool = False) -> float:
        """Seconds to wait before the next try.

        Args:
            once: The request must not be made twice.

        Raises:
            VLLMServerError: There is none (S-1, S-2, S-3).
        """
        self._made += 1
        now = self._clock()
        if once:
            raise self._error(trouble, "it can't be repeated")
        if trouble.away:
            if self._away_since is None:
                self._away_since, self._waits = now, 0
            left = self._away_since + self._calls.restart_timeout - now
            if left <= 0:
                raise self._error(trouble, f"away for {self._calls.restart_timeout:g} s (restart_timeout)")
            return min(self._wait(trouble), left)
        if self._away_since is not None:
            self._away_since, self._waits = None, 0
        if not trouble.late and trouble.status not in AGAIN:
            raise self._error(trouble, "asking again would change nothing")
        self._failed += 1
        if self._failed > self._calls.retries:
            raise self._error(trouble, f"retries={self._calls.retries}")
        return self._wait(trouble)

    def cut(self, what: str, *, once: bool = False) -> float:
        """As `again`, for a connection that broke while the server had the request in hand: that counts as a try, and
        the server may be away."""
        self._failed += 1
        if self._failed > self._calls.retries:
            self._made += 1
            raise self._error(Trouble(what), f"retries={self._calls.retries}")
        return self.again(Trouble(what), once=once)

    def _wait(self, trouble: Trouble) -> float:
        """Full jitter, so that requests that failed together don't come back together; what the server says, if it does."""
        self._waits += 1
        if trouble.retry_after is not None:
            return min(trouble.retry_after, self._calls.restart_timeout)
        return random.uniform(0.0, min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** min(self._waits - 1, 10)))

    def _error(self, trouble: Trouble, why: str) -> VLLMServerError:
        tries = "1 try" if self._made == 1 else f"{self._made} tries"
        last = " ".join(trouble.what.split())
        return VLLMServerError(
            f"{self._request} failed: {tries} in {self._clock() - self._began:.1f} s, given up: {why}. "
            f"The last: {last[:_SHOWN]}. {_advice(trouble)}"
        )


def _advice(trouble: Trouble) -> str:
    if trouble.status in (401, 403):
        return "The server wants a key, or lets nobody do this: look at how it was started."
    if trouble.status == 404 and '"Not Found"' in trouble.what:  # no such path, where others say what is not found
        return (
            "It has no such path: start it with VLLM_SERVER_DEV_MODE=1 in its environment, and for weights by NCCL with "
            """--weight-transfer-config '{"backend":"nccl"}'."""
        )
    if trouble.away:
        return "Look at the server's log; if it only takes longer to come back, raise VLLMCalls(restart_timeout=)."
    if trouble.late:
        return "Look whether the server is overloaded; raise VLLMCalls(timeout=) or (control_timeout=), or send less at once."
    if trouble.status in AGAIN:
        return "Look at the server's log, or raise VLLMCalls(retries=)."
    return "The server's answer says what is wrong with the request."


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that an answer asks to wait; None if it doesn't, or by a date."""
    try:
        seconds = float(headers.get("Retry-After", ""))
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def started_at(metrics: str) -> str | None:
    """When the process that answered ``/metrics`` was started, which tells two servers apart; None if it doesn't say."""
    for line in metrics.splitlines():
        if line.startswith("process_start_time_seconds "):
            return line.split()[1]
    return None


RESTARTED: Final = (
    "the vLLM server at {url} was started anew. It serves the weights that it was started with and not the policy's, and "
    "weights sent by NCCL can't be sent to it, because its transfer group went with the old one. Go on from the last "
    "checkpoint: trainer.train(resume_from_checkpoint=True). With a peft_config and a server with --enable-lora, adapters "
    "are published again and training goes on."
)

"""State of one endpoint of a judge or reward service while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from guerdon._functions.lane_plan import EndpointList
    from guerdon._native import Engine

__all__ = ["Endpoint", "endpoints_of"]


@dataclass(frozen=True)
class Endpoint:
    """One endpoint, at one moment.

    Attributes:
        address: As it was given.
        ip: With ``resolve="all"``: which address of its host name.
        weight: Its share beside the others'.
        breaker: Its circuit breaker: ``"closed"`` (requests go to it), ``"open"`` (it failed, and
            gets none) or ``"half-open"`` (it is being tried again).
        in_flight: Requests on their way to it.
        answered: Requests that it answered with a score, or at least with an answer.
        failed: Requests that failed there: other statuses, broken connections, timeouts.
        deferred: Requests that it put off (429), which are made again.
        p50_s: Median seconds of its last 64 answers; None without any.
    """

    address: str
    weight: float = 1.0
    ip: str | None = None
    breaker: Literal["closed", "open", "half-open"] = "closed"
    in_flight: int = 0
    answered: int = 0
    failed: int = 0
    deferred: int = 0
    p50_s: float | None = None

    def __str__(self) -> str:
        place = self.address if self.ip is None else f"{self.address} ({self.ip})"
        weight = "" if self.weight == 1 else f", weight {self.weight:g}"
        deferred = f", {self.deferred} deferred" if self.deferred else ""
        median = "" if self.p50_s is None else f", p50 {self.p50_s:.3g} s"
        return (
            f"{place}: breaker {self.breaker}, {self.in_flight} in flight, {self.answered} answered, "
            f"{self.failed} failed{deferred}{median}{weight}"
        )


def endpoints_of(engine: Engine | None, function: int, fleet: EndpointList) -> list[Endpoint]:
    """The endpoints of one function in an engine; without one as they were configured."""
    if engine is None:
        return [Endpoint(fleet.shown(url), weight) for url, weight in fleet.endpoints]
    return [
        Endpoint(
            address=fleet.shown(one["url"]),
            weight=one["weight"],
            ip=one["address"],
            breaker=one["breaker"],
            in_flight=one["in_flight"],
            answered=one["answered"],
            failed=one["failed"],
            deferred=one["deferred"],
            p50_s=one["p50_s"],
        )
        for one in engine.endpoints(function)
    ]

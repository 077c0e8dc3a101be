"""The endpoints of a judge or reward service while it runs: what state they are in, and which there
are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, overload

from guerdon._lanes.http.fleet import Addresses, Fleet, checked_endpoints
from guerdon.errors import RegistrationError

if TYPE_CHECKING:
    from guerdon._engine.handle import EngineHandle
    from guerdon._functions.spec import FunctionSpec
    from guerdon._native import Engine

__all__ = ["Endpoint", "Endpoints"]


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
        p50_s: Median seconds of its last 64 answers; None without any.
    """

    address: str
    weight: float = 1.0
    ip: str | None = None
    breaker: Literal["closed", "open", "half-open"] = "closed"
    in_flight: int = 0
    answered: int = 0
    failed: int = 0
    p50_s: float | None = None

    def __str__(self) -> str:
        place = self.address if self.ip is None else f"{self.address} ({self.ip})"
        weight = "" if self.weight == 1 else f", weight {self.weight:g}"
        median = "" if self.p50_s is None else f", p50 {self.p50_s:.3g} s"
        return (
            f"{place}: breaker {self.breaker}, {self.in_flight} in flight, {self.answered} answered, "
            f"{self.failed} failed{median}{weight}"
        )


class Endpoints(Sequence[Endpoint]):
    """The endpoints of one function, looked up anew at each use: `Dispatcher.endpoints`.

    Examples:
        >>> from guerdon import Dispatcher, judge
        >>> servers = ["http://10.0.0.1:8000/v1", "http://10.0.0.2:8000/v1"]
        >>> helpful = judge(base_url=servers, model="m", prompt="Rate this: {completion}", name="helpful")
        >>> with Dispatcher([helpful]) as dispatcher:
        ...     endpoints = dispatcher.endpoints("helpful")
        ...     endpoints.set([*servers, "http://10.0.0.3:8000/v1"])
        ...     [endpoint.address for endpoint in endpoints]
        ['http://10.0.0.1:8000/v1', 'http://10.0.0.2:8000/v1', 'http://10.0.0.3:8000/v1']
    """

    def __init__(self, function: str, index: int, fleet: Fleet, engine: EngineHandle, member: int = 0) -> None:
        self._function, self._fleet, self._engine = function, fleet, engine
        self._place = index, member

    def list(self) -> list[Endpoint]:
        """The endpoints now; before the first use of the dispatcher, as they were configured."""
        return endpoints_of(self._engine.started, self._place, self._fleet)

    def set(self, endpoints: Addresses) -> None:
        """Replace the endpoints, also in mid-batch: requests in flight go on, endpoints that stay
        keep their state, new ones get their share from now on.

        Key, headers and certificates are those of the function. It starts the dispatcher's engine
        if need be; a pickled dispatcher has the endpoints that its functions were made with.

        Args:
            endpoints: As ``base_url`` of `guerdon.judge`, or ``url`` of `guerdon.http_reward`.

        Raises:
            RegistrationError: An address is wrong.
            ClosedError: The dispatcher was closed.
        """
        checked = checked_endpoints(self._function, self._fleet.option, self._fleet.path, endpoints)
        try:
            self._engine.get().set_endpoints(*self._place, list(checked))
        except ValueError as error:
            raise RegistrationError(f"reward function {self._function!r}: {error}.") from None

    @overload
    def __getitem__(self, index: int) -> Endpoint: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Endpoint]: ...
    def __getitem__(self, index: int | slice) -> Endpoint | Sequence[Endpoint]:
        return self.list()[index]

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self.list())

    def __len__(self) -> int:
        return len(self.list())

    def __str__(self) -> str:
        return "\n".join([f"endpoints of {self._function!r}:", *(f"  {each}" for each in self)])

    def __repr__(self) -> str:
        return f"<{len(self)} endpoints of {self._function!r}>"


def fleets_of(spec: FunctionSpec) -> dict[str, tuple[int, Fleet]]:
    """The endpoints that a function sends requests to, by the name of its member, with that one's
    place; "" is the name where there is but one."""
    compound = spec.compound
    if getattr(compound, "leader", None) is not None:
        return {}  # another function sends its requests
    members = getattr(compound, "members", ())
    if getattr(compound, "kind", "") == "panel":
        return {member.name: (place, member.plan.fleet) for place, member in enumerate(members)}
    plan = members[0].plan if members else spec.http
    return {} if plan is None else {"": (0, plan.fleet)}


def endpoints_in(specs: Sequence[FunctionSpec], function: str, member: str | None, engine: EngineHandle) -> Endpoints:
    """The endpoints of a function of a dispatcher; of a panel those of one member.

    Raises:
        ValueError: There is no such function or member, or none is named.
    """
    positions = {spec.name: index for index, spec in enumerate(specs)}
    index = positions.get(function)
    if index is not None:
        # A column of a rubric is asked for with the others.
        index = positions.get(getattr(specs[index].compound, "leader", function), index)
    fleets = {} if index is None else fleets_of(specs[index])
    if index is None or not fleets:
        names = ", ".join(repr(spec.name) for spec in specs if fleets_of(spec)) or "none"
        raise ValueError(
            f"{function!r} is no judge or reward service of this dispatcher; those with endpoints: {names}."
        )
    if member is None and "" not in fleets:
        one = next(iter(fleets))
        raise ValueError(
            f"{function!r} is a panel, and each of its members has endpoints of its own: pass member={one!r}, or another "
            f"of {', '.join(map(repr, fleets))}."
        )
    found = fleets.get("" if member is None else member)
    if found is None or member == "":
        known = "it has no members" if "" in fleets else f"its members are {', '.join(map(repr, fleets))}"
        raise ValueError(f"member={member!r} of {function!r}: {known}.")
    place, fleet = found
    return Endpoints(function if member is None else f"{function}/{member}", index, fleet, engine, place)


def endpoints_of(engine: Engine | None, place: tuple[int, int], fleet: Fleet) -> list[Endpoint]:
    """The endpoints of one function's member in an engine; without one as they were configured."""
    if engine is None:
        return [Endpoint(fleet.shown(url), weight) for url, weight in fleet.endpoints]
    return [
        Endpoint(
            address=fleet.shown(one.url),
            weight=one.weight,
            ip=one.address,
            breaker=one.breaker,
            in_flight=one.in_flight,
            answered=one.answered,
            failed=one.failed,
            p50_s=one.p50_s,
        )
        for one in engine.endpoints(*place)
    ]

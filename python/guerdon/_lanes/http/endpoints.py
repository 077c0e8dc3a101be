"""The endpoints of a judge or reward service while it runs, and which there are."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, overload
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from guerdon._functions.spec import FunctionSpec, with_members
from guerdon._insight.endpoint import Endpoint, endpoints_of
from guerdon._lanes.http.fleet import Addresses, checked_endpoints
from guerdon.errors import RegistrationError

if TYPE_CHECKING:
    from guerdon._batch.engine_source import EngineSource
    from guerdon._functions.lane_plan import EndpointList

__all__ = ["Endpoints", "unreachable"]

# A server that was started beside this program has so long to listen.
_STARTS_S: Final = 3.0


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

    def __init__(self, function: str, index: int, fleet: EndpointList, engine: EngineSource) -> None:
        self._function, self._fleet, self._engine = function, fleet, engine
        self._index = index

    def list(self) -> list[Endpoint]:
        """The endpoints now; before the first use of the dispatcher, as they were configured."""
        return endpoints_of(self._engine.started, self._index, self._fleet)

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
            self._engine.get().set_endpoints(self._index, list(checked))
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


def unreachable(spec: FunctionSpec) -> str | None:
    """Returns the error of the connections to a function's servers if all refuse them for seconds,
    so that calls would wait for minutes; of a panel, if a member's servers do."""
    fleets = (each.fleet for each in spec.called)
    refusals = (_refusal_of([url for url, _ in fleet.endpoints]) for fleet in fleets if fleet is not None)
    return next(filter(None, refusals), None)


def _refusal_of(urls: Sequence[str]) -> str | None:
    """Returns the error of the connections to these servers, if all refuse them for seconds."""
    end = time.monotonic() + _STARTS_S
    while True:
        refusals = []
        for url in urls:
            refusals.append(_refusal(url))
            if refusals[-1] is None:
                return None
        if time.monotonic() > end:
            return "; ".join(map(str, refusals))
        time.sleep(0.2)


def _refusal(url: str) -> str | None:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if getproxies().keys() & {parts.scheme, "all"} and not proxy_bypass(host):
        return None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((host, port), timeout=2).close()
    except ConnectionRefusedError as error:
        return f"can't connect to {host}:{port}: {error.strerror}"
    except OSError:  # left to the engine, which tries again and elsewhere
        return None
    return None


def endpoints_in(specs: Sequence[FunctionSpec], function: str, member: str | None, engine: EngineSource) -> Endpoints:
    """The endpoints of a function of a dispatcher; of a panel those of one member.

    Raises:
        ValueError: There is no such function or member, or no member is named.
    """
    every = with_members(specs)
    visible = {spec.name: index for index, spec in enumerate(specs)}
    index = visible.get(function)
    if index is not None:
        # A column of a rubric is asked for with the others.
        columns = getattr(specs[index].composition, "columns", ())
        index = visible.get(columns[0], index) if columns else index
    composition = None if index is None else specs[index].composition
    # Votes have one member, and so has a judge with a parser of the user's.
    is_alone = composition is None or len(composition.names) == 1
    called = () if index is None else specs[index].called
    fleets = {
        "" if is_alone else spec.name.removeprefix(f"{function}/"): (spec, spec.fleet)
        for spec in called
        if spec.fleet is not None
    }
    if not fleets:
        with_fleets = (spec.name for spec in specs if any(each.fleet is not None for each in spec.called))
        listed = ", ".join(map(repr, with_fleets)) or "none"
        raise ValueError(
            f"{function!r} is no judge or reward service of this dispatcher; those with endpoints: {listed}."
        )
    if member is None and "" not in fleets:
        one, what = next(iter(fleets)), "cascade" if composition and composition.kind == "cascade" else "panel"
        raise ValueError(
            f"{function!r} is a {what}, and each of its members has endpoints of its own: pass member={one!r}, or another "
            f"of {', '.join(map(repr, fleets))}."
        )
    found = fleets.get("" if member is None else member)
    if found is None or member == "":
        known = "it has no members" if "" in fleets else f"its members are {', '.join(map(repr, fleets))}"
        raise ValueError(f"member={member!r} of {function!r}: {known}.")
    spec, fleet = found
    return Endpoints(function if member is None else spec.name, every.index(spec), fleet, engine)

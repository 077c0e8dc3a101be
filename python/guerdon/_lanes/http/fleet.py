"""The endpoints of a judge or reward service, as they are given: checked, and as the engine takes
them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from guerdon._lanes.http.address import address, endpoint
from guerdon._lanes.http.server import Server
from guerdon._system.units import number
from guerdon.errors import GuerdonWarning, RegistrationError

__all__ = ["Addresses", "Fleet", "checked_endpoints", "fleet_of"]

Addresses: TypeAlias = "str | Iterable[str] | Mapping[str, float] | Iterable[tuple[str, float]]"
_QUANTILE: Final = re.compile(r"p(\d{1,2}(\.\d+)?)")
_WANTED: Final = "expected an address, a list of them, a dict from addresses to weights, or a list of such pairs"


@dataclass(frozen=True)
class Fleet:
    """Endpoints of one function's requests.

    Attributes:
        option: What the addresses are called for the user: ``base_url`` or ``url``.
        path: What is added to each of them.
        endpoints: Full URLs, each with its weight; never empty.
        resolve_all: Each address of a host name is an endpoint.
        hedge_after: ``("quantile", 0.95)`` or ``("seconds", 2.0)``; None: no request is sent twice.
        hedge_share: Of all calls, at most.
    """

    option: str
    path: str
    endpoints: tuple[tuple[str, float], ...]
    resolve_all: bool = False
    hedge_after: tuple[str, float] | None = None
    hedge_share: float = 0.05

    def shown(self, url: str) -> str:
        """An address as the user gave it: without the added parts."""
        base, mark, query = url.partition("?")
        return base.removesuffix(self.path) + mark + query

    @property
    def is_one(self) -> bool:
        """Returns whether there is one endpoint, for ever if nobody adds another."""
        return len(self.endpoints) == 1 and not self.resolve_all


def fleet_of(function: str, option: str, path: str, server: Server) -> Fleet:
    """The endpoints of a function with this server.

    Raises:
        RegistrationError: An option is wrong.
    """
    endpoints = checked_endpoints(function, option, path, server.base_url)
    resolve, share = server.resolve, server.hedge_share
    if resolve not in ("any", "all"):
        raise RegistrationError(f"reward function {function!r}: resolve={resolve!r}: expected 'any' or 'all'.")
    of_calls = number(share)
    if not 0 < of_calls <= 1:
        raise RegistrationError(
            f"reward function {function!r}: hedge_share={share!r}: expected a share of all calls, like 0.05."
        )
    fleet = Fleet(option, path, endpoints, resolve == "all", _hedge_after(function, server.hedge_after), of_calls)
    if fleet.hedge_after is not None and fleet.is_one:
        warnings.warn(
            f"reward function {function!r}: hedge_after={server.hedge_after!r} sends a request again to another endpoint, and "
            f"{option}= has one: it does nothing until Dispatcher.endpoints({function!r}).set adds others.",
            GuerdonWarning,
            stacklevel=6,
        )
    return fleet


def checked_endpoints(function: str, option: str, path: str, value: object) -> tuple[tuple[str, float], ...]:
    """Addresses with their weights, as full URLs.

    Raises:
        RegistrationError: A value is not an address, or one comes twice.
    """
    pairs: list[tuple[object, object]]
    if isinstance(value, str):
        pairs = [(value, 1.0)]
    elif isinstance(value, Mapping):
        pairs = list(value.items())
    elif isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray)):
        try:
            each = list(value)
        except TypeError:  # an array without a dimension
            each = []
        pairs = [(one[0], one[1]) if isinstance(one, tuple) and len(one) == 2 else (one, 1.0) for one in each]
    else:
        raise RegistrationError(f"reward function {function!r}: {option}={value!r}: {_WANTED}.")
    if not pairs:
        raise RegistrationError(f"reward function {function!r}: {option}= is empty: {_WANTED}.")
    found: dict[str, float] = {}
    places: set[str] = set()
    for base, weight in pairs:
        url = endpoint(address(function, option, base), path)
        place = _place(url)
        if place in places:
            raise RegistrationError(
                f"reward function {function!r}: {option}= has {base!r} twice. Give it once, with a larger weight if it is "
                "to get more."
            )
        share = number(weight)
        if not 0 < share < float("inf"):
            raise RegistrationError(
                f"reward function {function!r}: {option}=: the weight of {base!r} is {weight!r}: expected a number above 0."
            )
        found[url] = share
        places.add(place)
    return tuple(found.items())


def _place(url: str) -> str:
    """An address in its shortest spelling: scheme and host in lower case, without the usual
    port."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    usual = ":443" if scheme.lower() == "https" else ":80"
    return f"{scheme.lower()}://{host.lower().removesuffix(usual)}{slash}{path}"


def _hedge_after(function: str, value: object) -> tuple[str, float] | None:
    if value is None:
        return None
    match = _QUANTILE.fullmatch(value) if isinstance(value, str) else None
    if match is not None and float(match[1]) > 0:
        return "quantile", float(match[1]) / 100
    seconds = number(value)
    if isinstance(value, str) or not 0 < seconds < float("inf"):
        raise RegistrationError(
            f"reward function {function!r}: hedge_after={value!r}: expected seconds, or a quantile of the time that answers "
            "take, like 'p95'."
        )
    return "seconds", seconds

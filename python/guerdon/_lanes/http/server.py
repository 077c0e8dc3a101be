"""`Server`: the way to a judge or a reward service, and its prices."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from guerdon.errors import RegistrationError, with_known_options

__all__ = ["Server", "server_of"]


@with_known_options
@dataclass(frozen=True, repr=False)
class Server:
    """The way to a judge or a reward service, and its prices; several functions can share one.

    Options are checked by the function that gets it, whose message names them.

    Attributes:
        base_url: Its address, as for its other clients: ``"http://localhost:8000/v1"``; for
            `guerdon.http_reward` where to POST. A list is a fleet of the same model
            (docs/limits.md): ``["http://a:8000/v1", …]``, or a dict from addresses to weights.
        api_key_env: Name of the environment variable that holds the API key.
        api_key_file: File that holds the API key; it is read again once a server answers 401.
        api_key: A function that returns the API key, for tokens that expire. It is called without
            arguments, on a thread of its own: before the first request, and once a server answers
            401. It may take 30 seconds; its exception is the reason of the requests that need the
            key.
        headers: Headers of each request; ``{key}`` in one stands for the key, which otherwise goes
            as ``Authorization: Bearer``.
        resolve: ``"any"`` connects to whatever address of a host name answers; ``"all"`` makes each
            an endpoint of its own, looked up again every 10 s.
        hedge_after: Send a request a second time, to another endpoint, when it has waited for so
            many seconds, or for longer than a share of the answers take: ``"p95"``. The first
            answer counts, the other request is dropped.
        hedge_share: Of all calls, how many may be sent twice.
        http2: Use HTTP/2, which takes fewer connections, if the server supports it.
        ca_file: Certificate authorities (PEM) to trust in addition to the system's.
        ca_only: Trust those in ``ca_file`` and no others.
        client_cert: A certificate (PEM) that proves to the server who asks.
        client_key: Its key (PEM); None if the same file holds it.
        price: What a million tokens cost, ``{"input": 0.4, "cached": 0.1, "output": 1.6}``; without
            ``"cached"`` a cached token costs as much as another, without ``"cache_write"`` so does
            one that the server puts into its cache. `RewardBatch.usage` then has the cost.
        max_cost: What the requests of each function may cost in a run, retries included, in the
            currency of ``price``: calls beyond it fail at once, see docs/options.md. Processes of a
            host whose limit has the same key share it.

    Examples:
        >>> from guerdon import Server, judge
        >>> fleet = Server(["http://a:8000/v1", "http://b:8000/v1"], hedge_after="p95")
        >>> judge(server=fleet, model="m", prompt="Grade this from 0 to 10: {completion}", name="grade")
        <reward function 'grade': http://a:8000/v1/chat/completions and 1 other, timeout 30 s>
    """

    base_url: str | Sequence[str] | Mapping[str, float] | Sequence[tuple[str, float]]
    api_key_env: str | None = field(default=None, kw_only=True)
    api_key_file: str | None = field(default=None, kw_only=True)
    api_key: Callable[[], str] | None = field(default=None, kw_only=True)
    headers: Mapping[str, str] | None = field(default=None, kw_only=True)
    resolve: Literal["any", "all"] = field(default="any", kw_only=True)
    hedge_after: float | str | None = field(default=None, kw_only=True)
    hedge_share: float = field(default=0.05, kw_only=True)
    http2: bool = field(default=False, kw_only=True)
    ca_file: str | None = field(default=None, kw_only=True)
    ca_only: bool = field(default=False, kw_only=True)
    client_cert: str | None = field(default=None, kw_only=True)
    client_key: str | None = field(default=None, kw_only=True)
    price: Mapping[str, float] | None = field(default=None, kw_only=True)
    max_cost: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.base_url, Iterator):  # functions read it more than once
            object.__setattr__(self, "base_url", tuple(self.base_url))

    def __repr__(self) -> str:
        # Headers and the name of a variable may be a key. An address, and the arguments of a
        # partial function, may hold one.
        hidden = {"headers", "api_key_env", "api_key"}
        given = [one.name for one in fields(self)[1:] if getattr(self, one.name) != one.default]
        shown = [f"{name}={'…' if name in hidden else repr(getattr(self, name))}" for name in given]
        address = re.sub(
            r"//[^/@'\"]*@|[?#][^'\"]*", lambda found: "//…@" if found[0][0] == "/" else "?…", repr(self.base_url)
        )
        return f"Server({', '.join([address, *shown])})"


def server_of(function: str, given: dict[str, Any], option: str) -> tuple[Server, str]:
    """The server of a function, and what its address is called for the user.

    Args:
        given: The function's arguments; an iterator of addresses becomes a tuple there, too.
        option: The argument that is an address alone.

    Raises:
        RegistrationError: There are two servers, or the value is not a server.
    """
    server = given["server"]
    wrong = f"reward function {function!r}: "
    if server is None:
        server = Server(given[option], api_key_env=given["api_key_env"])
        given[option] = server.base_url
        return server, option
    if not isinstance(server, Server):
        raise RegistrationError(
            f"{wrong}server={type(server).__name__}(…): expected a guerdon.Server, or an address as {option}=."
        )
    for simple in (option, "api_key_env"):
        if given[simple] is not None:
            raise RegistrationError(f"{wrong}pass server= or {simple}=, not both: guerdon.Server takes {simple!r} too.")
    return server, "base_url"

"""HTTP status and ``Retry-After`` of an exception.

- Nothing here raises or imports a client: exceptions of httpx, aiohttp, openai, requests and urllib
  are recognised by their attributes, and so are similar exceptions.
- A status is a whole number from 400 to 599. An error without one is `UNREACHABLE` if the
  connection failed, `BROKEN` if it broke or the reason is unclear.
"""

from __future__ import annotations

import math
import time
from typing import Any

UNREACHABLE = 0
BROKEN = 1

# The longest time that the engine accepts.
_LONGEST_S = 1e9

# Connection errors of clients, by class name; base classes count too.
_NO_CONNECTION = frozenset(
    {
        "APIConnectionError",  # openai
        "ClientConnectionError",  # aiohttp
        "ConnectionError",  # Python, requests
        "TransportError",  # httpx
        "gaierror",  # Python
    }
)
# Errors which show, by themselves or as causes, that nothing was sent.
_NOT_CONNECTED = frozenset(
    {
        "ClientConnectorError",  # aiohttp
        "ConnectError",  # httpx
        "ConnectionRefusedError",  # Python
        "NewConnectionError",  # urllib3, below requests
        "gaierror",  # Python
    }
)
# Number of causes that are searched: openai's and requests' errors have httpx's and urllib3's as
# causes.
_CAUSES = 6
# Subclasses of these that only mean a timeout.
_TIMEOUTS = frozenset(
    {"APITimeoutError", "PoolTimeout", "ReadTimeout", "ServerTimeoutError", "TimeoutError", "WriteTimeout"}
)


def http_status_of(error: BaseException) -> int | None:
    """The status that the server sent, `UNREACHABLE` or `BROKEN` without one, None if unknown."""
    try:
        response = getattr(error, "response", None)
        for source in (error, response):
            for name in ("status_code", "status"):
                status = getattr(source, name, None)
                if isinstance(status, int) and not isinstance(status, bool) and 400 <= status <= 599:
                    return int(status)
        if response is not None:
            return None
        names = {kind.__name__ for kind in type(error).__mro__}
        if not names & _NO_CONNECTION or names & _TIMEOUTS:
            return None
        return UNREACHABLE if _was_never_connected(error) else BROKEN
    except BaseException:  # attributes of a foreign exception may raise anything
        return None


def _was_never_connected(error: BaseException) -> bool:
    """Returns whether the error or one of its causes is such an error."""
    cause: Any = error
    for _ in range(_CAUSES):
        if cause is None:
            return False
        if {kind.__name__ for kind in type(cause).__mro__} & _NOT_CONNECTED:
            return True
        # urllib3's reason is in an argument, that of others is the cause.
        reason = getattr(cause.args[0], "reason", None) if getattr(cause, "args", None) else None
        cause = reason if isinstance(reason, BaseException) else cause.__cause__ or cause.__context__
    return False


def retry_after_of(error: BaseException) -> float | None:
    """The server's ``Retry-After`` in seconds.

    The time comes from ``error.retry_after``, or a Retry-After header (seconds or a date) of the
    error or its response.
    """
    try:
        value = getattr(error, "retry_after", None)
        if value is not None:
            return _seconds(value)
        headers = getattr(getattr(error, "response", None), "headers", None)
        if headers is None:
            headers = getattr(error, "headers", None)
        if headers is None:
            return None
        milliseconds = _header(headers, "retry-after-ms")
        if milliseconds is not None:
            seconds = _seconds(milliseconds)
            return None if seconds is None else seconds / 1000
        value = _header(headers, "retry-after")
        return None if value is None else _seconds(value)
    except BaseException:  # as above
        return None


def _header(headers: Any, name: str) -> Any:
    """The header of any mapping; a plain dict is case-sensitive, so both spellings are tried."""
    for spelling in (name, name.title()):
        value = headers.get(spelling)
        if value is not None:
            return value
    return None


def _seconds(value: Any) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        from email.utils import parsedate_to_datetime

        seconds = max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    return min(seconds, _LONGEST_S) if math.isfinite(seconds) and seconds >= 0 else None

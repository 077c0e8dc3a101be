"""What an exception tells of the server behind a call: its status, and when to come back.

- A-1  Nothing here raises or imports a client: exceptions of httpx, aiohttp, openai, requests and urllib are known by
       their attributes, and so is anything that looks like them.
- A-2  A status is a whole number from 400 to 599; what has none and says that no connection could be had, or that it
       broke, is `UNREACHABLE`; all else tells nothing.
"""

from __future__ import annotations

import math
import time
from typing import Any

UNREACHABLE = 0

# As long as any time that the engine is given: a longer wait would be no time to it, and the call be tried again at once.
_LONGEST = 1e9

# How clients call the errors of a connection; with bases, so that all kinds of one are known.
_NO_CONNECTION = frozenset(
    {
        "APIConnectionError",  # openai
        "ClientConnectionError",  # aiohttp
        "ConnectionError",  # Python, requests
        "TransportError",  # httpx
        "gaierror",  # Python
    }
)
# Those of them that only say that it took too long.
_TOO_LONG = frozenset(
    {"APITimeoutError", "PoolTimeout", "ReadTimeout", "ServerTimeoutError", "TimeoutError", "WriteTimeout"}
)


def http_status_of(error: BaseException) -> int | None:
    """The status that the other side gave, `UNREACHABLE` if there was no other side, None if that can't be told."""
    try:
        response = getattr(error, "response", None)
        for holder in (error, response):
            for name in ("status_code", "status"):
                status = getattr(holder, name, None)
                if isinstance(status, int) and not isinstance(status, bool) and 400 <= status <= 599:
                    return int(status)
        if response is not None:
            return None
        names = {kind.__name__ for kind in type(error).__mro__}
        return UNREACHABLE if names & _NO_CONNECTION and not names & _TOO_LONG else None
    except BaseException:  # attributes of a foreign exception may do anything
        return None


def retry_after_of(error: BaseException) -> float | None:
    """Seconds that the other side asked to wait.

    From ``error.retry_after``, or a Retry-After header (seconds or a date) of the error or its response.
    """
    try:
        wanted = getattr(error, "retry_after", None)
        if wanted is not None:
            return _seconds(wanted)
        headers = getattr(getattr(error, "response", None), "headers", None)
        if headers is None:
            headers = getattr(error, "headers", None)
        if headers is None:
            return None
        milliseconds = _header(headers, "retry-after-ms")
        if milliseconds is not None:
            seconds = _seconds(milliseconds)
            return None if seconds is None else seconds / 1000
        wanted = _header(headers, "retry-after")
        return None if wanted is None else _seconds(wanted)
    except BaseException:
        return None


def _header(headers: Any, name: str) -> Any:
    """Of any mapping; a plain dict knows it in one spelling only."""
    for spelling in (name, name.title()):
        value = headers.get(spelling)
        if value is not None:
            return value
    return None


def _seconds(wanted: Any) -> float | None:
    try:
        seconds = float(wanted)
    except ValueError:
        from email.utils import parsedate_to_datetime

        seconds = max(0.0, parsedate_to_datetime(wanted).timestamp() - time.time())
    return min(seconds, _LONGEST) if math.isfinite(seconds) and seconds >= 0 else None


def tokens_of(usage: Any) -> float | None:
    """The tokens of a ``usage``: a number, or the object or dict that OpenAI-compatible servers send."""
    try:
        if isinstance(usage, dict):
            usage = usage.get("total_tokens")
        elif not isinstance(usage, (int, float)):
            usage = getattr(usage, "total_tokens", None)
        if usage is None or isinstance(usage, bool):
            return None
        tokens = float(usage)
    except Exception:
        return None
    return tokens if math.isfinite(tokens) and tokens >= 0 else None

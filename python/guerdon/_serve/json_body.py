"""Reads a request's body, within bounds, and its JSON, strictly: what Python's reader makes of odd
JSON is never scored.

- A body that is too long is refused before it is read, or as soon as its length is known. One for
  which other requests leave no room is refused when the room ends.
- A body that is not complete by the end of the server's drain is refused.
- NaN and infinities, numbers beyond a float, and names that are there twice are refused.
- Half surrogate pairs are text that models write: they go on as they are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn

from starlette.types import Receive

from guerdon._serve.drain import Drain
from guerdon._serve.errors import ClientGoneError, RequestError

MOST_VALUES: Final = 4 << 20
"""Bounds of one body: what they take as objects of Python is bounded, and so is the time to make
them."""
_BYTES_A_VALUE: Final = 64


async def read_body(
    receive: Receive,
    headers: Iterable[tuple[bytes, bytes]],
    take: Callable[[int], None],
    drain: Drain,
    *,
    most: int,
) -> bytearray:
    """The whole body; `take` is asked for permits of its bytes.

    Raises:
        RequestError: It is too long, or too much at present; or the server ends first.
        ClientGoneError: The connection was closed before its end.
    """
    if _content_length(headers) > most:
        raise _too_long(most)
    return await drain.run(_read(receive, take, most))


async def _read(receive: Receive, take: Callable[[int], None], most: int) -> bytearray:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        piece = message.get("body", b"")
        take(len(piece))
        body += piece
        if len(body) > most:
            raise _too_long(most)
        if not message.get("more_body", False):
            return body


def _too_long(most: int) -> RequestError:
    return RequestError(413, f"the body is longer than {most >> 20} MB: send fewer samples a request.")


def _content_length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    for name, value in headers:
        if name == b"content-length":
            return int(value) if value.isdigit() and len(value) < 20 else 0
    return 0


class _JsonError(ValueError):
    pass


def read_json(body: bytes | bytearray) -> dict[str, Any]:
    """The object in the body.

    Raises:
        RequestError: 400, it is something else.
    """
    try:
        found = json.loads(body, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)
    except RecursionError:
        raise RequestError(400, "the body is nested too deeply.") from None
    except _JsonError as error:
        raise RequestError(400, str(error)) from None
    except ValueError as error:  # also for bytes that are not text
        raise RequestError(400, f"the body is no JSON: {error}.") from None
    if not isinstance(found, dict):
        raise RequestError(400, f"expected a JSON object, not a {_KINDS.get(type(found), 'value')}.")
    return found


def bytes_of_values(body: bytes | bytearray) -> int:
    """About what the body's values take beyond the bytes of their texts.

    Raises:
        RequestError: 413, there are too many; counted by commas and brackets, those of texts too.
    """
    count = body.count(b",") + body.count(b"[") + body.count(b"{")
    if count > MOST_VALUES:
        raise RequestError(
            413,
            f"the body has some {count} values; this server takes {MOST_VALUES} in one: send fewer samples a request.",
        )
    return count * _BYTES_A_VALUE


_KINDS = {list: "list", str: "string", int: "number", float: "number", bool: "boolean", type(None): "null"}


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise _JsonError(f"the name {twice!a:.80} is there twice in one object.")
    return made


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise _JsonError(f"the number {digits:.40} is beyond a float: send null, or leave it out.")
    return value


def _constant(name: str) -> NoReturn:
    raise _JsonError(f"{name} is no JSON: send null, or leave it out.")

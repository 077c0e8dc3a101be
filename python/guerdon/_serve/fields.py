"""Fields of a request, by the types that a protocol expects of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from guerdon._serve.errors import RequestError
from guerdon._serve.samples import RESERVED

GROUP_SIZE = ("num_generations", "group_size")
"""Either says how many completions a prompt has."""


def list_of(fields: Mapping[str, Any], name: str, length: int | None = None) -> list[Any]:
    """A list, of a length if that is known.

    Raises:
        RequestError: 400, it is something else.
    """
    value = fields.get(name)
    if not isinstance(value, list):
        raise RequestError(400, f"{name!r} has to be a list with one entry a sample.")
    if length is not None and len(value) != length:
        raise RequestError(400, f"{name!r} has {len(value)} entries for {length} samples.")
    return value


def text(fields: Mapping[str, Any], name: str) -> str:
    """A text.

    Raises:
        RequestError: 400, it is something else.
    """
    value = fields.get(name)
    if not isinstance(value, str):
        raise RequestError(400, f"{name!r} has to be a text.")
    return value


def text_or_messages(value: object, name: str) -> object:
    """A text, or a list of messages, each an object with a role and a content that has a text.

    Otherwise the text of a message that can't be read would be scored as an empty one.

    Raises:
        RequestError: 400, it is neither.
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise RequestError(400, f"{name!r} has to be a text or a list of messages.")
    for place, message in enumerate(value):
        if not isinstance(message.get("role"), str):
            raise RequestError(400, f"message {place} of {name!r} has no 'role'.")
        if not isinstance(message.get("content"), (str, list, type(None))):
            raise RequestError(
                400, f"the 'content' of message {place} of {name!r} has to be a text or a list of parts."
            )
    return value


def group_size(fields: Mapping[str, Any], query: Mapping[str, str]) -> int | None:
    """Completions per prompt, from the body or else from the address; None where neither says so.

    Raises:
        RequestError: 400, it is not a whole number of at least 1.
    """
    given: list[Any] = [fields[name] for name in GROUP_SIZE if fields.get(name) is not None]
    given += [
        int(query[name]) if query[name].isdecimal() and len(query[name]) < 10 else query[name]
        for name in GROUP_SIZE
        if name in query
    ]
    if not given:
        return None
    if any(one != given[0] or isinstance(one, bool) or not isinstance(one, int) or one < 1 for one in given):
        raise RequestError(400, "num_generations (or group_size) has to be a whole number of at least 1.")
    size: int = given[0]
    return size


def refuse_reserved(fields: Mapping[str, Any], *names: str) -> None:
    """Refuses fields that can't be columns: objects of a trainer's process, and `names`.

    Raises:
        RequestError: 400, there is one.
    """
    for name in fields:
        if name in RESERVED or name in names:
            raise RequestError(400, f"{name!r} can't be a column of a request.")

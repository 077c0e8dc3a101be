"""The texts of a row: a prelude, the name of the function that is tested.

A missing value may be None, or pandas' substitute for it.
"""

from __future__ import annotations

import json
from typing import Final

from guerdon.errors import DataError

__all__ = ["BOM", "entry_point_of", "text_of"]

BOM: Final = "\ufeff"
"""Bytes that editors of some systems put before a text; no program may begin with it."""


def text_of(column: str | None, value: object) -> str:
    """The text of a column; "" if there is none.

    Raises:
        DataError: It is something else.
    """
    if isinstance(value, str):
        if "\0" in value:
            raise DataError(f"column {column!r} holds a null character, which no program can")
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise DataError(f"column {column!r} holds half a surrogate pair, which no program can") from None
        return value.removeprefix(BOM)
    if value is None or (isinstance(value, float) and value != value) or type(value).__name__ == "NAType":
        return ""
    raise DataError(f"column {column!r}: a {type(value).__name__} is no text")


def entry_point_of(column: str | None, value: object) -> str | None:
    """The function that is tested, as the row names it: also as LiveCodeBench's metadata.

    Raises:
        DataError: It names none, but holds something else.
    """
    text = text_of(column, value).strip()
    if not text.startswith("{"):
        return text or None
    try:
        name = json.loads(text).get("func_name")
    except (ValueError, RecursionError) as error:
        raise DataError(f"column {column!r}: {text[:80]!r} is no name of a function, nor JSON: {error}") from None
    if name is None or isinstance(name, str):
        return name
    raise DataError(f'column {column!r}: "func_name" is a {type(name).__name__}, not the name of a function')

"""Columns and metadata of a journal's parts, as readers know them.

The columns are those of ``rust/telemetry/src/journal/rows.rs``; a test compares the two. Texts
and chosen columns (``prompt``, ``completion``, ``column_<name>``) come behind them, strings all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from guerdon._system.extras import pip_install
from guerdon.errors import DataError

__all__ = [
    "COLUMNS",
    "DISPATCHER_KEY",
    "KEYS",
    "KINDS_KEY",
    "OUTCOMES",
    "SCHEMA",
    "SCHEMA_KEY",
    "DispatcherFacts",
    "arrow_type",
    "dispatcher_text",
    "facts_of",
    "import_arrow",
    "is_text",
    "json_object",
    "kinds_of",
    "plain_type",
    "problem_of",
    "text_column",
]

SCHEMA: Final = "1"
SCHEMA_KEY: Final = b"guerdon.schema"
KINDS_KEY: Final = b"guerdon.kinds"
DISPATCHER_KEY: Final = b"guerdon.dispatcher"

KEYS: Final = {
    "run": "names",
    "batch": "uint64",
    "step": "int64",
    "rank": "int32",
    "group": "uint32",
    "sample": "uint32",
    "function": "names",
}
"""The columns that say which cell a row is, with their types; ``names`` is a dictionary of
strings."""

OUTCOMES: Final = {
    "version": "string",
    "weight": "float",
    "value": "double",
    "reward": "float",
    "status": "names",
    "reason": "string",
    "traceback": "string",
    "submitted": "timestamp",
    "queue_s": "double",
    "run_s": "double",
    "attempts": "uint16",
    "prompt_tokens": "int64",
    "completion_tokens": "int64",
    "cost": "double",
    "answer": "string",
    "extra": "string",
}
"""The columns that say what became of the cell."""

COLUMNS: Final = {**KEYS, **OUTCOMES}
"""The columns that each part has, in their order."""

_NEEDED: Final = (*KEYS, "reward", "status")
_TEXTS: Final = ("prompt", "completion")
_PREFIX: Final = "column_"
_LONG: Final = ("reason", "traceback", "answer", "extra")


def import_arrow() -> Any:
    """``pyarrow``, with its modules `compute`, `dataset`, `fs`, `ipc` and `parquet`.

    Raises:
        DataError: It isn't installed.
    """
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.dataset
        import pyarrow.fs
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise DataError(f"reading a journal needs pyarrow: {pip_install('journal')}.") from None
    return pyarrow


def is_text(column: str) -> bool:
    """Returns whether it is a column of texts: prompts, completions or values of a dataset's
    column."""
    return column in _TEXTS or column.startswith(_PREFIX)


def text_column(name: str) -> str:
    """The journal's column of `prompt`, `completion` or a column of the dataset."""
    return name if name in _TEXTS else _PREFIX + name


def arrow_type(column: str) -> Any:
    """The type that a column of the journal has."""
    arrow = import_arrow()
    kind = COLUMNS.get(column, "string")
    if kind == "names":
        return arrow.dictionary(arrow.int32(), arrow.string())
    return arrow.timestamp("us", "UTC") if kind == "timestamp" else arrow.type_for_alias(kind)


def plain_type(column: str) -> Any:
    """The type to work with: no dictionary, and texts may be longer than 2 GiB together."""
    arrow = import_arrow()
    if COLUMNS.get(column) == "names" or column == "version":
        return arrow.string()
    return arrow.large_string() if column in _LONG or column not in COLUMNS else arrow_type(column)


def problem_of(schema: Any, *, alone: bool) -> str | None:
    """Returns the reason why a file with this schema is not a part that can be read; None for one
    that can.

    Args:
        alone: The user named the file. One that names no schema, such as a copy that another
            program wrote, then counts; among others it could have their rows once more.
    """
    found = (schema.metadata or {}).get(SCHEMA_KEY)
    if found is None and not alone:
        return "is no part of a journal: its metadata name no schema"
    if found is not None and found.decode("utf-8", "replace") != SCHEMA:
        shown = found.decode("utf-8", "replace")
        return f"has schema {shown}, this version of Guerdon reads {SCHEMA}: update Guerdon to read it"
    for name in _NEEDED:
        if name not in schema.names:
            return f"is no part of a journal: it lacks the column {name!r}"
    for each in schema:
        if (each.name in COLUMNS or is_text(each.name)) and not _fits(each.type, arrow_type(each.name)):
            return f"is no part of a journal: its column {each.name!r} is {each.type}, expected {plain_type(each.name)}"
    return None


def _fits(found: Any, wanted: Any) -> bool:
    """Returns whether a column of one type can be read as another: numbers as numbers, texts as
    texts."""
    types = import_arrow().types
    found, wanted = (each.value_type if types.is_dictionary(each) else each for each in (found, wanted))
    if types.is_null(found):
        return True
    families = (types.is_timestamp, lambda each: types.is_string(each) or types.is_large_string(each))
    # pandas writes whole numbers among which one is missing as floats.
    numbers = [types.is_integer(each) or types.is_floating(each) for each in (found, wanted)]
    return all(numbers) or any(family(found) and family(wanted) for family in families)


def kinds_of(schema: Any) -> dict[str, str]:
    """Returns for each text column ``"text"`` or ``"json"``, by the user's name of it."""
    given = json_object((schema.metadata or {}).get(KINDS_KEY))
    names = [name.removeprefix(_PREFIX) for name in schema.names if is_text(name)]
    return {name: "json" if given.get(name) == "json" else "text" for name in names}


def dispatcher_text(incomplete: str, lanes: Mapping[str, str], workers: int, fallbacks: Sequence[str] = ()) -> str:
    """Returns the facts on the dispatcher for the metadata of a part.

    Args:
        lanes: The lane of each function.
        workers: Number of worker processes.
        fallbacks: Names of the functions with a fallback.
    """
    facts: dict[str, Any] = {"incomplete": incomplete, "lanes": dict(lanes), "workers": workers}
    return json.dumps({**facts, **({"fallbacks": list(fallbacks)} if fallbacks else {})})


@dataclass(frozen=True)
class DispatcherFacts:
    """Facts on the dispatcher that wrote a part, as far as the part has them.

    Attributes:
        is_summed: A sample on which a function failed had the sum of the others as its total. A
            table that someone made of a journal may not say so.
        lanes: By function.
        workers: Number of worker processes; None if the part does not name it.
        fallbacks: Names of the functions with a fallback.
    """

    is_summed: bool
    lanes: dict[str, str]
    workers: int | None
    fallbacks: frozenset[str]


def facts_of(schema: Any) -> DispatcherFacts:
    """Returns the facts on the dispatcher that wrote a part with this schema."""
    found = json_object((schema.metadata or {}).get(DISPATCHER_KEY))
    lanes, workers, fallbacks = (found.get(name) for name in ("lanes", "workers", "fallbacks"))
    if not isinstance(fallbacks, list) or not all(isinstance(name, str) for name in fallbacks):
        fallbacks = []
    return DispatcherFacts(
        found.get("incomplete") == "sum",
        {name: str(lane) for name, lane in lanes.items()} if isinstance(lanes, dict) else {},
        workers if isinstance(workers, int) else None,
        frozenset(fallbacks),
    )


def json_object(text: bytes | str | None) -> dict[str, Any]:
    """A JSON object, of the metadata or a row; an empty one for other text."""
    try:
        found = json.loads(text or b"{}")
    except (ValueError, RecursionError):  # somebody's own
        return {}
    return found if isinstance(found, dict) else {}

"""A journal's folder as one table, or as a stream of record batches (`guerdon.read_journal`).

- Each row is there once, of parts that are still written too.
- Only the columns that are asked for are read, and of a Parquet file only row groups that may hold
  what the filter takes.
- If parts differ in the form of a column, its values become JSON strings in all of them.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guerdon._insight.journal.parts import JournalParts, Part, find_parts
from guerdon._insight.journal.schema import (
    COLUMNS,
    KINDS_KEY,
    SCHEMA,
    SCHEMA_KEY,
    arrow_type,
    import_arrow,
    is_text,
    text_column,
)
from guerdon._system.extras import pip_install
from guerdon.errors import DataError, GuerdonWarning

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["read"]

_ROWS: Final = 1 << 16


def read(folder: str | os.PathLike[str], columns: object, filters: Any) -> pa.RecordBatchReader:
    """The rows of `folder` as they are read; see `guerdon.read_journal`."""
    try:
        import pyarrow as pa
    except ImportError:
        raise ImportError(f"reading a journal needs pyarrow: {pip_install('journal')}") from None
    if not isinstance(folder, (str, os.PathLike)):
        raise TypeError(f"folder={folder!r}: expected the path of a journal's folder, or of one of its files.")
    path = Path(folder).expanduser()
    if not path.exists():
        raise FileNotFoundError(
            f"there is no journal {str(folder)!r}: give the folder that Dispatcher(journal=) names."
        )
    chosen = _names(columns)
    journal = find_parts(path)
    if not journal.parts and journal.notes:
        journal.check_some()
    reported = _report(journal, 0)
    types = _types(journal, chosen)
    wanted = list(types) if chosen is None else chosen
    _check_columns(wanted, types)
    expression = _expression(filters, types)
    kinds = _agreed(journal.parts)
    metadata = {SCHEMA_KEY: SCHEMA, KINDS_KEY: json.dumps(kinds)}
    schema = pa.schema([pa.field(name, types[name]) for name in wanted], metadata=metadata)
    rows = _PartReader(wanted, _named_in(expression, types), types, expression, kinds)
    return pa.RecordBatchReader.from_batches(schema, rows.of(journal, schema, reported))


class _PartReader:
    """Reads some columns of each part."""

    def __init__(
        self, wanted: Sequence[str], named: Sequence[str], types: Mapping[str, Any], filter: Any, kinds: dict[str, str]
    ) -> None:
        self._wanted = wanted
        self._read = list(dict.fromkeys([*wanted, *named]))
        self._types = types
        self._filter = filter
        self._kinds = kinds

    def of(self, journal: JournalParts, schema: Any, reported: int) -> Iterator[Any]:
        """Record batches of all parts; what can't be read is warned of behind its part."""
        for part in journal.parts:
            for _, batch in part.batches(self._read, _ROWS, types=self._types, among=self._filter):
                for rows in self._filtered(batch):
                    columns = [self._column(part, name, rows) for name in self._wanted]
                    yield import_arrow().RecordBatch.from_arrays(columns, schema=schema)
            reported = _report(journal, reported)

    def _filtered(self, batch: Any) -> list[Any]:
        if self._filter is None:
            return [batch]
        table = import_arrow().Table.from_batches([batch]).filter(self._filter)
        return list(table.to_batches())

    def _column(self, part: Part, name: str, rows: Any) -> Any:
        """JSON of strings where another part has this column as JSON."""
        array = rows.column(name)
        own = part.kinds.get(plain := name.removeprefix("column_"))
        if not is_text(name) or own in (None, "json") or self._kinds[plain] != "json":
            return array
        texts = [None if text is None else json.dumps(text, ensure_ascii=False) for text in array.to_pylist()]
        return import_arrow().array(texts, array.type)


def _report(journal: JournalParts, reported: int) -> int:
    """Warns of the parts that were left out since; how many notes there are."""
    for note in journal.notes[reported:]:
        warnings.warn(f"not all of the journal {journal.folder!r} could be read: {note}.", GuerdonWarning, stacklevel=4)
    return len(journal.notes)


def _names(columns: object) -> list[str] | None:
    if columns is None:
        return None
    if isinstance(columns, (str, bytes)) or not isinstance(columns, Iterable):
        hint = f", as in columns=[{columns!r}]" if isinstance(columns, str) else ""
        raise TypeError(f"columns={columns!r}: expected a list of names{hint}.")
    names = list(dict.fromkeys(columns))
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"columns= has {name!r}: expected a list of names.")
    return names


def _types(journal: JournalParts, chosen: Sequence[str] | None) -> dict[str, Any]:
    """All columns of the journal; of one without parts those that it could have."""
    types = {name: arrow_type(name) for name in COLUMNS}
    for part in journal.parts:
        types.update((name, arrow_type(name)) for name in map(text_column, part.kinds))
    if not journal.parts:
        types.update((name, arrow_type(name)) for name in chosen or () if is_text(name))
    return types


def _check_columns(wanted: Sequence[str], types: Mapping[str, Any]) -> None:
    for name in wanted:
        if name not in types:
            kept = (
                " Texts are kept with Journal(texts=True), others with Journal(columns=[…])." if is_text(name) else ""
            )
            raise DataError(f"columns= names {name!r}, which the journal does not have.{kept} {_there(types)}")


def _there(types: Mapping[str, Any]) -> str:
    return f"It has: {', '.join(types)}."


def _expression(filters: Any, types: Mapping[str, Any]) -> Any:
    """The filter, which the columns can be put through.

    Raises:
        DataError: It can't be one, or not of these columns.
    """
    arrow = import_arrow()
    if filters is None:
        return None
    problem, expression = "", filters
    try:
        if not isinstance(filters, arrow.compute.Expression):
            expression = arrow.parquet.filters_to_expression(filters)
        _empty(types).filter(expression)
    except (TypeError, ValueError, AttributeError, NotImplementedError, arrow.ArrowException) as error:
        problem = (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")
    if problem:
        unknown = [name for name in _names_of(filters) if name not in types]
        why = f"the journal has no column {unknown[0]!r}" if unknown else problem
        raise DataError(
            f"filters={filters!r}: {why}. Expected (column, operator, value) as in [('status', '!=', 'ok')], or an expression "
            f"of pyarrow.compute.field. {_there(types)}"
        )
    return expression


def _names_of(filters: Any) -> list[str]:
    """The names in a list of conditions, as far as it is one."""
    if not isinstance(filters, (list, tuple)):
        return []
    if len(filters) == 3 and isinstance(filters[0], str):
        return [filters[0]]
    return [name for each in filters for name in _names_of(each)]


def _empty(types: Mapping[str, Any]) -> Any:
    arrow = import_arrow()
    return arrow.schema(list(types.items())).empty_table()


def _named_in(expression: Any, types: Mapping[str, Any]) -> list[str]:
    """The columns that a filter needs: those without which it can't be put to use."""
    if expression is None:
        return []
    table, needed = _empty(types), []
    for name in types:
        try:
            table.drop_columns([name]).filter(expression)
        except (ValueError, import_arrow().ArrowException):
            needed.append(name)
    return needed


def _agreed(parts: Sequence[Part]) -> dict[str, str]:
    """Returns the form of each column of texts, JSON if any part has it so."""
    agreed: dict[str, str] = {}
    for part in parts:
        for name, kind in part.kinds.items():
            if agreed.get(name) != "json":
                agreed[name] = kind
    return agreed

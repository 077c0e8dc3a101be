"""The parts of a journal: their files and rows, for every reader.

- A file is a part by its contents. Other files, unreadable ones and those of another version are
  left out and named once, in `JournalParts.notes`.
- If a stream and its Parquet file both exist, the file counts.
- Memory holds one record batch or row group, whatever the size of the journal.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from guerdon._insight.journal.part_files import NoRows, open_part
from guerdon._insight.journal.schema import facts_of, import_arrow, is_text, kinds_of, problem_of
from guerdon._system.units import plural
from guerdon.errors import DataError

__all__ = ["BATCH_ROWS", "JournalParts", "Part", "find_parts", "is_folder"]

BATCH_ROWS: Final = 1 << 17
_FEW_ROWS: Final = 1 << 10  # of texts, which may be long
_FILE: Final = re.compile(r"(?P<writer>.+)-(?P<number>\d+)\.(?:parquet|arrows)")
_FORMS: Final = (".parquet", ".arrows")


@dataclass(eq=False)
class Part:
    """One file of a journal.

    Attributes:
        writer: What the names of all parts of one writer begin with: run, rank and process.
        number: Its place among them.
        schema: Of the file.
        notes: Those of the journal.
        damage: Of a stream that recovery left as it is, why.
        limit: Number of its rows that count; None for all. A part that is still written grows.
    """

    path: Path
    writer: str
    number: int
    schema: Any
    notes: list[str] = field(default_factory=list)
    damage: str | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        self.kinds = kinds_of(self.schema)
        self.facts = facts_of(self.schema)

    @property
    def is_open(self) -> bool:
        """Returns whether it is a stream, and not yet Parquet."""
        return self.path.suffix == ".arrows"

    def batches(
        self,
        columns: Sequence[str],
        size: int = BATCH_ROWS,
        *,
        types: Mapping[str, Any] | None = None,
        among: Any = None,
        dictionaries: Sequence[str] = (),
    ) -> Iterator[tuple[int, Any]]:
        """The place of the first row in the part, and a record batch; up to where it can be read.

        Args:
            columns: Those that it lacks are missing, unless `types` says what they are.
            size: Rows of a record batch, at most.
            types: Of all columns: as those they come, null where the part has none.
            among: Row groups that hold none of these places (ascending), or by their statistics
                nothing that a filter takes, are passed over. What is read is not filtered.
            dictionaries: Columns of strings that may come as dictionaries.
        """
        first = 0
        try:
            reader = open_part(self.path)
        except NoRows:
            return
        except (OSError, ValueError, import_arrow().ArrowException) as error:
            self._note(error, first)
            return
        try:
            there = [name for name in columns if name in reader.schema.names]
            known = [name for name in dictionaries if name in there]
            for found in reader.batches(there, size, among=among, dictionaries=known):
                if isinstance(found, int):
                    first += found
                    continue
                batch = found if self.limit is None else found.slice(0, max(0, self.limit - first))
                yield first, batch if types is None else _typed(batch, columns, types)
                first += batch.num_rows
                if self.limit is not None and first >= self.limit:
                    return
        except (EOFError, OSError, ValueError, import_arrow().ArrowException) as error:
            self._note(error, first)
        finally:
            reader.close()

    def rows(self, places: Sequence[int], columns: Sequence[str]) -> Iterator[tuple[int, Any, int]]:
        """Single rows: each place, a record batch and where in it the row is.

        Args:
            places: In ascending order.
        """
        at = 0
        for first, batch in self.batches(columns, _FEW_ROWS, among=places):
            while at < len(places) and places[at] < first + batch.num_rows:
                yield places[at], batch, places[at] - first
                at += 1
            if at == len(places):
                return

    def filled_texts(self) -> list[str]:
        """The names, as the user has them, of the text columns that hold anything."""
        columns = [name for name in self.schema.names if is_text(name)]
        try:
            reader = open_part(self.path)
        except (NoRows, OSError, ValueError):
            return []
        try:
            filled = reader.filled(columns)
        finally:
            reader.close()
        return [name for name, column in zip(self.kinds, columns, strict=True) if column in filled]

    def _note(self, error: Exception, rows: int) -> None:
        if not self.is_open:
            note = f"{self.path.name} could not be read after {rows:,} rows: {_reason(error)}"
        elif self.damage is not None:
            note = f"{self.path.name} can be read for {rows:,} rows only, and stays as it is: it {self.damage}"
        else:  # a message that is being written
            return
        if note not in self.notes:
            self.notes.append(note)


@dataclass(frozen=True)
class JournalParts:
    """The files of a journal.

    Attributes:
        parts: Writer by writer, in the order in which each began them.
        notes: What was left out or lost, a sentence each. Reading may add to them.
    """

    folder: str
    parts: list[Part]
    notes: list[str]

    def described_notes(self) -> str:
        """The notes, for the end of a message."""
        return "".join(f" {note}." for note in self.notes)

    def check_some(self) -> None:
        """Raises:
        DataError: There are no parts.
        """
        if not self.parts:
            if self.notes:
                raise DataError(f"the journal {self.folder!r} has no parts that can be read.{self.described_notes()}")
            raise DataError(
                f"the journal {self.folder!r} has no parts (*.parquet, *.arrows): nothing was written yet, or it is another "
                "folder; give the one that Dispatcher(journal=) names."
            )


def is_folder(journal: str | Path) -> bool:
    """Returns whether the journal is a folder, and not one file of it.

    Raises:
        DataError: There is neither, or this user may not look.
    """
    try:
        folder = stat.S_ISDIR(os.stat(journal).st_mode)
        if folder:
            os.scandir(journal).close()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise DataError(
            f"there is no journal {str(journal)!r}: give the folder that Dispatcher(journal=) names."
        ) from None
    except OSError as error:
        raise DataError(f"the journal {str(journal)!r} can't be read: {error.strerror}.") from None
    return folder


def find_parts(journal: str | Path, *, recover: bool = True) -> JournalParts:
    """The parts of the folder `journal`, or of the one file.

    Args:
        recover: Make Parquet files of what killed runs left in the folder, where this user may.

    Raises:
        DataError: There is no such folder or file, or this user may not read it.
    """
    import_arrow()
    path, notes = Path(journal), list[str]()
    folder = is_folder(journal)
    left = _recover(path, notes) if recover and folder else {}
    # Streams first: what a stream becomes meanwhile is found among the files.
    listed = [*path.glob("*.arrows"), *path.glob("*.parquet")] if folder else [path]
    found = {}
    for each in listed:
        if each.suffix != ".arrows" or each == path or not each.with_suffix(".parquet").exists():
            found[each.with_suffix("")] = each
    parts = [_part(each, notes, left, alone=each == path) for each in sorted(found.values())]
    known = sorted((part for part in parts if part is not None), key=lambda part: (part.writer, part.number))
    return JournalParts(str(journal), known, notes)


def _part(path: Path, notes: list[str], left: Mapping[str, str], *, alone: bool) -> Part | None:
    """The part; None for a file that is not a part or has no contents yet, with a note unless it is
    young."""
    damage = left.get(path.name)
    try:
        if path.suffix not in _FORMS:
            raise ValueError("it is neither *.parquet nor *.arrows")
        if path.exists() and not path.is_file():  # opening a pipe would wait for its other end
            raise ValueError("it is no file")
        reader = open_part(path)
    except NoRows:
        if damage is not None:
            notes.append(f"{path.name} can't be read, and stays as it is: it {damage}")
        return None
    except FileNotFoundError:  # a stream without rows that its writer removed
        return None
    except (OSError, ValueError, import_arrow().ArrowException) as error:
        notes.append(f"{path.name} can't be read as a part of a journal: {_reason(error)}")
        return None
    schema = reader.schema
    reader.close()
    problem = problem_of(schema, alone=alone)
    if problem is not None:
        notes.append(f"{path.name} {problem}")
        return None
    match = _FILE.fullmatch(path.name)
    writer, number = (match["writer"], int(match["number"])) if match else (path.stem, 0)
    return Part(path, writer, number, schema, notes, damage)


def _recover(folder: Path, notes: list[str]) -> dict[str, str]:
    """Makes Parquet files of streams whose writers died; names of those that stay, and why."""
    from guerdon._native import recover_journal

    try:
        _, _, cut, cut_bytes, left = recover_journal(str(folder))
    except OSError:  # a folder that this user may not list
        return {}
    if cut:
        notes.append(
            f"{plural(cut, 'part')} ended within a message, over which the run was killed: its {cut_bytes:,} "
            "bytes were dropped, all rows before it are there"
        )
    return {Path(path).name: why for path, why in left}


def _typed(batch: Any, columns: Sequence[str], types: Mapping[str, Any]) -> Any:
    """The record batch with these columns in these types, null where it has none."""
    arrow = import_arrow()
    arrays = []
    for name in columns:
        wanted = types[name]
        place = batch.schema.get_field_index(name)
        array = arrow.nulls(batch.num_rows, wanted) if place < 0 else batch.column(place)
        if array.type != wanted:
            array = _cast(arrow, array, wanted)
        arrays.append(array)
    schema = arrow.schema([arrow.field(name, types[name]) for name in columns])
    return arrow.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(arrow: Any, array: Any, wanted: Any) -> Any:
    plain = array.dictionary_decode() if arrow.types.is_dictionary(array.type) else array
    if not arrow.types.is_dictionary(wanted):
        return plain if plain.type == wanted else plain.cast(wanted)
    return plain.cast(wanted.value_type).dictionary_encode().cast(wanted)


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")[:200]

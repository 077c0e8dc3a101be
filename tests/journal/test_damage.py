"""Unreadable files are named once, and the rest is read: by `read_journal`, replay, report."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from guerdon import DataError, GuerdonWarning, read_journal, replay, reward
from guerdon._insight.journal.parts import find_parts
from guerdon._insight.report.aggregates import aggregates
from guerdon._insight.report.summary import summarise
from tests.journal_files import SCHEMA, row, table, write_open_part, write_part


def some_rows(count: int) -> list[dict[str, Any]]:
    return [row(sample=number) for number in range(count)]


def test_a_killed_run_is_read(tmp_path: Path) -> None:
    written = table([{**dict.fromkeys(SCHEMA.names), **row} for row in some_rows(10)])
    write_part(tmp_path, written.slice(0, 4), part=0)
    stream = write_open_part(tmp_path, written.slice(4), part=1, chunk=3, cut=17)
    with pytest.warns(GuerdonWarning, match="1 part ended within a message"):
        rows = read_journal(tmp_path)
    assert rows["sample"].to_pylist() == [0, 1, 2, 3, 4, 5, 6]
    assert not stream.exists()
    assert read_journal(tmp_path).num_rows == 7
    assert read_journal(tmp_path / stream.with_suffix(".parquet").name).num_rows == 3


NAMED = "run-1-r0-77-00000"
PART, STREAM = f"{NAMED}.parquet", f"{NAMED}.arrows"
UNREADABLE = "can't be read as a part of a journal"
NO_PART = "is no part of a journal"
NEWER = "has schema 2, this version of Guerdon reads 1"


def _copied(folder: Path) -> None:
    """Writes all rows once more, as DuckDB or pandas write them."""
    rows = [pq.read_table(path) for path in folder.glob("*.parquet")]
    pq.write_table(pa.concat_tables(rows).replace_schema_metadata(None), folder / "all.parquet")


def _of_other_types(folder: Path) -> None:
    rows = table([row()])
    write_part(folder, rows.set_column(rows.schema.get_field_index("value"), "value", [["x"]]), pid=77)


def _torn_pages(folder: Path) -> None:
    path = write_part(folder, table([row(sample=place) for place in range(500)]), pid=77)
    content = path.read_bytes()
    path.write_bytes(content[:4] + bytes(len(content) // 4) + content[4 + len(content) // 4 :])


def _no_rows(folder: Path) -> None:
    write_part(folder, table([]), pid=77)
    (folder / "run-1-r0-78-00000.arrows").touch()
    (folder / "notes.txt").write_text("mine")


# The damage, the file that is named, and the reason.
DAMAGE: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "foreign": (
        lambda folder: pq.write_table(pa.table({"a": [1]}), folder / "data.parquet"),
        "data.parquet",
        f"{NO_PART}: its metadata name no schema",
    ),
    "copied": (_copied, "all.parquet", f"{NO_PART}: its metadata name no schema"),
    "newer": (lambda folder: write_part(folder, table([row()], schema="2"), pid=77), PART, NEWER),
    "newer stream": (lambda folder: write_open_part(folder, table([row()], schema="2"), pid=77), STREAM, NEWER),
    "lacking": (
        lambda folder: write_part(folder, table([row()]).drop_columns("status"), pid=77),
        PART,
        f"{NO_PART}: it lacks the column 'status'",
    ),
    "of other types": (_of_other_types, PART, f"{NO_PART}: its column 'value' is string, expected double"),
    "no Parquet": (lambda folder: (folder / PART).write_bytes(b"PAR1 and no more"), PART, UNREADABLE),
    "empty": (lambda folder: (folder / PART).write_bytes(b""), PART, UNREADABLE),
    "no stream": (
        lambda folder: (folder / "data.arrows").write_bytes(b"something else"),
        "data.arrows",
        f"{UNREADABLE}: it is no Arrow stream",
    ),
    "torn pages": (_torn_pages, PART, "could not be read after 0 rows"),
    "pipe": (lambda folder: os.mkfifo(folder / PART), PART, f"{UNREADABLE}: it is no file"),
    "pipe as stream": (lambda folder: os.mkfifo(folder / STREAM), STREAM, f"{UNREADABLE}: it is no file"),
    "folder": (lambda folder: (folder / PART).mkdir(), PART, f"{UNREADABLE}: it is no file"),
    "no rows": (_no_rows, "", ""),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.fault(
    "a folder with a journal has other files too: damaged, of a newer version, of another program",
    sees="the rows of the journal in all readers alike, and one sentence that names the file",
)
def test_all_readers_leave_out_the_same_and_say_so_once(damage: str, tmp_path: Path) -> None:
    make, file, problem = DAMAGE[damage]
    rows = [row(sample=number, function="length", value=1.0, prompt="p", completion="a") for number in range(4)]
    write_part(tmp_path, table(rows[:2], texts=True), part=0)
    write_open_part(tmp_path, table(rows[2:], texts=True), part=1)
    make(tmp_path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert read_journal(tmp_path)["sample"].to_pylist() == [0, 1, 2, 3]
    warned = [str(each.message) for each in caught if each.category is GuerdonWarning]
    figures = aggregates(summarise(find_parts(tmp_path)))
    assert figures["rows"] == 4
    replayed = replay(tmp_path, [reward(lambda text: 1.0, name="length", lane="thread")])
    assert (replayed.samples, replayed.differences) == (4, 0)
    replayed_notes = [note for note in replayed.notes if ".parquet" in note or ".arrows" in note]
    for notes in (warned, figures["notes"], replayed_notes):
        assert len(notes) == bool(file), notes
        assert all(f"{file} {problem}" in note for note in notes), notes
    assert all(str(tmp_path) in note for note in warned)
    # Some are read where they are named.
    if file and damage not in ("copied", "torn pages", "folder"):
        with pytest.raises(DataError, match=file):
            read_journal(tmp_path / file)


def test_a_copy_that_another_program_wrote_is_read_by_itself(tmp_path: Path) -> None:
    rows = table([row(sample=number, function="length", value=1.0) for number in range(4)])
    write_part(tmp_path, rows)
    _copied(tmp_path)
    copy = tmp_path / "all.parquet"
    assert read_journal(copy)["sample"].to_pylist() == [0, 1, 2, 3]
    assert aggregates(summarise(find_parts(copy)))["rows"] == 4


def test_a_part_may_have_any_name(tmp_path: Path) -> None:
    write_part(tmp_path, table([row()])).rename(tmp_path / "kept.parquet")
    assert read_journal(tmp_path).num_rows == 1
    assert aggregates(summarise(find_parts(tmp_path)))["rows"] == 1

"""Unreadable files are named once, and the rest is read: by `read_journal`, replay, report."""

from __future__ import annotations

import os
import warnings
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


def _foreign(folder: Path) -> str:
    pq.write_table(pa.table({"a": [1]}), folder / "data.parquet")
    return "data.parquet is no part of a journal: its metadata name no schema"


def _copied(folder: Path) -> str:
    """All rows once more, as DuckDB or pandas write them."""
    rows = [pq.read_table(path) for path in folder.glob("*.parquet")]
    pq.write_table(pa.concat_tables(rows).replace_schema_metadata(None), folder / "all.parquet")
    return "all.parquet is no part of a journal: its metadata name no schema"


def _newer(folder: Path) -> str:
    write_part(folder, table([row()], schema="2"), pid=77)
    return f"{NAMED}.parquet has schema 2, this version of Guerdon reads 1"


def _newer_stream(folder: Path) -> str:
    write_open_part(folder, table([row()], schema="2"), pid=77)
    return f"{NAMED}.arrows has schema 2, this version of Guerdon reads 1"


def _lacking(folder: Path) -> str:
    write_part(folder, table([row()]).drop_columns("status"), pid=77)
    return f"{NAMED}.parquet is no part of a journal: it lacks the column 'status'"


def _of_other_types(folder: Path) -> str:
    rows = table([row()])
    place = rows.schema.get_field_index("value")
    write_part(folder, rows.set_column(place, "value", [["x"]]), pid=77)
    return f"{NAMED}.parquet is no part of a journal: its column 'value' is string, expected double"


def _no_parquet(folder: Path) -> str:
    (folder / f"{NAMED}.parquet").write_bytes(b"PAR1 and no more")
    return f"{NAMED}.parquet can't be read as a part of a journal"


def _empty(folder: Path) -> str:
    (folder / f"{NAMED}.parquet").write_bytes(b"")
    return f"{NAMED}.parquet can't be read as a part of a journal"


def _no_stream(folder: Path) -> str:
    (folder / "data.arrows").write_bytes(b"something else")
    return "data.arrows can't be read as a part of a journal: it is no Arrow stream"


def _torn_pages(folder: Path) -> str:
    path = write_part(folder, table([row(sample=place) for place in range(500)]), pid=77)
    content = path.read_bytes()
    path.write_bytes(content[:4] + bytes(len(content) // 4) + content[4 + len(content) // 4 :])
    return f"{NAMED}.parquet could not be read after 0 rows"


def _pipe(folder: Path) -> str:
    os.mkfifo(folder / f"{NAMED}.parquet")
    return f"{NAMED}.parquet can't be read as a part of a journal: it is no file"


def _pipe_as_stream(folder: Path) -> str:
    os.mkfifo(folder / f"{NAMED}.arrows")
    return f"{NAMED}.arrows can't be read as a part of a journal: it is no file"


def _folder(folder: Path) -> str:
    (folder / f"{NAMED}.parquet").mkdir()
    return f"{NAMED}.parquet can't be read as a part of a journal: it is no file"


def _no_rows(folder: Path) -> str:
    write_part(folder, table([]), pid=77)
    (folder / "run-1-r0-78-00000.arrows").touch()
    (folder / "notes.txt").write_text("mine")
    return ""


@pytest.mark.parametrize(
    "damage",
    [
        _foreign,
        _copied,
        _newer,
        _newer_stream,
        _lacking,
        _of_other_types,
        _no_parquet,
        _empty,
        _no_stream,
        _torn_pages,
        _pipe,
        _pipe_as_stream,
        _folder,
        _no_rows,
    ],
    ids=lambda damage: damage.__name__.strip("_"),
)
@pytest.mark.fault(
    "a folder with a journal has other files too: damaged, of a newer version, of another program",
    sees="the rows of the journal in all readers alike, and one sentence that names the file",
)
def test_all_readers_leave_out_the_same_and_say_so_once(damage: Any, tmp_path: Path) -> None:
    rows = [row(sample=number, function="length", value=1.0, prompt="p", completion="a") for number in range(4)]
    write_part(tmp_path, table(rows[:2], texts=True), part=0)
    write_open_part(tmp_path, table(rows[2:], texts=True), part=1)
    named = damage(tmp_path)
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
        assert len(notes) == bool(named), notes
        assert all(named in note for note in notes), notes
    assert all(str(tmp_path) in note for note in warned)
    # Some are read where they are named.
    if named and damage not in (_copied, _torn_pages, _folder):
        file = named.split()[0]
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

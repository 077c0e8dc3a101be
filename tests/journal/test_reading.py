"""`read_journal`: which rows and columns it reads, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.compute import field

from guerdon import DataError, GuerdonWarning, read_journal
from tests.journal_files import SCHEMA, many_rows, row, table, write_open_part, write_part


def test_a_folder_without_rows_is_an_empty_table_and_none_an_error(tmp_path: Path) -> None:
    empty = read_journal(tmp_path)
    assert (empty.num_rows, empty.schema.names) == (0, SCHEMA.names)
    with pytest.raises(FileNotFoundError):
        read_journal(tmp_path / "elsewhere")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(DataError, match="is no part of a journal"):
        read_journal(tmp_path)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Two parts of four row groups, and a stream; steps 0 to 9."""
    for part in range(2):
        rows = [
            row(step=step, batch=step, sample=sample, function=name, value=float(step))
            for step in range(4 * part, 4 * part + 4)
            for sample in range(50)
            for name in ("correct", "format")
        ]
        path = write_part(tmp_path, table(rows), part=part)
        pq.write_table(table(rows), path, row_group_size=100)
    stream = [row(step=step, batch=step, sample=sample, value=float(step)) for step in (8, 9) for sample in range(50)]
    write_open_part(tmp_path, table(stream), part=2, chunk=30)
    return tmp_path


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize(
    "filters",
    [
        [("step", ">=", 3), ("step", "<", 9), ("function", "=", "correct")],
        [("function", "in", ["correct"]), ("step", ">=", 3), ("step", "<", 9)],
        (field("step") >= 3) & (field("step") < 9) & (field("function") == "correct"),
    ],
    ids=["conditions", "in", "expression"],
)
def test_filters_choose_the_same_rows_everywhere(journal: Path, filters: Any, batches: bool) -> None:
    found = read_journal(journal, columns=["value", "sample"], filters=filters, batches=batches)
    rows = found.read_all() if isinstance(found, pa.RecordBatchReader) else found
    assert rows.schema.names == ["value", "sample"]
    expected = [(float(step), sample) for step in range(3, 9) for sample in range(50)]
    assert list(zip(rows["value"].to_pylist(), rows["sample"].to_pylist(), strict=True)) == expected


def test_row_groups_and_columns_that_nobody_asked_for_are_not_read(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[list[str], list[int]]] = []
    iter_batches = pq.ParquetFile.iter_batches

    def watched(self: Any, size: int, *, columns: list[str], row_groups: list[int] | None = None) -> Any:
        seen.append((columns, row_groups or []))
        return iter_batches(self, size, columns=columns, row_groups=row_groups)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", watched)
    read_journal(journal, columns=["value"], filters=[("step", "=", 5)])
    assert seen == [(["value", "step"], [1])]


def test_batches_are_the_rows_of_the_table(journal: Path) -> None:
    reader = read_journal(journal, batches=True)
    whole = read_journal(journal)
    assert reader.schema.equals(whole.schema, check_metadata=True)
    batches = list(reader)
    assert len(batches) > 3
    assert pa.Table.from_batches(batches).unify_dictionaries().equals(whole)


def test_batches_are_read_as_they_are_asked_for(journal: Path) -> None:
    reader = read_journal(journal, columns=["step"], batches=True)
    for path in journal.glob("*-00001.parquet"):
        path.unlink()
    with pytest.warns(GuerdonWarning, match=r"00001.parquet could not be read after 0 rows"):
        rows = reader.read_all()
    assert set(rows["step"].to_pylist()) == {0, 1, 2, 3, 8, 9}


def test_a_memory_bound_reader_never_has_all_rows(tmp_path: Path) -> None:
    for part, rows in enumerate(many_rows(400_000, chunk=1 << 17)):
        write_part(tmp_path, rows, part=part)
    before, most, count = pa.total_allocated_bytes(), 0, 0
    for rows in read_journal(tmp_path, batches=True):
        most = max(most, pa.total_allocated_bytes() - before)
        count += rows.num_rows
    assert count == 400_000
    whole = read_journal(tmp_path)
    assert most < whole.nbytes / 2


def test_parts_that_write_a_column_in_two_ways_agree_batch_by_batch(tmp_path: Path) -> None:
    write_part(tmp_path, table([row(column_a="x")], columns=["a"]), part=0)
    write_part(tmp_path, table([row(column_a="[1]")], columns=["a"], kinds={"a": "json"}), part=1)
    write_part(tmp_path, table([row()]), part=2)
    reader = read_journal(tmp_path, columns=["column_a"], batches=True)
    assert json.loads(reader.schema.metadata[b"guerdon.kinds"]) == {"a": "json"}
    assert reader.read_all()["column_a"].to_pylist() == ['"x"', "[1]", None]
    chosen = read_journal(tmp_path, columns=["sample"], filters=[("column_a", "=", "x")])
    assert chosen.num_rows == 1


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"folder": 3}, TypeError, "folder=3: expected the path of a journal's folder"),
        ({"folder": None}, TypeError, "folder=None: expected the path"),
        ({"columns": "run"}, TypeError, r"columns='run': expected a list of names, as in columns=\['run'\]"),
        ({"columns": 3}, TypeError, "columns=3: expected a list of names"),
        ({"columns": [3]}, TypeError, "columns= has 3: expected a list of names"),
        (
            {"columns": ["values"]},
            DataError,
            "columns= names 'values', which the journal does not have. It has: run, batch",
        ),
        ({"columns": ["prompt"]}, DataError, r"names 'prompt', .* Texts are kept with Journal\(texts=True\)"),
        ({"columns": ["column_a"]}, DataError, r"others with Journal\(columns="),
        (
            {"filters": [("stat", "=", "ok")]},
            DataError,
            "the journal has no column 'stat'. Expected .* It has: run, batch",
        ),
        ({"filters": [[("step", "=", 1), ("stat", "=", 1)]]}, DataError, "the journal has no column 'stat'"),
        ({"filters": field("stat") == "ok"}, DataError, r"No match for FieldRef.Name\(stat\)"),
        ({"filters": [("step", "~", 1)]}, DataError, r"filters=\[\('step', '~', 1\)\]"),
        ({"filters": [("step", "=", "x")]}, DataError, "Expected .column, operator, value"),
        ({"filters": "step"}, DataError, "filters='step'"),
        ({"filters": 3}, DataError, "filters=3"),
    ],
)
def test_unreadable_value_is_refused_with_the_expected_form(
    journal: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        read_journal(**{"folder": journal, **options})


def test_a_folder_of_the_users_home_is_found(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(journal.parent))
    assert read_journal(f"~/{journal.name}", columns=["step"]).num_rows == 900


def test_an_empty_folder_may_be_asked_for_any_column(tmp_path: Path) -> None:
    found = read_journal(tmp_path, columns=["value", "prompt"], filters=[("status", "=", "ok")])
    assert (found.num_rows, found.schema.names) == (0, ["value", "prompt"])
    assert list(read_journal(tmp_path, batches=True)) == []

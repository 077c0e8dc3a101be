"""The columns and metadata of a part, as the engine writes them and as readers know them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from guerdon import Dispatcher, Journal
from guerdon._insight.journal.schema import (
    COLUMNS,
    SCHEMA,
    arrow_type,
    dispatcher_text,
    is_summed,
    plain_type,
    problem_of,
)
from tests.journal_files import row, table
from tests.simple import length

NULLABLE = frozenset(
    ("step", "value", "reward", "reason", "traceback", "prompt_tokens", "completion_tokens", "cost", "answer", "extra")
)


def test_the_columns_are_those_that_readers_know(tmp_path: Path) -> None:
    """The list in Rust and the one in Python: names, order, types, what may be null, metadata."""
    with Dispatcher([length], journal=Journal(tmp_path, texts=True, columns=["answer"])) as dispatcher:
        dispatcher.score(prompts=["p"], completions=["abc"], answer=["x"])
    (path,) = tmp_path.glob("*.parquet")
    schema = pq.read_schema(path)
    kinds = {"prompt": "text", "completion": "text", "answer": "text"}
    fields = [pa.field(name, arrow_type(name), name in NULLABLE) for name in COLUMNS]
    fields += [pa.field(name, pa.string()) for name in ("prompt", "completion", "column_answer")]
    metadata = {"guerdon.schema": SCHEMA, "guerdon.kinds": json.dumps(kinds)}
    expected = pa.schema(fields, metadata={**metadata, "guerdon.dispatcher": dispatcher_text("drop")})
    assert schema.equals(expected), f"{schema}\n\n{expected}"
    assert schema.names == [*COLUMNS, "prompt", "completion", "column_answer"]
    metadata = {key: value for key, value in schema.metadata.items() if key.startswith(b"guerdon.")}
    assert set(metadata) == {b"guerdon.schema", b"guerdon.kinds", b"guerdon.dispatcher"}
    for key, value in expected.metadata.items():
        assert json.loads(metadata[key]) == json.loads(value)
    assert problem_of(schema, alone=False) is None
    assert path.name.endswith("-00000.parquet")
    assert f"-r0-{os.getpid()}-" in path.name


def test_the_metadata_say_what_becomes_of_failures(tmp_path: Path) -> None:
    with Dispatcher([length], journal=tmp_path, incomplete="sum") as dispatcher:
        dispatcher.score(prompts=["p"], completions=["abc"])
    (path,) = tmp_path.glob("*.parquet")
    assert is_summed(pq.read_schema(path))


@pytest.mark.parametrize("text", [None, "", "{", "[1]", "3", '{"judges": [1], "incomplete": 3}'])
def test_odd_facts_are_those_of_an_earlier_version(text: str | None) -> None:
    metadata = {} if text is None else {"guerdon.dispatcher": text}
    assert not is_summed(pa.schema([], metadata=metadata))


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_another_kind_is_a_problem(name: str) -> None:
    whole = table([row()])
    place = whole.schema.get_field_index(name)
    other = pa.array([b"x"], pa.binary())
    problem = problem_of(whole.set_column(place, name, other).schema, alone=False)
    assert problem == f"is no part of a journal: its column {name!r} is binary, expected {plain_type(name)}"

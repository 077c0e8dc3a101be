"""The options of a journal, its columns and metadata, and the texts that it keeps if asked."""

from __future__ import annotations

import copy
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from guerdon import Dispatcher, GuerdonWarning, Journal, RegistrationError, read_journal, reward
from guerdon._insight.journal.schema import (
    COLUMNS,
    SCHEMA,
    DispatcherFacts,
    arrow_type,
    dispatcher_text,
    facts_of,
    plain_type,
    problem_of,
)
from tests.journal.written_rows import rows_of
from tests.journal_files import SCHEMA as ARROW_SCHEMA
from tests.journal_files import row, table
from tests.simple import length


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folder": ""}, "expected the path of a folder"),
        ({"folder": 3}, "expected the path of a folder"),
        ({"folder": "/proc/journal"}, "can't be made"),
        ({"folder": "a\0b"}, "journal="),
        ({"folder": "lone\ud800"}, "journal="),
        ({"folder": type("NumberedPath", (os.PathLike,), {"__fspath__": lambda self: 3})()}, "journal="),
        ({"columns": "answer"}, "a list of names"),
        ({"columns": ["a", "a"]}, "twice"),
        ({"columns": ["completion"]}, "texts=True"),
        ({"columns": [3]}, "has 3"),
        ({"texts": 1}, "True or False"),
        ({"rotate": "1KiB"}, "at least 64KiB"),
        ({"rotate": "much"}, "a number of bytes"),
        ({"run": ""}, "expected a name"),
        ({"run": "two\nlines"}, "expected a name"),
    ],
)
def test_options_that_can_not_work_are_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(RegistrationError, match=message):
        Journal(**{"folder": tmp_path, **options})


def test_a_folder_that_can_not_be_made_is_refused_by_the_dispatcher(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RegistrationError, match="the folder can't be made"):
        Dispatcher([length], journal=tmp_path / "file" / "rewards")
    with pytest.raises(RegistrationError, match="is a file: give a folder"):
        Dispatcher([length], journal=tmp_path / "file")


def test_a_journal_is_part_of_the_configuration(tmp_path: Path) -> None:
    journal = Journal(tmp_path, columns=["answer"], texts=True, rotate="1MiB")
    dispatcher = Dispatcher([length], journal=journal)
    assert dispatcher.options["journal"] == journal
    assert pickle.loads(pickle.dumps(journal)) == journal == copy.copy(journal)
    other = pickle.loads(pickle.dumps(dispatcher))
    assert other.options["journal"] == journal
    assert other.replace(journal=None).options["journal"] is None
    with other:
        other.score(prompts=["p"], completions=["abc"], answer=["x"])
    assert [row["completion"] for row in rows_of(tmp_path)] == ["abc"]


def test_without_a_journal_there_are_no_counts_of_one() -> None:
    with Dispatcher([length]) as dispatcher:
        dispatcher.score(completions=["a"])
        assert not [name for name in dispatcher.stats() if name.startswith("journal")]


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
    facts = dispatcher_text("drop", {"length": dispatcher._specs[0].lane}, dispatcher.workers)
    expected = pa.schema(fields, metadata={**metadata, "guerdon.dispatcher": facts})
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
    assert facts_of(pq.read_schema(path)).is_summed


@pytest.mark.parametrize(
    "text", [None, "", "{", "[1]", "3", '{"judges": [1], "lanes": [1], "workers": "", "incomplete": 3}']
)
def test_odd_facts_are_those_of_an_earlier_version(text: str | None) -> None:
    metadata = {} if text is None else {"guerdon.dispatcher": text}
    schema = pa.schema([], metadata=metadata)
    assert facts_of(schema) == DispatcherFacts(is_summed=False, lanes={}, workers=None, fallbacks=frozenset())


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_another_kind_is_a_problem(name: str) -> None:
    whole = table([row()])
    place = whole.schema.get_field_index(name)
    other = pa.array([b"x"], pa.binary())
    problem = problem_of(whole.set_column(place, name, other).schema, alone=False)
    assert problem == f"is no part of a journal: its column {name!r} is binary, expected {plain_type(name)}"


def test_texts_are_kept_only_where_that_is_wanted(tmp_path: Path) -> None:
    with Dispatcher([length], journal=tmp_path) as dispatcher:
        dispatcher.score(prompts=["private"], completions=["words"])
    assert read_journal(tmp_path).schema.names == ARROW_SCHEMA.names
    (path,) = tmp_path.iterdir()
    assert b"private" not in path.read_bytes()


ODD = ["", "ü", "€", "😀", "a\x00b", "x" * 100_000, "\ud800 alone", '"quoted"\\']


def shown(text: str) -> str:
    return "".join("�" if 0xD800 <= ord(letter) < 0xE000 else letter for letter in text)


@pytest.mark.parametrize("lane", ["process", "thread"])
def test_texts_of_any_kind_come_back(lane: Any, tmp_path: Path) -> None:
    function = reward(lambda text: float(len(text)), name="size", lane=lane)
    with Dispatcher([function], journal=Journal(tmp_path, texts=True, columns=["mark"])) as dispatcher:
        dispatcher.score(prompts=ODD, completions=ODD[::-1], mark=[None, *ODD[1:]])
    rows = rows_of(tmp_path)
    assert [row["prompt"] for row in rows] == [shown(text) for text in ODD]
    assert [row["completion"] for row in rows] == [shown(text) for text in ODD[::-1]]
    assert [row["column_mark"] for row in rows] == [None, *(shown(text) for text in ODD[1:])]


def test_other_values_than_strings_are_json_and_kinds_do_not_mix_in_a_part(tmp_path: Path) -> None:
    chat = [{"role": "assistant", "content": "yes"}]
    values: list[Any] = [1, {"a": [1.5, None]}, np.array([1, 2]), (3,), object()]
    with Dispatcher([length], journal=Journal(tmp_path, texts=True, columns=["value"])) as dispatcher:
        dispatcher.score(prompts=["p"], completions=["text"], value=["plain"])
        dispatcher.score(prompts=["p"] * 5, completions=[chat] * 5, value=values)
        dispatcher.score(prompts=["p"], completions=["text again"], value=["plain"])
    parts = {path.name[-13:-8]: pq.read_table(path) for path in tmp_path.glob("*.parquet")}
    kinds = {part: json.loads(rows.schema.metadata[b"guerdon.kinds"]) for part, rows in parts.items()}
    assert kinds["00000"] == {"prompt": "text", "completion": "text", "value": "text"}
    assert kinds["00001"] == {"prompt": "text", "completion": "json", "value": "json"}
    assert sorted(kinds) == ["00000", "00001"], "strings go on as JSON"
    whole = read_journal(tmp_path)
    assert json.loads(whole.schema.metadata[b"guerdon.kinds"])["completion"] == "json"
    rows = sorted(whole.to_pylist(), key=lambda row: (row["batch"], row["sample"]))
    assert [json.loads(row["completion"]) for row in rows] == ["text", *[chat] * 5, "text again"]
    assert [row["prompt"] for row in rows] == ["p"] * 7
    assert [json.loads(row["column_value"]) for row in rows][:-2] == ["plain", 1, {"a": [1.5, None]}, [1, 2], [3]]
    assert json.loads(rows[-2]["column_value"]) == "<builtins.object>"


def test_a_column_that_a_batch_lacks_is_empty_with_one_warning(tmp_path: Path) -> None:
    with Dispatcher([length], journal=Journal(tmp_path, columns=["anwser"])) as dispatcher:
        with pytest.warns(GuerdonWarning, match="'anwser', which this batch does not have"):
            dispatcher.score(completions=["a"], answer=["x"])
        dispatcher.score(completions=["a"], answer=["x"])
    assert [row["column_anwser"] for row in rows_of(tmp_path)] == [None, None]

"""Texts and chosen columns: kept only if asked for, and as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from guerdon import Dispatcher, GuerdonWarning, Journal, read_journal, reward
from tests.journal.written_rows import rows_of
from tests.journal_files import SCHEMA
from tests.simple import length


def test_texts_are_kept_only_where_that_is_wanted(tmp_path: Path) -> None:
    with Dispatcher([length], journal=tmp_path) as dispatcher:
        dispatcher.score(prompts=["private"], completions=["words"])
    assert read_journal(tmp_path).schema.names == SCHEMA.names
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

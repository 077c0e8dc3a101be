"""The options of a journal, and a journal as an option."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, Journal, RegistrationError
from tests.journal.written_rows import rows_of
from tests.simple import length


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folder": ""}, "expected the path of a folder"),
        ({"folder": 3}, "expected the path of a folder"),
        ({"folder": "/proc/journal"}, "can't be made"),
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


def test_a_path_that_can_be_no_folder_is_refused() -> None:
    class NumberedPath(os.PathLike[str]):
        def __fspath__(self) -> Any:
            return 3

    for folder in ("a\0b", "lone\ud800", NumberedPath()):
        with pytest.raises(RegistrationError, match="journal="):
            Journal(folder)


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

"""The files of a folder: parts, ranks and processes, and other programs that read them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from guerdon import Dispatcher, Journal, read_journal
from tests.clock import eventually
from tests.journal.written_rows import rows_of
from tests.processes import run_python
from tests.simple import answer_is, length


def test_parts_rotate_and_all_of_them_are_read(tmp_path: Path) -> None:
    with Dispatcher([length], journal=Journal(tmp_path, texts=True, rotate="64KiB", run="named run")) as dispatcher:
        for batch in range(5):
            dispatcher.score(completions=["x" * 10_000 + str(batch)] * 10)
            time.sleep(0.25)
        stats = dispatcher.stats()
    assert len(list(tmp_path.glob("named-run-r0-*.parquet"))) > 2
    rows = rows_of(tmp_path)
    assert len(rows) == 50
    assert {row["run"] for row in rows} == {"named run"}
    assert len({row["batch"] for row in rows}) == 5
    assert 0 < stats["journal_rows"] <= 50
    assert stats["journal_bytes"] > 0
    assert stats["journal_dropped"] == 0


def test_a_journal_is_read_while_it_is_written(tmp_path: Path) -> None:
    with Dispatcher([length], journal=tmp_path) as dispatcher:
        dispatcher.score(completions=["a", "bb"])
        eventually(lambda: len(rows_of(tmp_path)) >= 2)
        assert [row["value"] for row in rows_of(tmp_path)] == [1.0, 2.0]
        assert [path.suffix for path in tmp_path.iterdir()] == [".arrows"]
    assert [path.suffix for path in tmp_path.iterdir()] == [".parquet"]
    assert len(rows_of(tmp_path)) == 2


def test_other_programs_read_the_folder_as_it_lies(tmp_path: Path) -> None:
    if not all(find_spec(name) for name in ("duckdb", "pandas", "polars")):
        pytest.skip("they are not installed")
    with Dispatcher([length, answer_is], journal=Journal(tmp_path, texts=True), max_failure_rate=1.0) as dispatcher:
        for answer in ("a", "bad"):
            dispatcher.score(completions=["a", "bb"], answer=[answer, "bb"])
    # A process of its own: they keep threads and a runtime for as long as it lives.
    program = textwrap.dedent(
        """
        import sys
        import duckdb, pandas, polars

        folder, pattern = sys.argv[1], sys.argv[1] + "/*.parquet"
        rows = duckdb.sql(
            f"select function, status, count(*), sum(value) from '{pattern}' group by all order by all"
        ).fetchall()
        assert rows == [("answer_is", "error", 1, None), ("answer_is", "ok", 3, 3.0), ("length", "ok", 4, 6.0)], rows
        frame = pandas.read_parquet(folder)
        assert frame[frame.function == "length"].value.sum() == 6.0
        assert str(frame.submitted.dtype).startswith("datetime64")
        lazy = polars.scan_parquet(pattern).filter(polars.col("status") == "error")
        found = lazy.select("reason", "completion", "step").collect().rows()
        assert found == [("ValueError: bad answer", "a", None)], found
        """
    )
    run_python(program, tmp_path)


RANK = textwrap.dedent(
    """
    import sys
    from types import SimpleNamespace
    from guerdon import Dispatcher, Journal, reward
    from tests.simple import length

    with Dispatcher([length], journal=Journal(sys.argv[1], texts=True)) as dispatcher:
        for step in range(5):
            texts = [f"{sys.argv[2]} {step} {number}" for number in range(20)]
            dispatcher.score(completions=texts, trainer_state=SimpleNamespace(global_step=step))
    """
)


def test_ranks_write_into_one_folder(tmp_path: Path) -> None:
    ranks = []
    for number in range(3):
        environment = {**os.environ, "RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": "3"}
        environment |= {"LOCAL_WORLD_SIZE": "3", "PYTHONPATH": str(Path(__file__).parents[2])}
        command = [sys.executable, "-c", RANK, str(tmp_path), str(number)]
        ranks.append(subprocess.Popen(command, env=environment))
    assert [process.wait(120) for process in ranks] == [0, 0, 0]
    rows = read_journal(tmp_path).to_pylist()
    keys = {(row["rank"], row["batch"], row["sample"]) for row in rows}
    assert len(rows) == len(keys) == 300
    assert len({row["run"] for row in rows}) == 1, "one launch"
    assert {(row["rank"], row["completion"].split()[0]) for row in rows} == {(0, "0"), (1, "1"), (2, "2")}
    assert all(row["completion"].split()[1] == str(row["step"]) for row in rows)


def test_a_forked_child_writes_parts_of_its_own(tmp_path: Path) -> None:
    with Dispatcher([answer_is], journal=tmp_path) as dispatcher:
        dispatcher.score(completions=["a"], answer=["a"])
        pid = os.fork()
        if pid == 0:
            try:
                dispatcher.score(completions=["b", "c"], answer=["b", "x"])
                dispatcher.close()
            finally:
                os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    assert sorted(row["value"] for row in rows_of(tmp_path)) == [0.0, 1.0, 1.0]
    assert len({path.name.split("-")[-2] for path in tmp_path.glob("*.parquet")}) == 2

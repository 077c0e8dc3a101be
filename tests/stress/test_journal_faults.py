"""Journals of runs that are killed, and disks that are full."""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import pytest

from guerdon import Dispatcher, GuerdonWarning, read_journal
from tests.processes import run_python, started_python
from tests.simple import length
from tests.stress.harness import wait_for

# Scores for ever; says after each batch which it was.
RUN = """
    import sys, time
    from types import SimpleNamespace
    from guerdon import Dispatcher, Journal
    from tests.simple import length

    if __name__ == "__main__":
        journal = Journal(sys.argv[1], texts=True, rotate="64KiB", run=sys.argv[2])
        dispatcher = Dispatcher([length], journal=journal, workers=1)
        for step in range(1_000_000):
            texts = [f"{step} {number} " + "x" * 200 for number in range(20)]
            dispatcher.score(completions=texts, trainer_state=SimpleNamespace(global_step=step))
            print(step, time.time(), flush=True)
            time.sleep(0.01)
"""

# Steps of a second in which the run has not stood still, more or less.
STEPS = 40


@pytest.mark.fault(
    "the trainer is killed while its journal is written",
    sees="what was complete a second before is read back, each row once; a warning where a message was cut",
)
@pytest.mark.parametrize("runs", [2, pytest.param(4, marks=pytest.mark.whole)])
def test_groups_complete_a_second_before_a_kill_are_in_the_journal(runs: int, tmp_path: Path) -> None:
    choose = random.Random(7)
    known: dict[str, int] = {}
    for number in range(runs):
        run = f"run-{number}"
        printed: list[tuple[int, float]] = []
        enough = 2.2 + choose.random()
        with started_python(RUN, tmp_path, run) as process:  # and killed
            for line in process.stdout or ():
                step, _, at = line.partition(" ")
                printed.append((int(step), float(at)))
                if printed[-1][1] - printed[0][1] > enough and len(printed) > 2 * STEPS:
                    break
        # A second is the promise; on a machine that does much else at once a little more. Seconds
        # in which the run stood still are none: it must have gone on since.
        old = [step for step, at in printed[:-STEPS] if at < printed[-1][1] - 2.0]
        assert old
        known[run] = max(old)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GuerdonWarning)  # a message that was cut
        rows = read_journal(tmp_path, columns=["run", "step", "sample", "completion"]).to_pylist()
    keys = [(row["run"], row["step"], row["sample"]) for row in rows]
    assert len(set(keys)) == len(keys), "no row is there twice"
    for run, last in known.items():
        there = {key[1:] for key in keys if key[0] == run}
        assert {(step, sample) for step in range(last + 1) for sample in range(20)} <= there, run
    assert all(row["completion"].startswith(f"{row['step']} {row['sample']} ") for row in rows)
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".parquet"]


FULL = """
    import resource, sys, time, warnings
    from guerdon import Dispatcher, Journal
    from tests.simple import length

    if __name__ == "__main__":
        warnings.simplefilter("always")
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        with Dispatcher([length], journal=Journal(sys.argv[1], texts=True), workers=1) as dispatcher:
            until = time.monotonic() + 100
            for step in range(1_000):
                result = dispatcher.score(completions=[str(step) + "x" * 5000] * 20)
                assert result.rewards.sum() > 0
                # The first are written before more come, so that the disk takes something.
                while dispatcher.stats()["journal_rows"] == 0 and time.monotonic() < until:
                    time.sleep(0.05)
                time.sleep(0.25)
                stats = dispatcher.stats()
                if (step > 10 and stats["journal_dropped"] >= 20) or time.monotonic() > until:
                    break
        print(stats["journal_rows"], stats["journal_dropped"])
"""


@pytest.mark.fault(
    "the disk takes no more of a journal",
    sees="one warning, and `stats()` counts the rows that were dropped; what was written before is read, training goes on",
)
def test_a_full_disk_costs_rows_and_no_batch(tmp_path: Path) -> None:
    ran = run_python(FULL, tmp_path)
    written, dropped = map(int, ran.stdout.split())
    assert 0 < written < 240
    assert dropped >= 20
    assert ran.stderr.count("Rows that it can't take are dropped") == 1, ran.stderr
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GuerdonWarning)
        assert read_journal(tmp_path).num_rows >= written


@pytest.mark.fault(
    "the folder of a journal is gone, and a file has its name",
    sees="one warning; rows are dropped and counted, and training goes on",
)
def test_a_folder_that_takes_no_files_costs_rows_and_no_batch(tmp_path: Path) -> None:
    folder = tmp_path / "rewards"
    with Dispatcher([length], journal=folder) as dispatcher:
        folder.rmdir()
        folder.write_text("")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert dispatcher.score(completions=["a"]).rewards.sum() == 1
            # Python's own may be among them, of what other tests left to the garbage collector.
            wait_for(lambda: any(one.category is GuerdonWarning for one in caught), "a warning")
            dispatcher.close()
            assert dispatcher.closed
    (warning,) = (one for one in caught if one.category is GuerdonWarning)
    assert "Rows that it can't take are dropped" in str(warning.message)

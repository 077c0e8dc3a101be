"""Replays on the command line: options, what is printed, exit codes, what interruptions leave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from guerdon import reward
from tests.cli.conftest import Command, write_rewards
from tests.clock import eventually
from tests.journal_files import row
from tests.replay.recorded import record, write_rows

MENDED = """
import guerdon

@guerdon.reward(lane="thread")
def short(text: str) -> float:
    return 1.0 if len(text) < {limit} else 0.0

@guerdon.reward(lane="thread")
def picky(completion: str, answer: str) -> float:
    if completion == "raise":
        raise ValueError("no such thing")
    return float(completion == answer)
"""


@reward(lane="thread")
def short(text: str) -> float:
    return 1.0 if len(text) < 3 else 0.0


@reward(lane="thread")
def picky(completion: str, answer: str) -> float:
    return float(completion == answer)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    completions = ["a", "abc", "abcd", "raise", "\x1b[31mred", "b", "bb", "bbb"]
    batch = {"prompts": ["p"] * 4 + ["q"] * 4, "completions": completions, "answer": ["a"] * 8}
    return record(tmp_path / "journal", [short, picky], [batch, batch], size=4)


@pytest.fixture
def mended(tmp_path: Path) -> Path:
    return write_rewards(tmp_path, MENDED.format(limit=4))


def test_the_diff_says_what_moved(guerdon: Command, journal: Path, mended: Path) -> None:
    ended = guerdon("replay", journal, mended)
    assert ended.code == 0
    changes, _, moved = ended.out.partition("Moved most")
    assert "short: 4 of 16 cells moved (25.0 %), mean 0.375 -> 0.625\n  4 groups: order changed in " in changes
    assert "picky: 2 of 16 cells moved (12.5 %), mean 0.143 -> 0.143, 2 newly failed\n" in changes
    assert "weighted total: 6 of 16 cells moved (37.5 %), mean " in changes
    assert "short  0 -> 1\n  run-1, step 0, rank 0, sample 1\n  prompt: p\n  completion: abc\n" in moved
    assert "picky  0 -> error\n" in moved
    assert "  now: ValueError: no such thing\n" in moved
    assert "\x1b" not in ended.out
    assert "short: 16 scored: 16 ok\n" in ended.err
    assert "16 samples in 4 groups" in ended.err


def test_json_has_the_shape_that_the_docs_give(guerdon: Command, journal: Path, mended: Path) -> None:
    ended = guerdon("replay", journal, mended, "--json", "-q")
    assert ended.err == ""
    found = json.loads(ended.out)
    assert " ".join(found) == (
        "journal rows samples groups incomplete functions total moved tolerance differences failures notes"
    )
    assert found["rows"] == 32
    function = found["functions"]["short"]
    assert list(function) == ["scored", "left_out", "status", "reasons", "usage", "diff"]
    assert list(function["diff"]) == list(found["total"])
    assert " ".join(function["diff"]) == (
        "compared moved mean failures_to_answers answers_to_failures ranks advantages"
    )
    assert " ".join(found["moved"][0]) == (
        "function run step rank batch group sample journal now change prompt completion"
    )


def test_exit_codes(guerdon: Command, journal: Path, tmp_path: Path) -> None:
    same = write_rewards(tmp_path, MENDED.format(limit=3).replace('if completion == "raise"', "if False"))
    assert guerdon("replay", journal, same, "--exit-code").code == 0
    other = tmp_path / "other"
    other.mkdir()
    changed = write_rewards(other, MENDED.format(limit=4))
    assert guerdon("replay", journal, changed, "--exit-code").code == 1
    assert guerdon("replay", journal, f"{changed}:short", "--exit-code", "--tolerance", "1").code == 0
    failing = guerdon("replay", journal, changed, "--max-failure-rate", "0.01")
    assert failing.code == 1
    assert "too many failures: 'picky' failed on 2 of 16 samples, more than the 1 % allowed" in failing.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--step", "3:2"], "expected A:B, A:, :B or one step"),
        (["--tolerance", "-1"], "expected a number of at least 0"),
        (["--moved", "-1"], "expected a whole number of at least 0"),
        (["--chunk", "0"], "expected a whole number of at least 1"),
        (["--step", "7"], "no row is of these runs and steps. The journal's runs: run-1. Its steps: 0 to 1."),
        (["--run", "other"], "no row is of these runs and steps"),
        (["-o", "rows.parquet"], "the new rewards are written as JSONL. Give a name that ends in .jsonl."),
        (["-o", "none/rows.jsonl"], "can't be written: there is no folder"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
    ],
)
def test_usage_errors(guerdon: Command, journal: Path, mended: Path, arguments: list[str], message: str) -> None:
    assert message in guerdon.refused("replay", journal, mended, *arguments)


def test_journal_and_rewards_in_the_wrong_order(guerdon: Command, journal: Path, mended: Path) -> None:
    assert f"JOURNAL comes before REWARDS, as in guerdon replay {journal} {mended}" in guerdon.refused(
        "replay", mended, journal
    )


def test_the_journal_is_looked_at_before_the_rewards_run(guerdon: Command, tmp_path: Path) -> None:
    raising = write_rewards(tmp_path, "raise ValueError('it ran')")
    (tmp_path / "empty").mkdir()
    for journal, why in ((tmp_path / "nowhere", "there is no journal"), (tmp_path / "empty", "has no parts")):
        err = guerdon.refused("replay", journal, raising)
        assert why in err
        assert "it ran" not in err


def test_steps_are_chosen_with_both_ends(guerdon: Command, journal: Path, mended: Path) -> None:
    for steps, samples in (("0", 8), ("1:", 8), (":0", 8), ("0:1", 16)):
        assert json.loads(guerdon("replay", journal, mended, "--step", steps, "--json").out)["samples"] == samples


def test_a_journal_and_an_output_that_is_there_are_never_written_to(
    guerdon: Command, journal: Path, mended: Path, tmp_path: Path
) -> None:
    before = sorted((path.name, path.read_bytes()) for path in journal.iterdir())
    ended = guerdon.refused("replay", journal, mended, "-o", journal)
    assert "can't be written: that is no file: it is a folder" in ended
    out = tmp_path / "out.jsonl"
    assert guerdon("replay", journal, mended, "-o", out).code == 0
    written = out.read_bytes()
    assert "is there already: choose another file" in guerdon.refused("replay", journal, mended, "-o", out)
    assert out.read_bytes() == written
    assert sorted((path.name, path.read_bytes()) for path in journal.iterdir()) == before


def test_a_rewards_file_whose_dispatcher_keeps_a_journal_does_not_write_to_it(
    guerdon: Command, journal: Path, tmp_path: Path
) -> None:
    text = MENDED.format(limit=3) + "\ndispatcher = guerdon.Dispatcher([short], weights=[2.0])\n"
    ended = guerdon("replay", journal, write_rewards(tmp_path, text), "--json")
    assert json.loads(ended.out)["total"]["mean"]["now"] > 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir() and path.name != "__pycache__") == [
        "journal"
    ]


def test_without_pyarrow_it_says_what_to_install(
    guerdon: Command, journal: Path, mended: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install 'pyarrow>=17'" in guerdon.refused("replay", journal, mended)


def test_a_terminal_without_utf8_gets_escapes(journal: Path, mended: Path) -> None:
    command = [sys.executable, "-m", "guerdon", "replay", str(journal), str(mended), "-q"]
    ended = subprocess.run(command, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert rb"completion: \xb7[31mred" in ended.stdout or b"Moved most" in ended.stdout
    ended.stdout.decode("ascii")


SLOW = """
import time
import guerdon

@guerdon.reward(lane="thread")
def slow(prompt: str, completion: str) -> float:
    time.sleep(6 if prompt == "late" else 0)
    return float(len(completion))

@guerdon.group_reward(lane="thread")
def order(prompts: list[str], completions: list[str]) -> list[float]:
    time.sleep(6 if prompts[0] == "late" else 0)
    return [float(place) for place in range(len(completions))]
"""


def slow_journal(folder: Path) -> Path:
    """Most of it is scored at once, the rest in a minute: a replay is ended between the two."""
    rows: list[dict[str, Any]] = []
    for sample in range(200):
        place = {"batch": sample // 40, "sample": sample % 40, "group": sample % 40 // 4}
        texts = {"prompt": "p" if sample < 120 else "late", "completion": "x" * (sample % 9)}
        rows += [
            row(**place, **texts, function="slow", value=float(sample % 9)),
            row(**place, **texts, function="order", value=float(sample % 4)),
        ]
    return write_rows(folder, rows)


@pytest.mark.fault(
    "`guerdon replay -o OUT` is killed with SIGKILL, or interrupted, in the middle",
    sees="rows that were written stay, each of them whole",
)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_rows_that_are_done_stay(guerdon: Command, tmp_path: Path, how: signal.Signals) -> None:
    journal, rewards, out = slow_journal(tmp_path / "j"), write_rewards(tmp_path, SLOW), tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "guerdon", "replay", journal, rewards, "-o", out, "--chunk", "16", "--json"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    eventually(lambda: out.exists() and out.stat().st_size > 2000)
    started.send_signal(how)
    _, stderr = started.communicate(timeout=100)
    assert started.returncode == (-9 if how == signal.SIGKILL else 130), stderr
    if how == signal.SIGINT:
        assert f"cells are in {out}".encode() in stderr
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert 0 < len(rows) < 200
    keys = Counter((one["batch"], one["sample"]) for one in rows)
    assert set(keys.values()) == {1}
    for one in rows:
        sample = 40 * one["batch"] + one["sample"]
        assert one["rewards"] == {"slow": float(sample % 9), "order": float(one["sample"] % 4)}

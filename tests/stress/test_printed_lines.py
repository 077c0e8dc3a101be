"""What reward functions print: line by line with the function's name, bounded, whatever it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from guerdon import Dispatcher, reward
from tests.stress import printing_functions
from tests.stress.harness import Scene

LINE = re.compile(r"\[guerdon (\w+) (\d+)\] (.*)")
DROPPED = re.compile(r"\[guerdon\] (\d+) lines of output were dropped")


def _lines(capfd: pytest.CaptureFixture[str]) -> list[tuple[str, str]]:
    """Function and text of each line that workers printed."""
    found = [LINE.fullmatch(line) for line in capfd.readouterr().err.split("\n")]
    return [(match[1], match[3]) for match in found if match]


@pytest.mark.parametrize("workers", [1, 2])
def test_each_line_has_the_name_of_the_function_that_printed_it_or_whose_child_did(
    workers: int, capfd: pytest.CaptureFixture[str]
) -> None:
    texts = [str(n) for n in range(60)]
    printing = (printing_functions.ayes, printing_functions.bees, printing_functions.starts_others)
    with Dispatcher([reward(function) for function in printing], workers=workers) as dispatcher:
        result = dispatcher.score(completions=texts)
    assert not result.failures()
    lines = _lines(capfd)
    for name in ("ayes", "bees"):
        own = [text for function, text in lines if function == name]
        assert {re.sub(rf"{name}|[ \d]", "", text) for text in own} == {""}, "nothing of the other's"
        assert sum(text.count(name) for text in own) == 5 * len(texts), "no word of it is lost"
    assert sorted(text for function, text in lines if function == "starts_others") == sorted(
        f"child {n}" for n in texts
    )
    assert {function for function, _ in lines} == {"ayes", "bees", "starts_others"}


@pytest.mark.fault(
    "a function prints without end", sees="a thousand lines a second, and how many were dropped; nothing waits"
)
def test_a_flood_is_truncated_counted_and_reported(capfd: pytest.CaptureFixture[str]) -> None:
    with Dispatcher(
        [reward(printing_functions.flood, timeout=60), reward(printing_functions.ayes)], workers=2
    ) as dispatcher:
        result = dispatcher.score(completions=["30000", "20000"])
        assert not result.failures()
        assert result.rewards[:, 0, 0].tolist() == [30000, 20000]
    text = capfd.readouterr().err
    shown = [match for match in map(LINE.fullmatch, text.split("\n")) if match]
    dropped = sum(int(match[1]) for match in DROPPED.finditer(text))
    assert 1000 <= len(shown) < 40_000
    assert dropped > 0
    flooded = sum(match[1] == "flood" for match in shown)
    assert flooded + dropped >= 50_000 - 20, "what is not shown is counted"


def test_odd_output_is_shown_as_text(capfd: pytest.CaptureFixture[str]) -> None:
    with Dispatcher([reward(printing_functions.odd)], workers=1) as dispatcher:
        assert dispatcher.score(completions=["1"]).rewards.item() == 1.0
    lines = [text for function, text in _lines(capfd) if function == "odd"]
    assert lines[:5] == [" 10%", " 20%", "\\x1b[31mred", "\ufffd\ufffd", "\\x00guerdon:x"]
    assert lines[5:] == ["nul\\x00nul", "z" * 8192, "last"]


@pytest.mark.fault(
    "a function sends its output to a file of its own", sees="its file holds what it printed, and nothing else"
)
def test_marks_never_reach_a_file_of_the_users(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    functions = [
        reward(printing_functions.redirects),
        reward(printing_functions.quiet),
        reward(printing_functions.loses_its_output),
    ]
    with Dispatcher(functions, workers=1) as dispatcher:
        for _ in range(3):
            result = dispatcher.score(completions=[str(file)])
            assert not result.failures(), result.failures()
            assert result.rewards[0, 0].tolist() == [1.0, 4.0, 1.0]
    assert set(file.read_text().splitlines()) <= {"mine"}


def test_a_worker_whose_setup_closes_the_streams_is_kept() -> None:
    with Dispatcher([reward(printing_functions.Silent())], workers=1) as dispatcher:
        pids = {dispatcher.score(completions=["a"]).rewards.item() for _ in range(4)}
    assert len(pids) == 1


@pytest.mark.parametrize("closed", ["stream", "descriptor"])
@pytest.mark.fault("a call closes the standard error of its worker", sees="nothing: the next calls have another worker")
def test_calls_print_after_one_that_closed_its_output(closed: str, capfd: pytest.CaptureFixture[str]) -> None:
    with Dispatcher([reward(printing_functions.closes_or_prints)], workers=1) as dispatcher:
        for texts in (["print"], [closed], ["print"] * 4):
            assert dispatcher.score(completions=texts).failures() == []
    assert [text for _, text in _lines(capfd)].count("note") == 5


@pytest.mark.fault(
    "a function prints 64 MB without an end of line",
    sees="its value, and the first 8 KB of the line",
)
def test_a_line_without_end_is_read_and_bounded(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Scene(tmp_path) as scene:
        assert scene.commit("print_without_end_of_line:64") is None
    assert 1 << 10 < len(capfd.readouterr().err) < 16 << 20

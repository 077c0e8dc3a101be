"""`guerdon top` in a pseudo-terminal, over dispatchers that answer, hang, end, or never were."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from guerdon.cli import main
from tests.cli.top import fake_dispatcher
from tests.cli.top.fake_dispatcher import FakeDispatcher, state
from tests.cli.top.terminal import Terminal
from tests.processes import started_python

Fake = Callable[..., FakeDispatcher]
Start = Callable[..., Terminal]
HOSTILE = "evil\x1b[2J\x1b]0;owned\x07\x9b31m\u202etxt[bold]:smile:"


@pytest.fixture
def other_process(runtime: Path) -> Iterator[subprocess.Popen[str]]:
    """A dispatcher in a process of its own, rank 1."""
    program, served = Path(fake_dispatcher.__file__), json.dumps(state(0, rank=1))
    with started_python(program, runtime, served, says="ready", stdin=subprocess.PIPE) as process:
        yield process


def test_once_prints_all_of_it(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake(4711)
    assert main(["top", "--once"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    for shown in (
        "process 4711 (train.py)",
        "correct",
        "52.5",
        "helpful[9]",
        "71.5s",
        "http://judge:8000/v1",
        "open",
        "2 workers (1 busy)",
    ):
        assert shown in out
    assert "return abs(left - right) < 1e-9" in out


def test_json_is_what_the_dispatchers_answered(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake(4711)
    fake(4712)
    assert main(["top", "--json"]) == 0
    assert [one["pid"] for one in json.loads(capsys.readouterr().out)] == [4711, 4712]
    assert main(["top", "--json", "4712"]) == 0
    assert [one["pid"] for one in json.loads(capsys.readouterr().out)] == [4712]


def test_without_any_process_it_says_what_it_looked_for(runtime: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once"]) == 1
    err = capsys.readouterr().err
    assert "no running dispatcher found" in err
    assert str(runtime) in err
    assert main(["top", "--json", "99"]) == 1
    assert json.loads(capsys.readouterr().out) == []
    assert main(["top", "--interval", "0"]) == 2


def test_sockets_of_dead_processes_and_other_files_are_ignored(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    alive = fake(4711)
    fake(4000).close(leave_file=True)
    folder = alive.path.parent
    (folder / "notes.txt").write_text("x")
    (folder / "12-3.sock").write_text("no socket")
    (folder / "5-5.sock").mkdir()
    assert main(["top", "--json"]) == 0
    assert [one["pid"] for one in json.loads(capsys.readouterr().out)] == [4711]
    (folder / "4000-0.sock").unlink()


def test_a_folder_that_others_can_write_to_is_not_looked_at(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake(4711).path.parent.chmod(0o777)
    assert main(["top", "--once"]) == 1
    assert "no running dispatcher found" in capsys.readouterr().err


@pytest.mark.parametrize("answer", [b"", b"[1]", b"{}", b"\x00" * 100, b"[" * 100_000])
@pytest.mark.fault(
    "a socket answers `guerdon top` with something else than a state",
    sees="the other dispatchers are shown",
)
def test_an_answer_that_is_no_state_harms_nothing(
    fake: Fake, answer: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(4711, answer)
    fake(4712)
    assert main(["top", "--once"]) == 0
    assert "correct" in capsys.readouterr().out


@pytest.mark.fault(
    "a socket accepts `guerdon top` and never answers",
    sees="the other dispatchers are shown after `--timeout`",
)
def test_one_that_never_answers_is_not_waited_for(
    fake: Fake, runtime: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(4711)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(runtime / "4800-0.sock"))
        silent.listen(1)
        start = time.monotonic()
        assert main(["top", "--json", "--timeout", "5"]) == 0
        assert time.monotonic() - start < 60
    assert [one["pid"] for one in json.loads(capsys.readouterr().out)] == [4711]
    (runtime / "4800-0.sock").unlink()


def test_the_screen_shows_functions_calls_and_the_selected_stack(fake: Fake, terminal: Start) -> None:
    fake(4711)
    shown = terminal()
    shown.wait("helpful")
    shown.raw.clear()
    shown.read(1.0)
    assert b"\x1b[2J" not in shown.raw, "a frame is written over the last one"
    assert b"\x1b[H" in shown.raw
    shown.type("\x1a")  # Ctrl-Z does nothing
    shown.wait(lambda: "process 4711" in shown.lines[0])
    shown.wait_for_order("correct[3]", "helpful[9]")
    shown.wait_for_order("helpful[9]", "correct[4-11]")
    shown.wait(lambda: "q quit" in shown.lines[-1])
    shown.type("j")
    shown.wait("return abs(left - right) < 1e-9")
    shown.type("\x1b[B")  # the arrow: the next call, which has no stack
    shown.wait("no stack: it waits for an answer")
    shown.type("k\r")
    shown.wait(lambda: "FUNCTION" not in shown.text and "fake_dispatcher.py" in shown.text)
    shown.type("\r")
    shown.wait("FUNCTION")
    shown.quit()


@pytest.mark.parametrize(("columns", "rows"), [(40, 20), (200, 60), (20, 5), (10, 3)])
def test_it_fits_into_any_terminal(fake: Fake, terminal: Start, columns: int, rows: int) -> None:
    fake(4711, number=0)
    fake(4712, number=1)
    shown = terminal(columns=columns, rows=rows)
    shown.wait("guerdon"[: columns - 1])
    shown.type("j")
    if (columns, rows) == (40, 20):
        shown.wait("RUN")
        shown.wait("71.5s")
        shown.wait("abs(left - right)")
    if (columns, rows) == (200, 60):
        for column in ("LANE", "RATE/S", "QUEUED", "BREAKER", "PROCESS"):
            shown.wait(column)
    shown.read(0.5)
    assert shown.program.poll() is None
    shown.quit()


def test_a_terminal_that_changes_its_size(fake: Fake, terminal: Start) -> None:
    fake(4711)
    shown = terminal(columns=160, rows=40)
    shown.wait("QUEUED")
    shown.resize(40, 20)
    shown.wait(lambda: "QUEUED" not in shown.text and "FUNCTION" in shown.text and "correct[3]" in shown.text)
    shown.resize(120, 40)
    shown.wait("QUEUED")
    shown.quit()


def test_without_colour_nothing_is_coloured(fake: Fake, terminal: Start) -> None:
    fake(4711)
    shown = terminal(NO_COLOR="1")
    shown.wait("helpful")
    assert b"\x1b[31" not in shown.raw
    assert b"\x1b[33" not in shown.raw


@pytest.mark.fault(
    "names and stacks with terminal escapes are shown by `guerdon top`",
    sees="escaped: nothing moves the cursor or sets a colour",
)
def test_hostile_text_is_shown_and_obeyed_by_nobody(fake: Fake, terminal: Start) -> None:
    answer = state(4711)
    answer["functions"][0]["name"] = HOSTILE
    answer["in_flight"] = [
        {"function": HOSTILE, "sample": 0, "seconds": 3.0, "stack": f'  File "{HOSTILE}", line 1, in f'}
    ]
    answer["host"] = HOSTILE
    fake(4711, answer)
    shown = terminal(columns=160)
    shown.wait("evil\\x1b[2J\\x1b]0;owned\\x07\\x9b31m\\u202etxt[bold]:smile:")
    shown.type("j")
    shown.wait("in f")
    assert b"\x1b]0;" not in shown.raw
    assert b"\x07" not in shown.raw
    assert shown.screen.title == ""


@pytest.mark.fault(
    "a process that `guerdon top` shows is killed",
    sees="it is marked as ended; the terminal is left as it was",
)
def test_several_ranks_have_a_sum_of_those_that_live(
    fake: Fake, terminal: Start, other_process: subprocess.Popen[str]
) -> None:
    fake(4711)
    shown = terminal(columns=120)
    shown.wait("2 dispatchers")
    shown.wait("113.0/s")  # 56.5 calls a second each
    other_process.kill()
    other_process.wait()
    shown.wait("ended")
    shown.wait("process 4711")
    shown.quit()


@pytest.mark.fault(
    "a process that `guerdon top` shows is stopped (SIGSTOP) and goes on",
    sees="its last figures, marked `no answer for …`, until it answers again",
)
def test_a_stopped_process_is_stale_and_asked_once(terminal: Start, other_process: subprocess.Popen[str]) -> None:
    shown = terminal(columns=120)
    shown.wait("helpful")
    other_process.send_signal(signal.SIGSTOP)
    shown.wait("no answer for")
    shown.type("j")
    shown.wait("return abs(left - right) < 1e-9")  # keys work meanwhile
    other_process.send_signal(signal.SIGCONT)
    shown.wait(lambda: "no answer for" not in shown.text)
    shown.quit()


def test_it_waits_for_a_process_that_starts_later(fake: Fake, terminal: Start) -> None:
    shown = terminal()
    shown.wait("no running dispatcher found")
    fake(4711)
    shown.wait("helpful")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_leave_a_clean_terminal(fake: Fake, terminal: Start, number: signal.Signals) -> None:
    fake(4711)
    shown = terminal()
    shown.wait("helpful")
    shown.type("j")
    shown.signal(number)
    assert shown.end() == 128 + number
    assert shown.is_as_before()
    assert b"Traceback" not in shown.raw


def test_many_looks_leave_no_descriptor(fake: Fake) -> None:
    from guerdon.cli.top.board import Board

    dispatcher = fake(4711)
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(50):
        board = Board()
        board.look_once(5)
        assert len(board.seen()) == 1
    assert dispatcher.asked == 50
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before

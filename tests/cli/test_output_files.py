"""Where commands can't write: one message with exit code 2, before anything is scored."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from guerdon import reward
from guerdon.cli.captured_stderr import captured_stderr
from tests.cli.conftest import Command
from tests.replay.recorded import record

Spoil = Callable[[Path], object]


def leads_to(target: str) -> Spoil:
    return lambda path: path.symlink_to(target)


# What stands under the name of the output, and a part of the message.
BAD: dict[str, tuple[Spoil, str]] = {
    "a folder": (lambda path: path.mkdir(), "no file"),
    "a link to a folder": (leads_to("/usr"), "no file"),
    "a link to a device": (leads_to("/dev/null"), "a device"),
    "a pipe": (os.mkfifo, "a pipe"),
    "a link to a pipe": (lambda path: (os.mkfifo(f"{path}.pipe"), path.symlink_to(f"{path}.pipe")), "a pipe"),
    "a link to nowhere": (leads_to("/nowhere/at/all"), "there is no folder"),
    "a link to itself": (lambda path: path.symlink_to(path), "symbolic links"),
}


@pytest.fixture
def commands(tmp_path: Path, rewards: Path, data: Path) -> dict[str, list[object]]:
    """Each command up to the name of its output."""
    length = reward(lambda text: float(len(text)), name="length", lane="thread")
    record(tmp_path / "journal", [length], [{"prompts": ["p"], "completions": ["a"]}], size=1)
    return {
        "replay": ["replay", tmp_path / "journal", f"{rewards}:length", "-o"],
        "report": ["report", tmp_path / "journal", "-o"],
        "profile": ["profile", f"{rewards}:length", data, "--html"],
    }


@pytest.mark.parametrize("command", ["replay", "report", "profile"])
@pytest.mark.parametrize("what", BAD)
@pytest.mark.fault(
    "a device, a pipe, a folder or a link to one has the name of a command's output",
    sees="exit code 2 and the reason, before anything is scored; it is left as it was",
)
def test_impossible_files_are_refused(
    guerdon: Command, commands: dict[str, list[object]], tmp_path: Path, command: str, what: str
) -> None:
    spoil, why = BAD[what]
    path = tmp_path / "out.jsonl"
    spoil(path)
    before = sorted(tmp_path.iterdir())
    ended = guerdon(*commands[command], path)
    assert ended.code == 2
    assert "can't be written" in ended.err
    assert why in ended.err
    assert not ended.out
    # Python keeps what it compiled of the file with the functions.
    assert sorted(path for path in tmp_path.iterdir() if path.name != "__pycache__") == before


@pytest.mark.parametrize("command", ["replay", "report", "profile", "score"])
def test_a_name_that_is_too_long_is_refused(
    guerdon: Command, commands: dict[str, list[object]], rewards: Path, data: Path, tmp_path: Path, command: str
) -> None:
    arguments = {**commands, "score": ["score", f"{rewards}:length", data, "-o"]}[command]
    assert "can't be written: File name too long" in guerdon.refused(
        *arguments, tmp_path / ("x" * 300 + (".jsonl" if command != "replay" else ""))
    )


def test_a_link_to_a_file_stays_a_link(guerdon: Command, commands: dict[str, list[object]], tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    link = tmp_path / "report.html"
    link.symlink_to(tmp_path / "pages" / "real.html")
    assert guerdon(*commands["report"], link).code == 0
    assert link.is_symlink()
    assert "<html" in (tmp_path / "pages" / "real.html").read_text()


def test_scores_may_go_to_a_device_or_a_pipe(rewards: Path, data: Path) -> None:
    command = [sys.executable, "-m", "guerdon", "score", f"{rewards}:length", str(data), "-q", "-o"]
    assert subprocess.run([*command, "/dev/null"], timeout=250, capture_output=True, check=True).stdout == b""
    piped = subprocess.run([*command, "/dev/stdout"], timeout=250, capture_output=True, check=True)
    assert piped.stdout.count(b'"index"') == 4


@pytest.mark.fault(
    "reward functions print terminal escapes while they are profiled",
    sees="the beginning of it, escaped",
)
def test_output_of_workers_does_not_control_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with captured_stderr():
        os.write(2, "\x1b[2J\x1b]0;title\x07 a\tb \u202ec\r\n".encode() + b"\xff\x9b31m second\n")
    shown = capfd.readouterr().err
    assert shown.splitlines() == ["\\x1b[2J\\x1b]0;title\\x07 a\tb \\u202ec\\r", "\ufffd\ufffd31m second"]

"""Commands whose streams are closed, full or of another encoding: results, no tracebacks."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from guerdon.cli import main
from tests.cli.conftest import write_rewards, write_rows
from tests.journal_files import training, write_journal

PRINTS = """
import os
import guerdon

@guerdon.reward(timeout=30)
def prints(completion: str) -> float:
    os.write(1, b"to stdout")
    os.write(2, b"to stderr")
    return float(completion)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A journal, rewards and rows."""
    write_journal(tmp_path / "journal", training(steps=2, texts=True), texts=True, columns=["answer"])
    write_rewards(tmp_path, PRINTS).rename(tmp_path / "prints_rewards.py")
    write_rows(tmp_path / "data.jsonl", [{"completion": "1"}, {"completion": "0.5"}])
    return tmp_path


def shell(folder: Path, line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `line` of a shell, in which ``guerdon`` is the command."""
    function = f'guerdon() {{ "{sys.executable}" -m guerdon "$@"; }}\n'
    return subprocess.run(
        ["bash", "-c", function + line],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


COMMANDS = [
    ("score prints_rewards.py data.jsonl -o out.jsonl", 0),
    ("report journal -o out.html", 0),
    ("score nothing.py data.jsonl", 2),
    ("score prints_rewards.py data.jsonl", 0),
    ("report journal --json", 0),
    ("replay journal prints_rewards.py:prints -q --json", 1),
    ("top --once", 1),
    ("info", 0),
]


@pytest.mark.parametrize(
    ("command", "code", "closed"),
    [
        *((*command, "<&- >&- 2>&-") for command in COMMANDS[:3]),
        *((*command, ">&-") for command in COMMANDS[3:]),
        (*COMMANDS[2], "2>&-"),
    ],
)
@pytest.mark.fault("a command is started with closed standard streams", sees="its exit code and files, as ever")
def test_closed_streams_lead_nowhere(folder: Path, command: str, code: int, closed: str) -> None:
    ended = shell(folder, f"guerdon {command} {closed}", XDG_RUNTIME_DIR=str(folder))
    assert "Traceback" not in ended.stderr
    assert ended.returncode == code, ended.stderr
    if "2>&-" in closed:
        assert ended.stderr == ""
        assert "guerdon: " not in ended.stdout, "messages are no results"
    for name in ("out.jsonl", "out.html"):
        if name in command:
            text = (folder / name).read_text()
            assert text
            assert "to std" not in text, "what workers print is in no file"


@pytest.mark.parametrize(
    "command", ["trace run.pftrace", "score prints_rewards.py data.jsonl", "report journal --json"]
)
@pytest.mark.usefixtures("guerdon")  # which forgets what the command imported
def test_a_command_escapes_what_the_encoding_lacks(folder: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from guerdon import Dispatcher, Trace, reward

    size = reward(lambda text: 1.0, name="größe", lane="thread")
    with Dispatcher([size], trace=Trace(folder / "run.pftrace")) as dispatcher:
        dispatcher.score(completions=["a", "b"])
    monkeypatch.chdir(folder)
    shown = io.BytesIO()
    # The streams of PYTHONIOENCODING=ascii.
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="ascii", write_through=True))
    monkeypatch.setattr(
        sys, "stderr", io.TextIOWrapper(shown, encoding="ascii", errors="backslashreplace", write_through=True)
    )
    assert main(command.split()) == 0
    assert shown.getvalue().isascii()
    assert ("gr\\xf6\\xdfe" in shown.getvalue().decode()) is command.startswith("trace")


def test_a_reader_that_goes_away_while_the_version_is_printed_is_no_error(folder: Path) -> None:
    ended = shell(folder, "{ sleep 1; guerdon --version; echo $? >&2; } | true")
    assert ended.stderr == "141\n"

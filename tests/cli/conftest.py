"""What the tests of the command line share: files of rewards and rows, and the command itself."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from guerdon.cli import main

REWARDS = '''
import guerdon

@guerdon.reward(timeout=5, lane="thread")
def correct(completion: str, answer: str) -> float:
    """1 if right."""
    return float(completion == answer)

@guerdon.reward(timeout=5, lane="thread")
def length(text: str) -> float:
    return len(text) / 10

def plain(prompts, completions, **columns):
    return [float(len(completions))] * len(completions)
'''


@dataclass(frozen=True)
class CommandEnd:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    def rewards(self, name: str) -> list[float | None]:
        return [row["rewards"][name] for row in self.rows]


@dataclass(frozen=True)
class Command:
    """The command line, run in this process."""

    capture: pytest.CaptureFixture[bytes]

    def __call__(self, *arguments: object) -> CommandEnd:
        code = main([str(argument) for argument in arguments])
        captured = self.capture.readouterr()
        return CommandEnd(code, captured.out.decode(), captured.err.decode())

    def refused(self, *arguments: object) -> str:
        """The message of a command that ends with exit code 2 and prints nothing else."""
        ended = self(*arguments)
        assert (ended.code, ended.out) == (2, ""), ended
        return ended.err


@pytest.fixture
def guerdon(capsysbinary: pytest.CaptureFixture[bytes], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """Runs the command line in this process; what it imports and puts on the path, and what it
    makes of SIGCHLD, is forgotten afterwards."""
    path, modules, on_child = list(sys.path), set(sys.modules), signal.getsignal(signal.SIGCHLD)
    files_of_tests = tmp_path_factory.getbasetemp()
    yield Command(capsysbinary)
    signal.signal(signal.SIGCHLD, on_child)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and files_of_tests in Path(file).parents:
            del sys.modules[name]


@pytest.fixture
def rewards(tmp_path: Path) -> Path:
    """A file of rewards whose name no other test has."""
    return write_rewards(tmp_path, REWARDS)


def write_rewards(folder: Path, text: str) -> Path:
    path = folder / f"rewards_{abs(hash(str(folder))):x}.py"
    path.write_text(text)
    return path


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Four rows, three of them right."""
    completions = ["4", "5", "22", "four"]
    answers = ["4", "5", "23", "four"]
    rows = [
        {"prompt": f"p{i}", "completion": completion, "answer": answer}
        for i, (completion, answer) in enumerate(zip(completions, answers, strict=True))
    ]
    return write_rows(tmp_path / "data.jsonl", rows)

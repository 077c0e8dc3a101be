"""Running whole programs, and seeing that they leave no process behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

MARK = "GUERDON_TEST_PROGRAM"


@contextmanager
def marked() -> Iterator[dict[str, str]]:
    """An environment for programs. What still carries it long after the block is an error."""
    mark = uuid.uuid4().hex
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHASHSEED")}
    yield {**environment, MARK: mark, "PYTHONDONTWRITEBYTECODE": "1"}
    deadline = time.monotonic() + 90  # moments, on a machine that does nothing else
    while (left := _carrying(mark)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left, f"left behind: {left}"


def run(*arguments: str | Path, cwd: Path, stdin: str = "", timeout: float = 250) -> str:
    """What ``python`` with these arguments prints; it must end well, quietly, and leave nothing."""
    done = attempt(*arguments, cwd=cwd, stdin=stdin, timeout=timeout)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def attempt(
    *arguments: str | Path, cwd: Path, stdin: str = "", timeout: float = 250
) -> subprocess.CompletedProcess[str]:
    """A run of ``python`` with these arguments, however it ends; it must leave nothing."""
    command = [sys.executable, *map(str, arguments)]
    with marked() as environment:
        return subprocess.run(
            command, cwd=cwd, env=environment, input=stdin, capture_output=True, text=True, timeout=timeout, check=False
        )


def write(folder: Path, **files: str) -> None:
    """Writes ``name="text"`` as name.py, ``a__b`` as a/b.py."""
    for name, text in files.items():
        path = folder.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _carrying(mark: str) -> Sequence[str]:
    """Command lines of the processes that were started with this mark and haven't ended."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:  # another user's, or gone
            continue
    return found

"""Ranks of one host as processes, for the tests."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.clock import eventually

REPOSITORY = Path(__file__).parents[3]
LONGEST_S = 120.0


class Rank:
    """A process as a launcher would start it."""

    def __init__(self, number: int, launch: Launch, options: dict[str, Any], environ: dict[str, str]) -> None:
        launcher = {
            "RANK": str(number),
            "LOCAL_RANK": str(number),
            "WORLD_SIZE": str(launch.size),
            "LOCAL_WORLD_SIZE": str(launch.size),
            "TORCHELASTIC_RUN_ID": launch.name,
            "XDG_RUNTIME_DIR": os.fspath(launch.folder),
            "GUERDON_TOP": "0",
        }
        self.number = number
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.shared_engine.rank", json.dumps({"log": launch.log, **options})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=REPOSITORY,
            env={**os.environ, **launcher, **environ},
            text=True,
        )

    def says(self, **what: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def score(self, texts: list[str], seconds: float | list[float]) -> None:
        """Begins a batch."""
        self.says(texts=texts, seconds=seconds if isinstance(seconds, list) else [seconds] * len(texts))

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], LONGEST_S)
        assert ready, f"rank {self.number} does not answer"
        line = self.process.stdout.readline()
        assert line, f"rank {self.number} has ended"
        found: dict[str, Any] = json.loads(line)
        return found

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Ends it as a program ends."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(LONGEST_S)
        finally:
            self.process.kill()
            self.process.stdout.close()


class Launch:
    """Ranks that one launcher started."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self.size = size
        self.name = f"{folder.name}-{os.getpid()}"
        self.log = os.fspath(folder / "log")
        self.ranks: list[Rank] = []

    def start(self, number: int, environ: dict[str, str] | None = None, **options: Any) -> Rank:
        rank = Rank(number, self, {"workers": 4, **options}, environ or {})
        self.ranks.append(rank)
        return rank

    def ran(self) -> Counter[str]:
        """How often each text was begun."""
        path = Path(self.log)
        return Counter(path.read_text().split()) if path.exists() else Counter()

    def wait_until_ran(self, count: int) -> None:
        eventually(lambda: sum(self.ran().values()) >= count, seconds=LONGEST_S)

    def files(self) -> list[str]:
        """What is left where they meet."""
        meeting = self.folder / "guerdon"
        return sorted(path.name for path in meeting.iterdir()) if meeting.is_dir() else []

    def engines(self) -> list[int]:
        """The processes that hold an engine of this launch."""
        return [
            process for process in self.processes() if _holds(process, "cmdline", "guerdon: the engine of this host")
        ]

    def processes(self) -> list[int]:
        """All that this launch has started, whoever started it: workers and zygotes too."""
        ours = f"XDG_RUNTIME_DIR={self.folder}"
        return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _holds(int(entry), "environ", ours)]

    def end(self) -> None:
        """Ends all, and looks at what is left."""
        for rank in self.ranks:
            rank.end()
        eventually(lambda: not (self.processes() or self.files()))


def _holds(process: int, file: str, part: str) -> bool:
    """Returns whether a process has this among its arguments or its environment."""
    try:
        return os.fsencode(part) in Path(f"/proc/{process}/{file}").read_bytes().split(b"\0")
    except OSError:  # it has ended, or is another user's
        return False


@contextmanager
def launch_in(folder: Path, size: int) -> Iterator[Launch]:
    """Ranks that leave nothing behind."""
    launch = Launch(folder, size)
    try:
        yield launch
    except BaseException:
        for rank in launch.ranks:
            rank.process.kill()
        for process in launch.processes():
            os.kill(process, signal.SIGKILL)
        raise
    finally:
        launch.end()
    assert (launch.processes(), launch.files()) == ([], [])

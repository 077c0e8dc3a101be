"""What the drills run: reward functions that go wrong, a judge that can be killed, and a trainer
that is killed itself.

Workers import this module: nothing heavy at its top.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from guerdon import StatefulReward


class Troubled(StatefulReward):
    """In every step its first sample never ends, and its second crashes the worker each time."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def score(self, text: str, trainer_state: Any) -> float:
        step = trainer_state.global_step
        if self._mine(f"hangs{step}", text):
            time.sleep(600)
        if self._mine(f"crashes{step}", text):
            ctypes.string_at(0)
        return 1.0

    def _mine(self, name: str, text: str) -> bool:
        """Whether this sample is the one of that name: the first that asks."""
        path = self.folder / name
        try:
            with path.open("x") as file:
                file.write(repr(text))
        except FileExistsError:
            return path.read_text() == repr(text)
        return True


class Sitting(StatefulReward):
    """Says which processes it runs in, and takes long."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def score(self, text: str) -> float:
        (self.folder / f"pid{os.getpid()}").touch()
        time.sleep(600)
        return 1.0


class Judge:
    """A judge in a process of its own, on the same port each time that it is started."""

    def __init__(self, root: Path) -> None:
        from tests.http.server import free_port

        self._port = free_port()
        self._root = root
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.http.server", str(self._port)]
        self._process = subprocess.Popen(command, cwd=self._root, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def main(folder: Path) -> None:
    """A training run whose first rewards never come."""
    from guerdon import Dispatcher, reward
    from guerdon.integrations.trl import GRPOTrainer
    from tests.integrations.trl.tiny_trainer import make_trainer

    dispatcher = Dispatcher([reward(Sitting(str(folder)), timeout=600)], workers=2)
    make_trainer(dispatcher, folder / "out", trainer_class=GRPOTrainer).train()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Starting the process that holds the engine of a host.

- It is a separate process in a new session: it outlives the starting rank while another rank is
  connected, and signals to a rank's group don't reach it.
- The trainer is never forked: the process is spawned.
- A process that does not report in time that it serves is killed.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from guerdon._lanes.remote.shared_engine.meeting import START_TIMEOUT_S, JoinError, Meeting
from guerdon._system import launcher, worker_environment

__all__ = ["AgentOptions", "start"]

# Descriptors that libraries left open for children are closed before anything else is opened.
_PROGRAM: Final = (
    "import os, sys; os.closerange(3, 1 << 20); sys.path[:] = [{package!r}, *(p for p in sys.path if p)]; "
    "from guerdon._lanes.remote.shared_engine.agent_process import main; main()"
)
_LONGEST_ANSWER: Final = 1 << 20


class AgentOptions(NamedTuple):
    """Options of the process."""

    meeting: Meeting
    digest: bytes
    setup: bytes
    """The functions and all else of an `EngineSetup`."""
    workers: int
    cores: tuple[int, ...]
    """Cores that it may use; none: those of the process that starts it."""
    started_by: str


def start(options: AgentOptions, timeout: float = START_TIMEOUT_S) -> int:
    """Starts the process and waits until it serves; its process id.

    Raises:
        JoinError: It can't be started, or reports that it can't serve.
    """
    deadline = time.monotonic() + timeout
    try:
        given = _in_memory(pickle.dumps(options, protocol=pickle.HIGHEST_PROTOCOL))
        try:
            answer, write = os.pipe()
            try:
                process = _spawn(given, write)
            finally:
                os.close(write)
        finally:
            os.close(given)
    except OSError as error:
        raise JoinError(f"its process can't be started ({error})") from error
    try:
        problem = _answer(answer, deadline)
    except BaseException:  # Ctrl-C
        _end(process)
        raise
    finally:
        os.close(answer)
    if problem is not None:
        _end(process)
        raise JoinError(problem)
    return process


def _spawn(given: int, write: int) -> int:
    package = os.fspath(Path(__file__).parents[4])
    arguments = [sys.executable, "-c", _PROGRAM.format(package=package), "guerdon: the engine of this host"]
    # Its workers are of no rank.
    environment = dict(worker_environment.of_workers(dict.fromkeys(launcher.RANK_VARIABLES)))
    actions = [(os.POSIX_SPAWN_DUP2, given, 0), (os.POSIX_SPAWN_DUP2, write, 1)]
    try:
        return os.posix_spawn(
            sys.executable,
            arguments,
            environment,
            file_actions=actions,
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE],
        )
    except NotImplementedError as error:
        raise OSError(str(error)) from None


def _in_memory(data: bytes) -> int:
    descriptor = os.memfd_create("guerdon")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _answer(answer: int, deadline: float) -> str | None:
    """Why it doesn't serve; None if it does."""
    poll = select.poll()
    poll.register(answer, select.POLLIN)
    text = b""
    while not text.endswith(b"\n") and len(text) < _LONGEST_ANSWER:
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            return "its process does not say in time that it serves"
        piece = os.read(answer, 1 << 16)
        if not piece:
            return "its process ended as it started (what it printed stands above)"
        text += piece
    try:
        answered: dict[str, Any] = json.loads(text)
    except ValueError:
        return f"its process says {text[:200]!r}"
    problem = answered.get("problem")
    return None if problem is None else str(problem)


def _end(process: int) -> None:
    """Kills one of our processes and waits for its end."""
    try:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    except (ProcessLookupError, ChildProcessError):
        pass

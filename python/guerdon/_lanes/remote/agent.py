"""An agent: the process that runs the calls of drivers elsewhere, on its own lanes."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guerdon._lanes.gil import need_gil
from guerdon._lanes.remote.engine_setup import EngineContent, this_python, unpack
from guerdon.errors import ClosedError, RegistrationError

if TYPE_CHECKING:
    from guerdon._functions.spec import FunctionSpec
    from guerdon._native import Agent, Link

__all__ = ["NodeAgent"]

_CLOSE_TIMEOUT_S: Final = 5.0


class NodeAgent:
    """Runs calls for the drivers that connect; nothing runs before the first of them comes.

    Args:
        data: What `engine_setup.pack` gave.
        workers: Worker processes; None: the cores that this process may use.

    Attributes:
        content: What the data say.
        digest: Of the functions that it has.
        python: The interpreter of its workers.
        worker_dir: The folder of their program.
        functions: What they load.
        own_functions: Those that the agent runs itself (``node="any"``), likewise.
        environment: All of the workers' environment.
    """

    def __init__(self, data: bytes, *, workers: int | None = None) -> None:
        from guerdon._system import worker_environment
        from guerdon._system.cpu_count import usable_cores

        self.content = unpack(data)
        self.digest = self.content.digest
        self.workers = usable_cores() if workers is None else workers
        self.python = sys.executable
        self.worker_dir = str(Path(__file__).parents[2] / "_worker")
        self.functions = _functions_here(self.content, in_workers=True)
        self.own_functions = _functions_here(self.content, in_workers=False)
        self.environment = worker_environment.of_workers(self.content.worker_env)
        self._agent: Agent | None = None
        self._specs: list[FunctionSpec] | None = None
        self._closed = False
        self._lock = threading.RLock()
        self._at_end: weakref.finalize[..., object] | None = None

    def check(self) -> None:
        """Makes sure that functions of the driver can run here at all.

        Raises:
            RegistrationError: It has another version of Python or of guerdon.
        """
        from guerdon import __version__

        content = self.content
        if (content.version, content.python) != (__version__, this_python()):
            raise RegistrationError(
                f"this node has guerdon {__version__} on {this_python()}, and the driver guerdon {content.version} on "
                f"{content.python}. Install the same versions on all nodes."
            )

    def load(self) -> None:
        """Loads the functions that it runs itself, unless it has.

        Raises:
            RegistrationError: One can't be loaded here, with its name.
        """
        with self._lock:
            if self.own_functions is not None and self._specs is None:
                from guerdon._lanes.remote.own_functions import load

                self._specs = load(self.content, self.own_functions)

    def connect(self, peer: str) -> Link:
        """A driver has come.

        Args:
            peer: What it is called in messages.

        Returns:
            This end of the link to it.

        Raises:
            ClosedError: The agent was closed.
            RegistrationError: As `load`.
        """
        return self._get().connect(peer)

    def stats(self) -> dict[str, int]:
        """Returns its figures since the start; empty before the first driver."""
        agent = self._agent
        return {} if agent is None else agent.stats()

    def worker_pids(self) -> list[int]:
        """Its worker processes."""
        agent = self._agent
        return [] if agent is None else agent.worker_pids()

    def close(self) -> None:
        """Ends its workers, and what drivers have here. Does nothing the second time."""
        with self._lock:
            self._closed = True
            agent, self._agent = self._agent, None
        if self._at_end is not None:
            self._at_end.detach()
        if agent is not None:
            agent.close(_CLOSE_TIMEOUT_S)

    def _get(self) -> Agent:
        with self._lock:
            if self._closed:
                raise ClosedError("this agent is closed.")
            if self._agent is None:
                self._agent = self._start()
                self._at_end = weakref.finalize(self, _end, self._agent, os.getpid())
            return self._agent

    def _start(self) -> Agent:
        from guerdon import _native

        self.load()
        if self._specs is not None:
            need_gil(beyond_threads=True)
        agent = _native.Agent(
            {
                "functions": self.content.functions,
                "digest": self.digest,
                "workers": {
                    "workers": self.workers,
                    "python": os.fsencode(self.python),
                    "worker_dir": os.fsencode(self.worker_dir),
                    "serialized_functions": self.functions or b"",
                    "environment": self.environment,
                    "recycle": self.content.recycle,
                },
            }
        )
        if self._specs is not None:
            from guerdon._lanes.thread_supervisor import ThreadSupervisor

            ThreadSupervisor(agent.lanes, self._specs, tell=agent.warn).start()
        return agent


def _end(agent: Agent, pid: int) -> None:
    if os.getpid() == pid:
        agent.close(_CLOSE_TIMEOUT_S)


def _functions_here(content: EngineContent, *, in_workers: bool) -> bytes | None:
    """The functions for workers, or for the agent itself, as this machine loads them: from folders
    that exist here; None without any."""
    if content.serialized is None:
        return None
    loaded = pickle.loads(content.serialized)
    lanes = [config["lane"] for config in content.functions]
    loaded["functions"] = [
        entry if (lane in ("process", "code")) == in_workers else None
        for lane, entry in zip(lanes, loaded["functions"], strict=True)
    ]
    if not any(loaded["functions"]):
        return None
    theirs = [entry for entry in loaded["sys_path"] if os.path.exists(entry)]
    loaded["sys_path"] = theirs + [entry for entry in sys.path if entry and entry not in theirs]
    if loaded["main_path"] is not None and not os.path.exists(loaded["main_path"]):
        loaded["main_path"] = loaded["main_name"] = None
    import socket

    if content.host != socket.gethostname():
        loaded["stamps"] = {}  # files of another machine have other times
    return pickle.dumps(loaded, protocol=pickle.HIGHEST_PROTOCOL)

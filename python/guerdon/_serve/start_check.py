"""The check of the functions before a server is ready: a server that answers each sample with an
error is quick, so that clients with several servers would send it most of theirs.

It is ended with the server.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
from typing import TYPE_CHECKING

from guerdon._functions import functions_check
from guerdon._functions.spec import with_members
from guerdon._lanes.remote.ray.options import Ray
from guerdon._system.worker_environment import given_to

if TYPE_CHECKING:
    from guerdon.dispatcher import Dispatcher


class StartCheck:
    """One check of a dispatcher's functions that run in workers of this machine."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._engine = dispatcher._engine
        # They run on the nodes, each of which has checked them, and maybe not here.
        self._checked_by_nodes = isinstance(dispatcher._options["cluster"], Ray)
        self._specs = [spec for spec in with_members(dispatcher._specs) if spec.in_workers]
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._lock = threading.Lock()

    async def run(self) -> None:
        """Returns once they can run.

        Raises:
            RegistrationError: One can't; each with its reason.
        """
        if self._specs and not self._checked_by_nodes:
            await asyncio.to_thread(self._check)

    def stop(self) -> None:
        """Ends it, if it goes on; `run` then ends soon, one way or the other."""
        with self._lock:
            self._stopped = True
            if self._process is not None and self._process.poll() is None:
                self._process.terminate()

    def _check(self) -> None:
        setup = self._engine.worker_setup()
        assert setup.functions is not None
        named = (pair for spec in self._specs for pair in given_to(spec.policy.env))
        functions_check.check(
            setup.python,
            setup.folder,
            setup.functions,
            dict(setup.environment) | dict(named),
            # One after another, each with its import.
            sum(spec.policy.setup_timeout for spec in self._specs),
            begun=self._begun,
        )

    def _begun(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._process = process
            if self._stopped:
                process.terminate()

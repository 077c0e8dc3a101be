"""Runs the server until a signal ends it.

- It is ready once its functions can run; where they can't, it ends.
- SIGTERM or SIGINT: it stops accepting, requests in flight finish or have `drain_timeout`; then it
  ends, and that is a success.
- A second signal ends it at once.
- Connections are uvicorn's, which closes idle ones. TLS and clients that are slow on purpose are
  left to a proxy in front (docs/serve.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from guerdon._serve.app import make_app
from guerdon._serve.counters import Counters
from guerdon._serve.drain import Drain
from guerdon._serve.permits import Permits
from guerdon._serve.settings import BACKLOG, IDLE_TIMEOUT_S, ServerSettings
from guerdon._serve.start_check import StartCheck
from guerdon.errors import RegistrationError

if TYPE_CHECKING:
    from guerdon.dispatcher import Dispatcher

# Beyond the time of requests in flight: their answers have to be sent.
_GRACE_S: Final = 3.0
_LOGGER: Final = logging.getLogger("guerdon.serve")
_MOST_DESCRIPTORS: Final = 1 << 20


class RewardServer(uvicorn.Server):
    """A server that drains.

    Attributes:
        ended_by: The signal that ended it at once; None if it has drained.
        refusal: Why its functions can't run, which ended it; else None.
    """

    should_exit: bool
    force_exit: bool

    def __init__(self, dispatcher: Dispatcher, settings: ServerSettings, started: Callable[[], object]) -> None:
        self._started = started
        self._drain = Drain()
        self._drain.starting = True
        self._check = StartCheck(dispatcher)
        self._checking: asyncio.Task[None] | None = None
        self._dispatcher = dispatcher
        self._settings = settings
        self._loop: asyncio.AbstractEventLoop | None = None
        self.ended_by: int | None = None
        self.refusal: RegistrationError | None = None
        self._permits = permits = Permits(settings.max_samples, settings.max_bodies_bytes)
        app = make_app(dispatcher, settings, self._drain, permits, Counters(permits))
        super().__init__(_config(app, settings))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await self._dispatcher._engine.astart(self._dispatcher)
        _raise_descriptor_limit()
        await super().startup(sockets)
        if not self.should_exit:
            self._checking = asyncio.create_task(self._begin())

    async def _begin(self) -> None:
        """Takes requests once the functions can run; it answers `/health` meanwhile."""
        try:
            await self._check.run()
        except RegistrationError as error:
            if not self.should_exit:
                self.refusal, self.should_exit = error, True
            return
        except (OSError, RuntimeError) as error:  # no descriptors, no processes, no threads
            _LOGGER.warning("guerdon: the functions can't be checked before they are called: %s", error)
        if self.should_exit:
            return
        self._drain.starting = False
        self._started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._check.stop()
        self._tell_of_drain()
        self._drain.begin()
        timer = asyncio.get_running_loop().call_later(self._settings.drain_timeout, self._drain.expire)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()

    def _tell_of_drain(self) -> None:
        samples = self._permits.samples
        if samples and not self.force_exit:
            sys.stderr.write(
                f"guerdon: draining: {samples} samples are in flight, and have {self._settings.drain_timeout:g} s; a second "
                "signal ends them at once\n"
            )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called in a signal handler; that of the base class would raise the signal again at the
        end."""
        if not self.should_exit:
            self.should_exit = True
            return
        self.force_exit, self.ended_by = True, sig
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._abort)

    def _abort(self) -> None:
        self._drain.expire()
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def serve(
    dispatcher: Dispatcher,
    settings: ServerSettings,
    sockets: Sequence[socket.socket],
    started: Callable[[], object],
) -> int:
    """Serves until a signal ends it.

    Args:
        dispatcher: Scores the samples; it is not closed.
        settings: How they are served.
        sockets: Where it listens.
        started: Called once requests are answered.

    Returns:
        0 after a drain; 128 + the signal where a second one ended it at once.

    Raises:
        RegistrationError: The functions can't run on this machine.
    """
    server = RewardServer(dispatcher, settings, started)
    server.run(list(sockets))
    if server.refusal is not None:
        raise server.refusal
    return 0 if server.ended_by is None else 128 + server.ended_by


def _raise_descriptor_limit() -> None:
    """Raises the soft limit of open files, so of connections, to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, _MOST_DESCRIPTORS) if hard == resource.RLIM_INFINITY else hard
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _config(app: Any, settings: ServerSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="h11",  # httptools would have no bound on headers
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # it logs nothing that a request brings
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_TIMEOUT_S,
        timeout_graceful_shutdown=int(settings.drain_timeout + _GRACE_S) + 1,
    )

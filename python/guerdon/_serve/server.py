"""Runs the server until it is told to end.

- It is ready once its functions can run; where they can't, it ends.
- SIGTERM or SIGINT: it stops accepting, requests in flight finish or have `drain_timeout`; then it
  ends, and that is a success.
- A second signal ends it at once.
- A connection is closed that brings no whole request head, or none with a token, for a while, or
  that reads no answer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from guerdon._serve.app import make_app
from guerdon._serve.connection_limit import ACCEPTED_AT_ONCE, ConnectionLimit
from guerdon._serve.connection_timeouts import ConnectionTimeouts
from guerdon._serve.counters import Counters
from guerdon._serve.drain import Drain
from guerdon._serve.errors import ServerOptionError
from guerdon._serve.permits import Permits
from guerdon._serve.settings import BACKLOG, ServerSettings
from guerdon._serve.start_check import StartCheck
from guerdon._serve.tls_connections import TlsConnections
from guerdon.errors import RegistrationError

if TYPE_CHECKING:
    from guerdon.dispatcher import Dispatcher

# Beyond the time of requests in flight: their answers have to be sent.
_GRACE_S: Final = 3.0
_LOGGER: Final = logging.getLogger("guerdon.serve")
_FEW_CONNECTIONS: Final = 128
_TICKS_A_LOOK: Final = 10  # a tick is 0.1 s


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
        counters = Counters(permits)
        self._timeouts = ConnectionTimeouts(
            settings.head_timeout, settings.idle_timeout, settings.body_timeout, counters.count_unread
        )
        self._limit = ConnectionLimit()
        self._tls: TlsConnections | None = None
        app = make_app(dispatcher, settings, self._drain, permits, counters)
        super().__init__(_config(app, settings, self._limit.protocol))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await self._dispatcher._engine.astart(self._dispatcher)
        context = self.config.ssl
        self._limit.measure(self._dispatcher.workers, tls=context is not None)
        if context is None:
            await super().startup(sockets)
        else:
            await super().startup([])
            self._tls = TlsConnections(context, self._protocol, self._limit.most_without_tls)
            self._tls.start(sockets or ())
        for one in sockets or ():
            one.listen(BACKLOG)  # uvicorn's `backlog` is how many are accepted in a turn, too
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
        if self._limit.most < _FEW_CONNECTIONS:
            _LOGGER.warning(
                "guerdon: at most %d connections at once, as this process may open few files: raise the hard limit (ulimit -Hn)",
                self._limit.most,
            )

    def _protocol(self) -> asyncio.Protocol:
        """What uvicorn makes of a connection that it accepts itself."""
        make: Any = self.config.http_protocol_class
        made: asyncio.Protocol = make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        return made

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS_A_LOOK == 0:
            self._timeouts.look(self.server_state.connections, time.monotonic())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._check.stop()
        self._tell_of_drain()
        self._drain.begin()
        if self._tls is not None:
            await self._tls.stop()
        timer = asyncio.get_running_loop().call_later(self._settings.drain_timeout, self._expire)
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
        """Called in a signal handler; the base's would raise the signal again at the end."""
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

    def _expire(self) -> None:
        self._drain.expire()
        self._timeouts.expire(self.server_state.connections)


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
        ServerOptionError: Certificate or key can't be used.
        RegistrationError: The functions can't run on this machine.
    """
    server = RewardServer(dispatcher, settings, started)
    server.run(list(sockets))
    if server.refusal is not None:
        raise server.refusal
    return 0 if server.ended_by is None else 128 + server.ended_by


def _config(app: Any, settings: ServerSettings, protocol: Any) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # it logs nothing that a request brings
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=ACCEPTED_AT_ONCE,
        timeout_keep_alive=int(settings.idle_timeout),
        timeout_graceful_shutdown=int(settings.drain_timeout + _GRACE_S) + 1,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ServerOptionError(f"--tls-cert and --tls-key can't be used: {error}.") from None
    return config

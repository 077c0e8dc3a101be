"""The process that holds the engine of a host, for all ranks that connect to it.

- It ends with the last connection, or at once if no process connects: it takes the lock of the
  meeting, removes the files and ends, so that no process connects to an ending one.
- Signals for the whole job (Ctrl-C, SIGTERM) are the ranks' to follow: it ends with them.
- A connection that isn't a rank's (garbage, silence, another user) ends alone, after `TIMEOUT_S`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import signal
import socket
import sys
from typing import TYPE_CHECKING, Final

from guerdon import _native
from guerdon._lanes.remote.agent import NodeAgent
from guerdon._lanes.remote.shared_engine import greeting
from guerdon._lanes.remote.shared_engine.agent_start import AgentOptions
from guerdon._lanes.remote.shared_engine.meeting import JoinError
from guerdon._lanes.remote.shared_engine.peer import Peer

if TYPE_CHECKING:
    from guerdon._native import Carrier

__all__ = ["main"]

_BACKLOG: Final = 1024
_RETRY_S: Final = 0.05
_IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)


def main() -> None:
    """Runs the engine until its last connection has ended."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    with os.fdopen(os.dup(0), "rb") as given:
        options: AgentOptions = pickle.load(given)  # from the process that started this one
    _leave_standard_input()
    answer = os.dup(1)
    os.dup2(2, 1)  # what anything prints goes where the rank's errors go
    try:
        if options.cores:
            with contextlib.suppress(OSError):  # the container has fewer now
                os.sched_setaffinity(0, options.cores)
        agent = NodeAgent(options.setup, workers=options.workers)
        agent.load()
    except Exception as error:
        _send_answer(answer, problem=f"its engine can't start ({type(error).__name__}: {error})")
        sys.exit(1)
    try:
        listener = _listen(os.fspath(options.meeting.socket))
    except OSError as error:
        _send_answer(answer, problem=f"the socket {os.fspath(options.meeting.socket)!r} can't be made ({error})")
        agent.close()
        sys.exit(1)
    _send_answer(answer, problem=None)
    with listener, contextlib.closing(agent):
        asyncio.run(_AgentServer(options, agent, listener).serve())


class _AgentServer:
    def __init__(self, options: AgentOptions, agent: NodeAgent, listener: socket.socket) -> None:
        self._options = options
        self._agent = agent
        self._listener = listener
        self._carriers: dict[int, Carrier] = {}
        # The process that was welcomed, or is being welcomed: it gives the lock back then.
        self._welcome = 0
        self._greeting: set[asyncio.Task[None]] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    async def serve(self) -> None:
        """Serves until nobody is connected and the lock is free."""
        self._listener.setblocking(False)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._listener, self._accept)
        try:
            while True:
                await self._empty.wait()
                try:
                    # A process that is about to connect has it.
                    with self._options.meeting.locked(0.0):
                        if not self._carriers and not self._welcome:
                            self._options.meeting.remove()
                            return
                except JoinError:
                    await asyncio.sleep(_RETRY_S)
        finally:
            loop.remove_reader(self._listener)
            for task in self._greeting:
                task.cancel()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # the caller is gone, or descriptors have run out
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._listener)
            loop.call_later(_RETRY_S, loop.add_reader, self._listener, self._accept)
            return
        task = asyncio.create_task(self._greet(connection))
        self._greeting.add(task)
        task.add_done_callback(self._greeting.discard)

    async def _greet(self, connection: socket.socket) -> None:
        """Connects a peer that identifies itself in time."""
        with connection, contextlib.ExitStack() as greeted:
            connection.setblocking(False)
            loop = asyncio.get_running_loop()
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                try:
                    peer = greeted.enter_context(Peer(connection))
                    record = await asyncio.wait_for(_receive(connection), greeting.TIMEOUT_S)
                    hello = greeting.checked(record, self._options.digest)
                except JoinError as error:
                    refusal = greeting.pack(digest="", refused=str(error))
                    await asyncio.wait_for(loop.sock_sendall(connection, refusal), greeting.TIMEOUT_S)
                    return
                welcome = greeting.pack(digest=self._options.digest.hex(), started_by=self._options.started_by)
                self._welcome += 1
                try:
                    await asyncio.wait_for(loop.sock_sendall(connection, welcome), greeting.TIMEOUT_S)
                    self._connect(connection, str(hello.get("name")), peer)
                finally:
                    self._welcome -= 1

    def _connect(self, connection: socket.socket, name: str, peer: Peer) -> None:
        ended, ending = os.pipe()
        link = self._agent.connect(name)
        try:
            carrier = _native.carry(link, connection.detach(), process=peer.process, handle=peer.detach(), ended=ending)
        except BaseException:
            link.lost("its connection can't be carried")
            os.close(ended)
            raise
        self._carriers[ended] = carrier
        self._empty.clear()
        asyncio.get_running_loop().add_reader(ended, self._gone, ended)

    def _gone(self, ended: int) -> None:
        asyncio.get_running_loop().remove_reader(ended)
        os.close(ended)
        del self._carriers[ended]
        if not self._carriers:
            self._empty.set()


async def _receive(connection: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    record = b""
    while len(record) < greeting.RECORD_BYTES:
        piece = await loop.sock_recv(connection, greeting.RECORD_BYTES - len(record))
        if not piece:
            raise ConnectionResetError
        record += piece
    return record


def _listen(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _leave_standard_input() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)


def _send_answer(answer: int, **fields: str | None) -> None:
    """Sends an answer to the starting process, if that still listens."""
    with contextlib.suppress(OSError):
        os.write(answer, json.dumps(fields).encode() + b"\n")
    os.close(answer)

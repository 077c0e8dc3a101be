"""Joining the engine of a host: the first process to come starts it, the others connect.

- All of it happens under the lock of the meeting, so two never start an engine at once and none
  joins one that is ending.
- It takes bounded time: without the lock, or an answer, the process fails with `JoinError`.
- An engine whose process is stopped is killed, and another is started.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from guerdon._lanes.remote.shared_engine import greeting
from guerdon._lanes.remote.shared_engine.meeting import LOCK_TIMEOUT_S, JoinError, Meeting
from guerdon._lanes.remote.shared_engine.peer import Peer
from guerdon._system.socket_folders import is_served

__all__ = ["Membership", "join"]


class Membership(NamedTuple):
    """A connection to the engine of the host, after the greeting."""

    connection: socket.socket
    peer: Peer
    """The engine's process."""
    started: bool
    """True if this process started it."""
    answer: dict[str, Any]


def join(
    meeting: Meeting,
    digest: bytes,
    name: str,
    start: Callable[[], object],
    *,
    lock_timeout: float = LOCK_TIMEOUT_S,
    greeting_timeout: float = greeting.TIMEOUT_S,
) -> Membership:
    """Joins the engine of the host.

    Args:
        meeting: Where.
        digest: Of the functions and options.
        name: What the engine calls this process.
        start: Starts the engine, and returns when it serves its socket.
        lock_timeout: Seconds to wait while others start or join.
        greeting_timeout: Seconds that the engine may take to answer.

    Raises:
        JoinError: It can't be joined.
    """
    hello = greeting.pack(digest=digest.hex(), name=name)
    with meeting.locked(lock_timeout):
        joined = _connect(meeting, digest, hello, greeting_timeout)
        if joined is not None:
            return joined
        try:
            meeting.socket.unlink(missing_ok=True)
        except OSError as error:
            raise JoinError(f"the socket {os.fspath(meeting.socket)!r} can't be replaced ({error})") from error
        start()
        joined = _connect(meeting, digest, hello, greeting_timeout)
        if joined is None:
            raise JoinError("its process ended as soon as it had started")
        return joined._replace(started=True)


def _connect(meeting: Meeting, digest: bytes, hello: bytes, timeout: float) -> Membership | None:
    """The connection; None without an engine."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(timeout)
        try:
            connection.connect(os.fspath(meeting.socket))
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        with contextlib.ExitStack() as until_joined:
            # Before the greeting: who answers that has the number still.
            peer = until_joined.enter_context(Peer(connection))
            served_by = f"process {peer.process}, which serves it,"
            try:
                connection.sendall(hello)
                answer = greeting.checked(_receive(connection, timeout), digest)
            except TimeoutError:
                if peer.kill_if_stopped():
                    return None
                raise JoinError(f"{served_by} does not answer within {timeout:g} s") from None
            except ConnectionError as error:
                if not is_served(meeting.socket):
                    return None
                raise JoinError(f"{served_by} closed the connection") from error
            until_joined.pop_all()
        kept, connection = connection, socket.socket(socket.AF_UNIX)
        return Membership(kept, peer, False, answer)
    except OSError as error:
        raise JoinError(str(error)) from error
    finally:
        connection.close()


def _receive(connection: socket.socket, timeout: float) -> bytes:
    deadline = time.monotonic() + timeout
    record = b""
    while len(record) < greeting.RECORD_BYTES:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)  # of the whole record, however it drips
        piece = connection.recv(greeting.RECORD_BYTES - len(record))
        if not piece:
            raise ConnectionResetError
        record += piece
    return record

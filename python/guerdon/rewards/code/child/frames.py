"""Messages over a channel: four bytes of length, then the message."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable
from typing import Final

__all__ = ["ChannelClosedError", "OverLimitError", "receive", "receive_blocking", "send", "send_blocking"]

_LENGTH: Final = struct.Struct("<I")
_PIECE: Final = 1 << 20


class ChannelClosedError(Exception):
    """The other side is gone."""


class OverLimitError(Exception):
    """The other side sends more than it may."""


def send(channel: socket.socket, message: bytes, deadline: float) -> None:
    """Send a message by `deadline` (of `time.monotonic`)."""
    channel.settimeout(max(deadline - time.monotonic(), 1e-4))
    try:
        channel.sendall(_LENGTH.pack(len(message)) + message)
    except TimeoutError:
        raise
    except OSError:
        raise ChannelClosedError from None


def receive(channel: socket.socket, limit: int, deadline: float, more: Callable[[], float]) -> bytes:
    """The next message, of at most `limit` bytes, by `deadline`.

    Args:
        more: Asked then: a later deadline, or the same.

    Raises:
        TimeoutError: It was not there by then.
        ChannelClosedError: The other side is gone.
        OverLimitError: It is longer.
    """
    (length,) = _LENGTH.unpack(_read(channel, _LENGTH.size, deadline, more))
    if length > limit:
        raise OverLimitError
    return _read(channel, length, deadline, more)


def _read(channel: socket.socket, length: int, deadline: float, more: Callable[[], float]) -> bytes:
    data = bytearray()
    while len(data) < length:
        left = deadline - time.monotonic()
        if left <= 0:
            deadline, before = more(), deadline
            if deadline <= before:
                raise TimeoutError
            continue
        channel.settimeout(left)
        try:
            piece = channel.recv(min(length - len(data), _PIECE))
        except TimeoutError:
            continue
        except OSError:
            raise ChannelClosedError from None
        if not piece:
            raise ChannelClosedError
        data += piece
    return bytes(data)


def send_blocking(fd: int, message: bytes) -> None:
    """Send a message, however long it takes: for a program's process, which is killed in time."""
    view = memoryview(_LENGTH.pack(len(message)) + message)
    while view:
        view = view[os.write(fd, view) :]


def receive_blocking(fd: int) -> bytes | None:
    """The next message; None if the other side is gone."""
    head = _read_blocking(fd, _LENGTH.size)
    return None if head is None else _read_blocking(fd, _LENGTH.unpack(head)[0])


def _read_blocking(fd: int, length: int) -> bytes | None:
    data = bytearray()
    while len(data) < length:
        piece = os.read(fd, min(length - len(data), _PIECE))
        if not piece:
            return None
        data += piece
    return bytes(data)

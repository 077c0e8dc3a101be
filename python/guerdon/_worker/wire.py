"""Messages between the supervisor and a worker; ``process/src/wire/mod.rs`` documents the format.

- A message is one header and one body, sent whole before the progress word moves on.
- User code may close the socket and open a file under its number: the socket is used only by calls
  that fail on files, and its number is too high for other sockets (`linux.to_high_descriptor`).
  That costs no system call.
"""

from __future__ import annotations

import os
import struct
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from socket import socket  # imported by name: user code may replace socket.socket
from typing import NoReturn

from .columns import KnownConstants, Values

# Kinds of calls.
SAMPLE, GROUP, BATCH, FINISH = range(4)

# Head of messages to the worker: length of the body, frame, function, kind, message, calls.
_TO_WORKER = struct.Struct("<QQHBBI")
RUN, CLOSE, ENVIRONMENT = 1, 2, 3

# Head of messages to the supervisor: length of the body, message, flags, call (or count), frame.
_TO_SUPERVISOR = struct.Struct("<IBBHQ")
READY, DONE, FAIL, CELLS, RECORD, SETUP_FAILED, BEGUN, USED = range(1, 9)
RETIRE = 1  # flag of DONE: the worker ends after this frame
RETRYABLE = 1  # flag of FAIL
PREPARED = 1  # flag of BEGUN: the function was just loaded or set up
INTERRUPTED = 2  # flag of FAIL and SETUP_FAILED: by the timeout signal
IMPORTS = 4  # flag of SETUP_FAILED: in imports that the arguments need
_LARGEST_RECORD = 16 << 20
_FRAME_RECORDS = 64 << 20  # of all calls of one frame

_NO_NAMES = 0xFFFFFFFF
_NO_STATUS = 0xFFFF
_BUFFER = 512 << 10


class Frame:
    """One received message. `RUN` messages carry calls, whose values `values` returns."""

    __slots__ = ("_at", "_body", "calls", "counts", "function", "id", "kind", "message", "names", "scores")

    def __init__(self, header: tuple[int, ...], body: memoryview) -> None:
        _, self.id, self.function, self.kind, self.message, self.calls = header
        self._body = body
        self.names: bytes | None = None
        self.counts: tuple[int, ...] = ()
        self.scores: list[float | None] = []
        if self.message != RUN:
            return
        (length,) = struct.unpack_from("<I", body, 0)
        at = 4
        if length != _NO_NAMES:
            self.names = bytes(body[at : at + length])
            at += length
        if self.kind != SAMPLE:
            self.counts = struct.unpack_from(f"<{self.calls}I", body, at)
            at += 4 * self.calls
        if self.kind == FINISH:
            total = sum(self.counts)
            found = struct.unpack_from(f"<{total}d", body, at)
            self.scores = [score if score == score else None for score in found]
            at += 8 * total
        self._at = at

    def values(self, constants: KnownConstants) -> Values:
        """The values of the calls, of each frame in turn. They refer to the receive buffer until
        all are unpickled."""
        return Values(self._body[self._at :], constants)

    def environment(self) -> dict[str, str]:
        """The variables of an `ENVIRONMENT` message."""
        pairs = (os.fsdecode(pair).partition("=") for pair in bytes(self._body).split(b"\0")[:-1])
        return {name: value for name, _, value in pairs}

    def release(self) -> None:
        """Releases the buffer."""
        self._body.release()


def names_of(blob: bytes | None) -> tuple[str, ...] | None:
    """The keyword names of a frame, each ended by a NUL."""
    return None if blob is None else tuple(name.decode("utf-8", "surrogatepass") for name in blob.split(b"\0")[:-1])


class SupervisorSocket:
    """The worker's end of its socket; takes over the descriptor."""

    def __init__(self, fd: int) -> None:
        self._socket = socket(fileno=fd)
        self._socket.settimeout(None)  # user code may have changed the default at import
        self._buffer = _buffer_of(_BUFFER)
        self._filled = 0  # bytes in the buffer
        self._used = 0  # of these, in frames already returned
        # The frame that recorded last, and how many bytes.
        self._recorded = (0, 0)

    def next(self) -> Frame | None:
        """Waits for a message; None once the supervisor is gone.

        The frame before it must have been released.
        """
        if self._used == self._filled:
            self._used = self._filled = 0  # reuse memory that is in the cache
        while True:
            rest = self._filled - self._used
            if rest >= _TO_WORKER.size:
                header = _TO_WORKER.unpack_from(self._buffer, self._used)
                whole = _TO_WORKER.size + header[0]
                if rest >= whole:
                    start = self._used
                    self._used += whole
                    return Frame(header, self._buffer[start + _TO_WORKER.size : start + whole])
                if len(self._buffer) - self._used < whole:  # once a frame, not once a piece
                    self._make_room(whole)
            elif len(self._buffer) - self._filled < _TO_WORKER.size:
                self._make_room(_TO_WORKER.size)
            try:
                got = self._socket.recv_into(self._buffer[self._filled :])
            except OSError:
                _exit()
            if got == 0:
                return None
            self._filled += got

    def _make_room(self, whole: int) -> None:
        """Moves the rest to the front of a buffer of at least `whole`; a larger one shrinks
        again."""
        rest = bytes(self._buffer[self._used : self._filled])
        size = max(whole, _BUFFER)
        if len(self._buffer) != size:
            self._buffer = _buffer_of(size)
        self._buffer[: len(rest)] = rest
        self._used, self._filled = 0, len(rest)

    def detach(self) -> int:
        """Ends all use of the socket, for a forked child of the worker; returns the descriptor."""
        return self._socket.detach()

    def ready(self) -> None:
        self._send(READY, 0, 0, 0, b"")

    def begun(self, frame: int, prepared: bool) -> None:
        self._send(BEGUN, PREPARED if prepared else 0, 0, frame, b"")

    def done(self, frame: int, ran: int, retire: bool) -> None:
        self._send(DONE, RETIRE if retire else 0, ran, frame, b"")

    def fail(
        self,
        frame: int,
        call: int,
        reason: str,
        traceback: str | None,
        *,
        flags: int,
        retry_after: float | None = None,
        http_status: int | None = None,
    ) -> None:
        wait = float("nan") if retry_after is None else retry_after
        body = struct.pack("<dH", wait, _NO_STATUS if http_status is None else http_status) + _encoded_texts(
            reason, traceback
        )
        self._send(FAIL, flags, call, frame, body)

    def setup_failed(self, frame: int, reason: str, traceback: str | None, *, flags: int = 0) -> None:
        self._send(SETUP_FAILED, flags, 0, frame, _encoded_texts(reason, traceback))

    def cells(self, frame: int, call: int, cells: list[tuple[int, float, str | None]]) -> None:
        parts = [struct.pack("<I", len(cells))]
        parts += [struct.pack("<Bd", status, value) for status, value, _ in cells]
        for index, (_, _, error) in enumerate(cells):
            if error is not None:
                text = error.encode("utf-8", "backslashreplace")
                parts.append(struct.pack("<II", index, len(text)) + text)
        self._send(CELLS, 0, call, frame, b"".join(parts))

    def used(self, frame: int, call: int, tokens: float) -> None:
        self._send(USED, 0, call, frame, struct.pack("<d", tokens))

    def record(self, frame: int, call: int, json: bytes) -> bool:
        """Sends a record; False if it is too large, or with the others of its frame."""
        last, size = self._recorded
        size = len(json) + (size if last == frame else 0)
        if len(json) > _LARGEST_RECORD or size > _FRAME_RECORDS:
            return False
        self._recorded = (frame, size)
        self._send(RECORD, 0, call, frame, json)
        return True

    def _send(self, message: int, flags: int, call: int, frame: int, body: bytes) -> None:
        try:
            self._socket.sendall(_TO_SUPERVISOR.pack(len(body), message, flags, call, frame) + body)
        except OSError:
            _exit()


def _buffer_of(size: int) -> memoryview:
    """A buffer that takes no memory until it is written: most frames are small."""
    return memoryview(mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS))


def _exit() -> NoReturn:
    """Ends the process after its socket was closed or replaced; results stay in the page."""
    os._exit(1)


def _encoded_texts(reason: str, traceback: str | None) -> bytes:
    first = reason.encode("utf-8", "backslashreplace")
    second = b"" if traceback is None else traceback.encode("utf-8", "backslashreplace")
    return struct.pack("<II", len(first), _NO_NAMES if traceback is None else len(second)) + first + second

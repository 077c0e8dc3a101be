"""Frames as the engine writes them, for tests that stand in for it."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from guerdon._worker import wire

NO_NAMES = 0xFFFFFFFF


def part(tag: int, positions: Sequence[int], body: bytes) -> bytes:
    """One part of the values."""
    head = struct.pack("<BxHxxxxQ", tag, len(positions), len(body))
    return head + struct.pack(f"<{len(positions)}H", *positions) + body


def values(rows: int, width: int, *parts: bytes) -> bytes:
    """The values of some samples."""
    return struct.pack("<IHH", rows, width, len(parts)) + b"".join(parts)


def plain_text(position: int, texts: Sequence[str], codec: str = "ascii") -> bytes:
    """A column of texts of one byte a character."""
    return part(1 if codec == "ascii" else 2, [position], _ends([text.encode(codec) for text in texts]))


def run(
    frame: int,
    content: bytes,
    *,
    calls: int,
    function: int = 0,
    names: Sequence[str] | None = None,
) -> bytes:
    """A message that has a worker run calls."""
    if names is None:
        body = struct.pack("<I", NO_NAMES)
    else:
        blob = b"".join(name.encode() + b"\0" for name in names)
        body = struct.pack("<I", len(blob)) + blob
    body += content
    return struct.pack("<QQHBBI", len(body), frame, function, wire.SAMPLE, wire.RUN, calls) + body


def close() -> bytes:
    """The message that ends a worker."""
    return struct.pack("<QQHBBI", 0, 0, 0, 0, wire.CLOSE, 0)


def _ends(raw: Sequence[bytes]) -> bytes:
    ends, end = b"", 0
    for text in raw:
        end += len(text)
        ends += struct.pack("<Q", end)
    return ends + b"".join(raw)

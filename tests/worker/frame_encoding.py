"""Frames as the engine writes them, for tests that stand in for it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate

from guerdon._worker import wire

NO_NAMES = 0xFFFFFFFF


def run(frame: int, texts: Sequence[str], *, codec: str = "ascii", names: Sequence[str] | None = None) -> bytes:
    """A message that has a worker run a call for each text of one column, a byte a character."""
    raw = [text.encode(codec) for text in texts]
    ends = b"".join(struct.pack("<Q", end) for end in accumulate(map(len, raw)))
    column = ends + b"".join(raw)
    part = struct.pack("<BxHxxxxQH", 1 if codec == "ascii" else 2, 1, len(column), 0) + column
    values = struct.pack("<IHH", len(texts), 1, 1) + part
    if names is None:
        body = struct.pack("<I", NO_NAMES)
    else:
        blob = b"".join(name.encode() + b"\0" for name in names)
        body = struct.pack("<I", len(blob)) + blob
    body += values
    return struct.pack("<QQHBBI", len(body), frame, 0, wire.SAMPLE, wire.RUN, len(texts)) + body


def close() -> bytes:
    """The message that ends a worker."""
    return struct.pack("<QQHBBI", 0, 0, 0, 0, wire.CLOSE, 0)

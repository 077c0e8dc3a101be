"""Frames as the engine writes them, for tests that stand in for it."""

from __future__ import annotations

import pickle
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


def mixed_text(position: int, texts: Sequence[str]) -> bytes:
    """A column of texts, each as wide as it needs."""
    kinds, raw = [], []
    for text in texts:
        widest = max(map(ord, text), default=0)
        surrogates = any(0xD800 <= ord(char) < 0xE000 for char in text)
        kind = 0 if widest < 0x80 else 1 if widest < 0x100 else 2 if widest < 0x10000 and not surrogates else 4
        codec = {0: "ascii", 1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[kind]
        kinds.append(kind)
        raw.append(text.encode(codec, "surrogatepass" if kind == 4 else "strict"))
    return part(3, [position], bytes(kinds) + _ends(raw))


def pickled(positions: Sequence[int], blocks: Sequence[tuple[Sequence[Sequence[object]], Sequence[int]]]) -> bytes:
    """Columns pickled in blocks; each block with the indices of the samples that are wanted."""
    body = struct.pack("<I", len(blocks))
    for columns, chosen in blocks:
        blob = pickle.dumps([list(column) for column in columns])
        body += struct.pack("<QI", len(blob), len(chosen)) + struct.pack(f"<{len(chosen)}I", *chosen) + blob
    return part(4, positions, body)


def constant(positions: Sequence[int], content: Sequence[object], number: int = 1, known: bool = False) -> bytes:
    """The same values for every sample; `known`: they were in an earlier frame."""
    body = b"" if known else pickle.dumps([[value] for value in content])
    return part(5, positions, struct.pack("<Q", number) + body)


def run(
    frame: int,
    content: bytes,
    *,
    calls: int,
    function: int = 0,
    kind: int = wire.SAMPLE,
    names: Sequence[str] | None = None,
    counts: Sequence[int] = (),
    scores: Sequence[float] = (),
) -> bytes:
    """A message that has a worker run calls."""
    if names is None:
        body = struct.pack("<I", NO_NAMES)
    else:
        blob = b"".join(name.encode() + b"\0" for name in names)
        body = struct.pack("<I", len(blob)) + blob
    body += struct.pack(f"<{len(counts)}I", *counts) + struct.pack(f"<{len(scores)}d", *scores) + content
    return struct.pack("<QQHBBI", len(body), frame, function, kind, wire.RUN, calls) + body


def close() -> bytes:
    """The message that ends a worker."""
    return struct.pack("<QQHBBI", 0, 0, 0, 0, wire.CLOSE, 0)


def _ends(raw: Sequence[bytes]) -> bytes:
    ends, end = b"", 0
    for text in raw:
        end += len(text)
        ends += struct.pack("<Q", end)
    return ends + b"".join(raw)

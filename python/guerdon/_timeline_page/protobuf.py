"""Protobuf messages, many at a time: the same field of a million packets is read in one go.

For files that the engine wrote itself: what is no message of its raises an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Bytes", "Ints", "doubles", "fields", "texts", "top_level"]

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

_NUMBER, _FIXED, _TEXT = 0, 1, 2


def top_level(data: bytes) -> tuple[Ints, Ints]:
    """Where the messages of the file's field 1 begin and end.

    Raises:
        ValueError: There is something else in the file.
    """
    begins, ends = [], []
    at, size = 0, len(data)
    while at < size:
        if data[at] != 10:
            raise ValueError("it is no trace of the engine")
        length, shift = 0, 0
        while True:
            at += 1
            byte = data[at]
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        begins.append(at + 1)
        at += 1 + length
        ends.append(at)
    return np.array(begins, np.int64), np.array(ends, np.int64)


def fields(data: Bytes, begin: Ints, end: Ints) -> Iterator[tuple[Ints, Ints, Any, Ints]]:
    """The first field of each message, then the second of each that has one, and so on.

    Yields:
        The messages by their places, their field's number, its value as unsigned number (for what
        is no number: where it begins), and where the field ends.
    """
    which = np.flatnonzero(begin < end)
    at = begin[which]
    while len(which):
        tag, at = _numbers(data, at)
        kind = tag & np.uint64(7)
        value = np.zeros(len(at), np.uint64)
        numbers, fixed, texts_ = (np.flatnonzero(kind == np.uint64(each)) for each in (_NUMBER, _FIXED, _TEXT))
        if len(numbers) + len(fixed) + len(texts_) != len(at):
            raise ValueError("it is no trace of the engine")
        value[numbers], at[numbers] = _numbers(data, at[numbers])
        value[fixed] = at[fixed].astype(np.uint64)
        at[fixed] += 8
        length, start = _numbers(data, at[texts_])
        value[texts_] = start.astype(np.uint64)
        at[texts_] = start + length.astype(np.int64)
        yield which, (tag >> np.uint64(3)).astype(np.int64), value, at
        left = at < end[which]
        which, at = which[left], at[left]


def _numbers(data: Bytes, at: Ints) -> tuple[Any, Ints]:
    """The numbers that begin at these places, and where they end."""
    byte = data[at]
    value = (byte & 0x7F).astype(np.uint64)
    end = at + 1
    more = np.flatnonzero(byte & 0x80)
    shift = 7
    while len(more):
        byte = data[end[more]]
        value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        end[more] += 1
        more = more[(byte & 0x80) != 0]
        shift += 7
    return value, end


def doubles(data: Bytes, begin: Any) -> npt.NDArray[np.float64]:
    """The floating point numbers at these places."""
    places = begin.astype(np.int64)[:, None] + np.arange(8)
    return np.ascontiguousarray(data[places]).view("<f8").ravel()


def texts(data: bytes, begin: Any, end: Any) -> list[str]:
    """The texts between these places."""
    return [data[int(one) : int(other)].decode("utf-8", "replace") for one, other in zip(begin, end, strict=True)]

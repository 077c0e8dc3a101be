"""The values of a frame's calls; ``core/src/columns.rs`` documents their form.

- columns-1  A value whose unpickling runs code is unpickled for its own call alone, when that call
  is made: it fails, times out or ends the process in the name of this call, and of no other.
- What many samples share is decoded at once: texts, blocks of plain values, constants.
"""

from __future__ import annotations

import importlib
import pickle
import struct
from collections.abc import Iterable, Iterator
from typing import Any

from .timeout_signal import CallInterrupted

_ASCII, _LATIN1, _MIXED, _PICKLED, _CONSTANT, _PIECES, _MODULES = range(1, 8)
_CODECS = {
    0: ("ascii", "strict"),
    1: ("latin-1", "strict"),
    2: ("utf-16-le", "strict"),
    4: ("utf-32-le", "surrogatepass"),
}

UNREADABLE = "the arguments could not be unpickled in the worker: "

# The positions of some values of a sample, the sample's index in their pickle, and the pickle.
_Pickle = tuple[tuple[int, ...], int, memoryview]


class Constant:
    """A column with one value for every sample."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


class UnreadableValueError(Exception):
    """A value of a call could not be unpickled: another attempt would meet the same one.

    Attributes:
        cause: What that raised.
    """

    def __init__(self, cause: BaseException) -> None:
        self.cause = cause


class Values:
    """The values of some samples.

    Attributes:
        rows: The number of samples.
        columns: Per value of a call a list with one element a sample, or a `Constant`. Elements that are still
            pickled are None.
        pickles: By sample, the pickles of its values that are to be unpickled for its call alone.
    """

    __slots__ = ("columns", "pickles", "rows")

    def __init__(self, view: memoryview) -> None:
        self.pickles: dict[int, list[_Pickle]] = {}
        self.rows, self.columns = self._decode(view, 0)

    def load(self, row: int) -> None:
        """Unpickles what is still pickled of a sample.

        Raises:
            UnreadableValueError: That raised.
        """
        for positions, index, pickled in self.pickles.get(row, ()):
            try:
                block = pickle.loads(pickled)
            except CallInterrupted:
                raise
            except BaseException as error:  # unpickling runs user code
                raise UnreadableValueError(error) from None
            for position, values in zip(positions, block, strict=True):
                self.columns[position][row] = values[index]
        self.pickles.pop(row, None)

    def row(self, row: int) -> tuple[Any, ...]:
        """The arguments of a call on one sample.

        Raises:
            UnreadableValueError: They can't be unpickled.
        """
        self.load(row)
        return tuple([column.value if isinstance(column, Constant) else column[row] for column in self.columns])

    def lists(self, start: int, end: int) -> list[Any]:
        """The arguments of a call on samples that follow each other.

        Raises:
            UnreadableValueError: They can't be unpickled.
        """
        if self.pickles:
            for row in range(start, end):
                self.load(row)
        return [column.value if isinstance(column, Constant) else column[start:end] for column in self.columns]

    def _decode(self, view: memoryview, first: int) -> tuple[int, list[Any]]:
        """The number of samples and their columns; `first`: the samples before them."""
        rows, width, parts = struct.unpack_from("<IHH", view, 0)
        columns: list[Any] = [None] * width
        at = 8
        for _ in range(parts):
            tag, count, length = struct.unpack_from("<BxHxxxxQ", view, at)
            at += 16
            positions = struct.unpack_from(f"<{count}H", view, at)
            at += 2 * count
            body = view[at : at + length]
            at += length
            if tag in (_ASCII, _LATIN1):
                columns[positions[0]] = _plain_texts(body, rows, "ascii" if tag == _ASCII else "latin-1")
            elif tag == _MIXED:
                columns[positions[0]] = _mixed_texts(body, rows)
            elif tag == _PICKLED:
                for position, column in zip(positions, self._pickled(body, positions, first), strict=True):
                    columns[position] = column
            elif tag == _CONSTANT:
                for position, (value,) in zip(positions, pickle.loads(body), strict=True):
                    columns[position] = Constant(value)
            elif tag == _MODULES:
                continue
            elif tag == _PIECES:
                columns = self._joined(body, width, first)
            else:
                raise ValueError(f"unknown part {tag} in a frame")
        return rows, columns

    def _joined(self, body: memoryview, width: int, first: int) -> list[Any]:
        """Columns in several pieces; a constant is one in all of them."""
        columns: list[Any] = [None] * width
        for piece in _pieces(body):
            rows, of_piece = self._decode(piece, first)
            first += rows
            for position, column in enumerate(of_piece):
                if isinstance(column, Constant) or columns[position] is None:
                    columns[position] = column
                else:
                    columns[position].extend(column)
        return columns

    def _pickled(self, body: memoryview, positions: tuple[int, ...], first: int) -> list[list[Any]]:
        columns: list[list[Any]] = [[] for _ in positions]
        (blocks,) = struct.unpack_from("<I", body, 0)
        at, row = 4, first
        for _ in range(blocks):
            length, count = struct.unpack_from("<QI", body, at)
            at += 12
            chosen = struct.unpack_from(f"<{count}I", body, at)
            at += 4 * count
            pickled = body[at : at + length]
            at += length
            if count == 1:
                # Values whose unpickling runs code never share a block with another sample's.
                self.pickles.setdefault(row, []).append((positions, chosen[0], pickled))
                for column in columns:
                    column.append(None)
            else:
                for column, values in zip(columns, pickle.loads(pickled), strict=True):
                    column.extend([values[index] for index in chosen])
            row += count
        return columns


def modules_of(view: memoryview) -> set[str]:
    """The modules that unpickling values imports."""
    modules: set[str] = set()
    _, _, parts = struct.unpack_from("<IHH", view, 0)
    if not parts:
        return modules
    tag, length = struct.unpack_from("<BxxxxxxxQ", view, 8)
    body = view[24 : 24 + length]
    if tag == _MODULES:
        modules.update(str(body, "utf-8").split("\0")[:-1])
    elif tag == _PIECES:
        for piece in _pieces(body):
            modules |= modules_of(piece)
    return modules


def import_all(modules: Iterable[str]) -> None:
    """Imports modules. What one raises, it raises again where a value needs it."""
    for name in modules:
        try:
            importlib.import_module(name)
        except CallInterrupted:
            raise
        except BaseException:
            continue


def _pieces(body: memoryview) -> Iterator[memoryview]:
    (pieces,) = struct.unpack_from("<I", body, 0)
    at = 4
    for _ in range(pieces):
        (length,) = struct.unpack_from("<Q", body, at)
        at += 8
        yield body[at : at + length]
        at += length


def _plain_texts(body: memoryview, rows: int, codec: str) -> list[str]:
    ends = struct.unpack_from(f"<{rows}Q", body, 0)
    whole = str(body[8 * rows :], codec)  # decoded once for the frame; slices are cheap
    texts, start = [], 0
    for end in ends:
        texts.append(whole[start:end])
        start = end
    return texts


def _mixed_texts(body: memoryview, rows: int) -> list[str]:
    ends = struct.unpack_from(f"<{rows}Q", body, rows)
    data = body[9 * rows :]
    texts, start = [], 0
    for kind, end in zip(body[:rows], ends, strict=True):
        codec, errors = _CODECS[kind]
        texts.append(str(data[start:end], codec, errors))
        start = end
    return texts

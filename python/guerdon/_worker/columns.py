"""The values of a frame's calls; ``wire/src/columns.rs`` documents their form.

- columns-1  A value whose unpickling runs code is unpickled for its own call alone, when that call
  is made: its failure, timeout or crash is charged to this call and to no other.
- Values that many samples share are decoded at once: texts, blocks of plain values, constants.
"""

from __future__ import annotations

import importlib
import io
import pickle
import struct
from collections.abc import Iterable, Iterator
from types import FunctionType
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

# Values of some samples: the number of samples, of values a call, and tag, positions and body of
# each part.
_Piece = tuple[int, int, list[tuple[int, tuple[int, ...], Any]]]

# The positions of some values of a sample, the sample's index in their pickle, and the pickle.
_Pickle = tuple[tuple[int, ...], int, memoryview]


# Classes and functions that came by value, by their pickles. Each sample's pickle has them again,
# and making a class takes ten times as long as reading a value of it.
_known: dict[bytes, object] = {}
_MOST_KNOWN = 64


def _load(pickled: memoryview) -> Any:
    return _Unpickler(io.BytesIO(pickled)).load()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        return _load_nested if found is pickle.loads else found


def _load_nested(pickled: bytes) -> object:
    """`pickle.loads`, where a pickle holds another one: of a class or function, as a rule."""
    found = _known.get(pickled)
    if found is None:
        found = pickle.loads(pickled)
        if isinstance(found, (type, FunctionType)):  # other objects belong to one sample
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[pickled] = found
    return found


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


class KnownConstants:
    """The constants of the frames that came last, pickled or unpickled. The sender leaves out
    pickles that are here, because it keeps the same record (``process/src/in_flight/mod.rs``)."""

    MOST = 8

    def __init__(self) -> None:
        self._known: dict[int, _ConstantPickle] = {}  # the one noted last is the last

    def note(self, number: int, pickled: memoryview) -> _ConstantPickle:
        """The constants of this number, pickled unless they are here."""
        found = self._known.pop(number, None) or _ConstantPickle(bytes(pickled))
        self._known[number] = found
        if len(self._known) > self.MOST:
            del self._known[next(iter(self._known))]
        return found


class _ConstantPickle:
    __slots__ = ("_columns", "_pickled")

    def __init__(self, pickled: bytes) -> None:
        self._pickled = pickled
        self._columns: list[Constant] | None = None

    def columns(self) -> list[Constant]:
        if self._columns is None:
            self._columns = [Constant(value) for (value,) in pickle.loads(self._pickled)]
            self._pickled = b""
        return self._columns


class Values:
    """The values of some samples; `decode` comes before all else.

    Attributes:
        modules: What unpickling them imports.
        rows: The number of samples.
        columns: Per value of a call a list with one element a sample, or a `Constant`. Elements
            that are still pickled are None.
        pickles: By sample, the pickles of its values that are to be unpickled for its call alone.
    """

    __slots__ = ("_constants", "_pieces", "columns", "modules", "pickles", "rows")

    def __init__(self, view: memoryview, constants: KnownConstants) -> None:
        self.modules: set[str] = set()
        self.columns: list[Any] = []
        self.pickles: dict[int, list[_Pickle]] = {}
        self._constants = constants
        self._pieces: list[_Piece] = []
        self.rows = 0
        self._read(view)

    def decode(self) -> None:
        """Makes the columns, without the values that are unpickled for one call alone.

        Raises:
            Exception: What unpickling a constant raised.
        """
        first = 0
        for piece in self._pieces:
            columns = self._decode(piece, first)
            first += piece[0]
            if not self.columns:
                self.columns = columns
                continue
            for position, column in enumerate(columns):
                if isinstance(column, Constant):  # one in all pieces
                    self.columns[position] = column
                else:
                    self.columns[position].extend(column)

    def load(self, row: int) -> None:
        """Unpickles the pickled values of a sample.

        Raises:
            UnreadableValueError: That raised.
        """
        for positions, index, pickled in self.pickles.get(row, ()):
            try:
                block = _load(pickled)
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

    def _read(self, view: memoryview) -> None:
        rows, width, count = struct.unpack_from("<IHH", view, 0)
        parts: list[tuple[int, tuple[int, ...], Any]] = []
        at = 8
        for _ in range(count):
            tag, places, length = struct.unpack_from("<BxHxxxxQ", view, at)
            at += 16
            positions = struct.unpack_from(f"<{places}H", view, at)
            at += 2 * places
            body: Any = view[at : at + length]
            at += length
            if tag == _PIECES:  # the only part
                for piece in _pieces(body):
                    self._read(piece)
                return
            if tag == _MODULES:
                self.modules.update(str(body, "utf-8").split("\0")[:-1])
                continue
            if tag == _CONSTANT:
                (number,) = struct.unpack_from("<Q", body, 0)
                body = self._constants.note(number, body[8:])
            parts.append((tag, positions, body))
        self._pieces.append((rows, width, parts))
        self.rows += rows

    def _decode(self, piece: _Piece, first: int) -> list[Any]:
        """The columns of a piece; `first`: the samples before it."""
        rows, width, parts = piece
        columns: list[Any] = [None] * width
        for tag, positions, body in parts:
            if tag in (_ASCII, _LATIN1):
                columns[positions[0]] = _plain_texts(body, rows, "ascii" if tag == _ASCII else "latin-1")
            elif tag == _MIXED:
                columns[positions[0]] = _mixed_texts(body, rows)
            elif tag in (_PICKLED, _CONSTANT):
                found = body.columns() if tag == _CONSTANT else self._pickled(body, positions, first)
                for position, column in zip(positions, found, strict=True):
                    columns[position] = column
            else:
                raise ValueError(f"unknown part {tag} in a frame")
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


def import_all(modules: Iterable[str]) -> None:
    """Imports modules. A module that fails to import fails again where a value needs it."""
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

"""Where the result rows go: JSONL or Parquet, by the name of the file; stdout is JSONL.

- O-1  A row is ``{"index", "rewards": {name: value or null}, "status": {name: "ok"}}``, with ``--keep`` also ``"row"``:
       the input line as it was, byte for byte where output and input are both JSONL.
- O-2  A reward is written with the fewest digits that give the same float32 again; NaN is null.
- O-3  What was written stays: each chunk is flushed, and `close` makes the file whole whatever happened before.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from guerdon.cli.exit_codes import UsageError
from guerdon.cli.input_rows import Parquet, Row, Source, import_parquet
from guerdon.status import Status

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from guerdon.results import Failure, RewardBatch

__all__ = ["FailureLog", "Output", "open_output", "refuse_overwriting"]

_LABELS = [status.label for status in Status]


class Output(Protocol):
    """Takes the results of one chunk after another."""

    def write(self, result: RewardBatch, rows: Sequence[Row], first: int, chosen: Sequence[int]) -> None:
        """Write the samples `chosen` of a chunk whose first row is row `first` of the data."""

    def close(self) -> None: ...


def refuse_overwriting(out: str | None, failures: str | None, data: str, rewards: str | None) -> None:
    """Refuses outputs that would destroy what is read, or each other; `rewards` is the file of the functions.

    Raises:
        UsageError: ``-o`` or ``--failures`` is the data, the rewards, or the other of the two.
    """
    taken = [(data, "is the input itself"), (rewards, "is the file of the reward functions")]
    for option, name in (("-o", out), ("--failures", failures)):
        if name is None or name == "-":
            continue
        for other, what in taken:
            if other is not None and _same_file(Path(name), Path(other)):
                raise UsageError(f"{option} {name!r} {what}: choose another file.")
        taken.append((name, f"is the file of {option} too"))


def _same_file(one: Path, other: Path) -> bool:
    if one.exists() and other.exists():
        return one.is_file() and one.samefile(other)  # two may share a device
    return one.resolve() == other.resolve()


def open_output(out: str | None, functions: Sequence[str], source: Source, *, keep: bool) -> Output:
    """The output named `out`; None and ``-`` are stdout.

    Raises:
        UsageError: It can't be written.
    """
    if out is None or out == "-":
        return JsonOutput(sys.stdout.buffer, functions, keep=keep)
    path = Path(out)
    try:
        stream = path.open("wb")
    except OSError as error:
        raise UsageError(f"-o {out!r} can't be written: {error.strerror}.") from None
    if path.suffix.lower() in (".parquet", ".pq"):
        return ParquetOutput(stream, functions, source, keep=keep)
    return JsonOutput(stream, functions, keep=keep)


class JsonOutput:
    """JSONL."""

    def __init__(self, stream: IO[bytes], functions: Sequence[str], *, keep: bool) -> None:
        self._stream = stream
        self._keep = keep
        # The parts of a line that are the same in all: '"name": ' for each function.
        self._names = [_encoded(name).decode() + ": " for name in functions]
        self._labels = [f'"{label}"' for label in _LABELS]

    def write(self, result: RewardBatch, rows: Sequence[Row], first: int, chosen: Sequence[int]) -> None:
        values, states = _shortest(result, "null"), result.status.reshape(len(result), -1).tolist()
        lines = []
        for sample in chosen:
            rewards = ", ".join(map(str.__add__, self._names, values[sample]))
            status = ", ".join(
                name + self._labels[state] for name, state in zip(self._names, states[sample], strict=True)
            )
            line = f'{{"index": {first + sample}, "rewards": {{{rewards}}}, "status": {{{status}}}'
            lines.append(line.encode())
            if self._keep:
                lines.append(b', "row": ' + _line_of(rows[sample]))
            lines.append(b"}\n")
        self._stream.write(b"".join(lines))
        self._stream.flush()

    def close(self) -> None:
        if self._stream is not sys.stdout.buffer:
            self._stream.close()


class ParquetOutput:
    """Parquet: ``rewards`` and ``status`` are structs; so is ``row`` if the input is Parquet, else it is the line."""

    def __init__(self, stream: IO[bytes], functions: Sequence[str], source: Source, *, keep: bool) -> None:
        parquet = import_parquet()
        import pyarrow

        self._arrow: Any = pyarrow
        self._functions = functions
        self._keep = keep
        self._struct = isinstance(source, Parquet)
        columns = [
            ("index", pyarrow.int64()),
            ("rewards", pyarrow.struct([(name, pyarrow.float32()) for name in functions])),
            ("status", pyarrow.struct([(name, pyarrow.string()) for name in functions])),
        ]
        if keep:
            row = pyarrow.struct(list(source.schema)) if isinstance(source, Parquet) else pyarrow.string()
            columns.append(("row", row))
        self._schema = pyarrow.schema(columns)
        self._stream = stream
        self._writer: Any = parquet.ParquetWriter(stream, self._schema)

    def write(self, result: RewardBatch, rows: Sequence[Row], first: int, chosen: Sequence[int]) -> None:
        rewards = result.rewards.reshape(len(result), -1).tolist()
        states = result.status.reshape(len(result), -1).tolist()
        table: dict[str, list[Any]] = {
            "index": [first + sample for sample in chosen],
            "rewards": [dict(zip(self._functions, map(_nullable, rewards[sample]), strict=True)) for sample in chosen],
            "status": [
                dict(zip(self._functions, map(_LABELS.__getitem__, states[sample]), strict=True)) for sample in chosen
            ],
        }
        if self._keep:
            table["row"] = [rows[i].fields if self._struct else _line_of(rows[i]).decode() for i in chosen]
        self._writer.write_table(self._arrow.table(table, schema=self._schema))

    def close(self) -> None:
        self._writer.close()
        self._stream.close()


class FailureLog:
    """``--failures FILE``: one JSON object for each failed cell, with reason and traceback."""

    def __init__(self, path: str) -> None:
        try:
            self._stream: IO[bytes] = Path(path).open("wb")  # noqa: SIM115 - `close` closes it
        except OSError as error:
            raise UsageError(f"--failures {path!r} can't be written: {error.strerror}.") from None

    def write(self, failures: Sequence[Failure], first: int) -> None:
        for failure in failures:
            line = {
                "index": first + failure.sample,
                "function": failure.function,
                "status": failure.status.label,
                "reason": failure.reason,
                "attempts": failure.attempts,
                "run_s": round(failure.run_s, 6),
                "traceback": failure.traceback,
            }
            self._stream.write(_encoded(line) + b"\n")
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()


def _line_of(row: Row) -> bytes:
    """The input row as JSON; its own line if it had one (O-1)."""
    return _encoded(row.fields) if row.line is None else row.line.encode()


def _encoded(value: object) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:  # a lone surrogate, which only an escape can carry
        return json.dumps(value, default=str).encode()


def _shortest(result: RewardBatch, missing: str) -> list[list[str]]:
    """Each sample's rewards as text (O-2)."""
    flat: NDArray[np.float32] = result.rewards.reshape(len(result), -1)
    return [[str(value) if value == value else missing for value in sample] for sample in flat]


def _nullable(value: float) -> float | None:
    return value if value == value else None

"""The result rows: JSONL, gzipped by the name of the file.

- A row is ``{"index", "rewards": {name: value or null}, "status": {name: "ok"}}``; ``--keep`` adds
  ``"row"``, the input line, byte for byte if that is JSONL; ``--extra`` adds ``"extra"``, the
  records by function.
- A reward is written with the fewest digits that give the same float32; NaN is null.
- Each chunk is flushed, and `close` completes the file whatever happened before.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from guerdon.profile.exit_codes import UsageError
from guerdon.profile.function_profile import plain
from guerdon.profile.input_rows import InputRow
from guerdon.results.status import Status

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from guerdon.results import Failure, RewardBatch

__all__ = ["FailureLog", "ResultWriter", "open_results", "refuse_overwriting"]

_JSON_LINES = (".jsonl", ".json")
_LABELS = [status.label for status in Status]


def refuse_overwriting(out: str | None, failures: str | None, data: str, rewards: str | None) -> None:
    """Refuse outputs that would overwrite an input or each other.

    Raises:
        UsageError: ``-o`` or ``--failures`` is the data, the rewards, or the other of the two.
    """
    taken = [(data, "is the input file"), (rewards, "is the file of the reward functions")]
    for option, name in (("-o", out), ("--failures", failures)):
        if name is None or name == "-":
            continue
        for other, what in taken:
            if other is not None and _same_file(Path(name), Path(other)):
                raise UsageError(f"{option} {name!r} {what}: choose another file.")
        taken.append((name, f"is the file of {option} too"))


def _same_file(one: Path, other: Path) -> bool:
    # Of `os.path`: a name that no file can have names no other file either.
    if os.path.exists(one) and os.path.exists(other):
        return one.is_file() and one.samefile(other)  # devices such as /dev/null may be shared
    return os.path.realpath(one) == os.path.realpath(other)


def open_results(out: str | None, functions: Sequence[str], *, keep: bool, extra: bool = False) -> ResultWriter:
    """The output named `out`; None and ``-`` are stdout.

    Raises:
        UsageError: It can't be written.
    """
    if out is None or out == "-":
        return ResultWriter(sys.stdout.buffer, functions, keep=keep, extra=extra)
    path = Path(out)
    _check_kind(path)
    try:
        # The writer closes it.
        stream = cast("IO[bytes]", gzip.open(path, "wb")) if path.suffix.lower() == ".gz" else path.open("wb")  # noqa: SIM115
    except OSError as error:
        raise UsageError(f"-o {out!r} can't be written: {error.strerror}.") from None
    return ResultWriter(stream, functions, keep=keep, extra=extra)


def _check_kind(path: Path) -> None:
    """Refuse a name that promises another format than its file would have."""
    suffix = path.suffix.lower()
    packed = Path(path.stem).suffix.lower() if suffix == ".gz" else None
    if suffix in _JSON_LINES or packed in ("", *_JSON_LINES):
        return
    if path.is_absolute() and path.parts[1] in ("dev", "proc"):  # /dev/stdout may be any file
        return
    if path.exists() and not path.is_file():  # a device or a pipe has any name
        return
    raise UsageError(
        f"-o {str(path)!r}: results are written as JSONL. Give a name that ends in .jsonl, .json or .jsonl.gz."
    )


class ResultWriter:
    """Writes the results of one chunk after another."""

    def __init__(self, stream: IO[bytes], functions: Sequence[str], *, keep: bool, extra: bool = False) -> None:
        self._stream = stream
        self._keep = keep
        self._extra = extra
        # '"name": ' for each function, the same in all lines.
        self._names = [_encoded(name).decode() + ": " for name in functions]
        self._labels = [f'"{label}"' for label in _LABELS]

    def write(self, result: RewardBatch, rows: Sequence[InputRow], first: int, chosen: Sequence[int]) -> None:
        """Write the samples `chosen` of a chunk whose first row is row `first` of the data."""
        values, states = _shortest_decimals(result, "null"), result.status.reshape(len(result), -1).tolist()
        extras = _extra_of(result) if self._extra else []
        lines = []
        for sample in chosen:
            rewards = ", ".join(map(str.__add__, self._names, values[sample]))
            status = ", ".join(
                name + self._labels[state] for name, state in zip(self._names, states[sample], strict=True)
            )
            line = f'{{"index": {first + sample}, "rewards": {{{rewards}}}, "status": {{{status}}}'
            lines.append(line.encode())
            if self._extra:
                lines.append(b', "extra": ' + _encoded(plain(extras[sample])))
            if self._keep:
                lines.append(b', "row": ' + _line_of(rows[sample]))
            lines.append(b"}\n")
        self._stream.write(b"".join(lines))
        self._stream.flush()

    def close(self) -> None:
        if self._stream is not sys.stdout.buffer:
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


def _extra_of(result: RewardBatch) -> list[dict[str, dict[str, Any]]]:
    """One dict a sample: by function, its records of that sample, by field; of dict results, of
    ``log_extra``, of code rewards and judges."""
    samples = len(result)
    found: list[dict[str, dict[str, Any]]] = [{} for _ in range(samples)]
    for name, recorded in zip(result.functions, result._recorded, strict=True):
        for column, values in recorded.extra:
            field = column.removeprefix(f"{name}/")
            if len(values) == 1:  # of a whole batch
                values = values * samples
            if len(values) != samples:
                continue  # no values of samples
            for sample, value in enumerate(values):
                if value is not None:
                    found[sample].setdefault(name, {})[field] = value
    return found


def _line_of(row: InputRow) -> bytes:
    """The input row as JSON; its own line if it has one."""
    return _encoded(row.fields) if row.line is None else row.line.encode()


def _encoded(value: object) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:  # a lone surrogate needs an escape
        return json.dumps(value, default=str).encode()


def _shortest_decimals(result: RewardBatch, missing: str) -> list[list[str]]:
    """Each sample's rewards as text."""
    flat: NDArray[np.float32] = result.rewards.reshape(len(result), -1)
    return [[str(value) if value == value else missing for value in sample] for sample in flat]

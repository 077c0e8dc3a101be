"""Rows, samples and scores of an audit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from guerdon.errors import DataError
from guerdon.results.status import Status

__all__ = ["Case", "Row", "Score", "checked_rows", "exception_of", "text_of"]

Row = Mapping[str, Any]

# A reason of rust/process/src/output_meter.rs; one of an exception begins with its type.
_FLOOD: Final = re.compile(r"printed \d+ bytes, more than its max_output of ")
# Added by `guerdon._worker.resource_limits` behind the message of the exception.
_NO_MEMORY: Final = re.compile(r" \(memory_limit of [^()]+\)$", re.MULTILINE)
# Words of the engine's reasons for values that are not rewards.
_NOT_FINITE: Final = ("nan is not a reward", "beyond float32")


@dataclass(frozen=True)
class Case:
    """One completion of a row, as text or conversation; `columns` replace those of the row."""

    row: int
    completion: Any
    columns: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Score:
    """Outcome of one sample: its reward as a trainer gets it (float32), or why there is none."""

    value: float | None
    status: Status
    reason: str = ""
    run_s: float = 0.0

    @property
    def ok(self) -> bool:
        """Returns whether there is a number."""
        return self.status is Status.OK

    @property
    def ran(self) -> bool:
        """Returns whether the function was asked at all."""
        return self.status not in (Status.CANCELLED, Status.SKIPPED)

    @property
    def shown(self) -> float | str | None:
        """For an example of a finding: the number, None for an abstention, else what happened."""
        if self.ok or self.status is Status.ABSTAINED:
            return self.value
        return f"{self.status.label}: {self.reason}" if self.reason else self.status.label

    @property
    def is_flood(self) -> bool:
        """Returns whether it printed more than it may."""
        return _FLOOD.match(self.reason) is not None

    @property
    def lacks_memory(self) -> bool:
        """Returns whether it got no memory: a MemoryError, or what the engine says of its limit."""
        return exception_of(self.reason) == "MemoryError" or _NO_MEMORY.search(self.reason) is not None

    @property
    def is_not_finite(self) -> bool:
        """Returns whether it returned a number that is not a reward."""
        return self.status is Status.ERROR and any(words in self.reason for words in _NOT_FINITE)

    def same(self, other: Score) -> bool:
        """Equal to the bit, or both without a number for the same status."""
        return self.status == other.status and (not self.ok or _bits(self.value) == _bits(other.value))


def text_of(completion: Any) -> str:
    """The text of a completion: itself, or what its last message says; that message where it has no
    content, as one with tool calls alone."""
    if isinstance(completion, str):
        return completion
    if isinstance(completion, (list, tuple)) and completion and isinstance(completion[-1], Mapping):
        content = completion[-1].get("content")
        return str(completion[-1] if content is None else content)
    return str(completion)


def _bits(value: float | None) -> str | None:
    """Tells 0.0 from -0.0, which compare equal."""
    return None if value is None else float(value).hex()


def exception_of(reason: str) -> str:
    """The name of the exception that a reason begins with."""
    found = re.match(r"[\w.]+", reason)
    return found[0].rpartition(".")[2] if found else ""


def checked_rows(rows: object) -> tuple[Row, ...]:
    """The rows, each a mapping of column names to values.

    Raises:
        DataError: They are something else, or there are none.
    """
    expected = "give a list of mappings, each with a prompt and the function's columns."
    if isinstance(rows, Mapping) or not isinstance(rows, Iterable):
        raise DataError(f"rows are {'one mapping' if isinstance(rows, Mapping) else type(rows).__name__}: {expected}")
    found = tuple(rows)
    if not found:
        raise DataError(f"an audit needs at least one row: {expected}")
    for place, row in enumerate(found):
        if not isinstance(row, Mapping):
            raise DataError(f"row {place} is of type {type(row).__name__}: {expected} Of a data frame, its records.")
        strange = next((name for name in row if not isinstance(name, str)), "")
        if strange != "":
            raise DataError(f"row {place} has a column named {strange!r}: names of columns are strings.")
    return found

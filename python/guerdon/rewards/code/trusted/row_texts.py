"""The parts of a row: its prelude, the name of the function that is tested, its cases or tests.

A missing value may be None, or pandas' substitute for it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from guerdon.errors import DataError
from guerdon.rewards.code.trusted.cases import BOM, Case, called_by, function_name, is_text, parse_cases
from guerdon.rewards.code.trusted.check_code import asked_of_program

__all__ = ["COMPLETION", "Columns"]

COMPLETION: Final = "completion"


@dataclass(frozen=True)
class Columns:
    """Names of the columns that a code reward takes; None where there is none.

    Its methods raise a `DataError` where a row is at fault.

    Attributes:
        row: Those that a function ``check=`` takes by name.
    """

    cases: str | None
    tests: str | None
    entry_point: str
    prelude: str | None
    row: tuple[str, ...] = ()

    def prelude_of(self, row: Mapping[str, Any]) -> str:
        """The code before the program; "" if there is none."""
        return "" if self.prelude is None else _text(self.prelude, row.get(self.prelude))

    def function_of(self, row: Mapping[str, Any]) -> str | None:
        """The function that is tested, if the row names it."""
        entry_point = self._entry_point(row)
        return function_name(entry_point) if entry_point else None

    def cases_of(self, row: Mapping[str, Any]) -> list[Case]:
        """Its cases, at least one."""
        assert self.cases is not None
        return parse_cases(row[self.cases], self._entry_point(row), column=self.cases)

    def tests_of(self, row: Mapping[str, Any]) -> list[str]:
        """Its tests, Python code."""
        assert self.tests is not None
        value = row[self.tests]
        if hasattr(value, "tolist"):
            value = value.tolist()
        texts = [value] if isinstance(value, str) and value.strip() else value
        # A list as JSON, as OpenCodeInstruct has it.
        if isinstance(value, str) and value.lstrip().startswith("["):
            with suppress(ValueError, RecursionError):
                found = json.loads(value)
                texts = found if found and all(isinstance(one, str) for one in found) else texts
        if isinstance(texts, (list, tuple)) and texts and all(isinstance(one, str) for one in texts):
            return [one.removeprefix(BOM) for one in texts]
        raise DataError(
            f"column {self.tests!r} holds no tests: Python code, or a list of texts with it, not {value!r:.80}"
        )

    def wanted(self, row: Mapping[str, Any]) -> Collection[str]:
        """The functions that the row asks a program for."""
        if self.cases is not None:
            return called_by(self.cases_of(row))
        function = self.function_of(row)
        if function or self.tests is None:
            return [function] if function else []
        return asked_of_program(self.tests_of(row))

    def _entry_point(self, row: Mapping[str, Any]) -> str | None:
        """The name of the function, also from LiveCodeBench's metadata."""
        text = _text(self.entry_point, row.get(self.entry_point)).strip()
        if not text.startswith("{"):
            return text or None
        try:
            name = json.loads(text).get("func_name")
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"column {self.entry_point!r}: {text[:80]!r} is no name of a function, nor JSON: {error}"
            ) from None
        if name is None or isinstance(name, str):
            return name
        raise DataError(
            f'column {self.entry_point!r}: "func_name" is a {type(name).__name__}, not the name of a function'
        )


def _text(column: str, value: object) -> str:
    """The text of a column; "" if there is none."""
    if isinstance(value, str):
        if "\0" in value:
            raise DataError(f"column {column!r} holds a null character, which no program can")
        if not is_text(value):
            raise DataError(f"column {column!r} holds half a surrogate pair, which no program can")
        return value.removeprefix(BOM)
    if value is None or (isinstance(value, float) and value != value) or type(value).__name__ == "NAType":
        return ""
    raise DataError(f"column {column!r}: a {type(value).__name__} is no text")

"""The programs and cases of samples as the engine passes them on to their judge: JSON.

- They are made once a batch, on the caller's thread; the samples of a group share the text of their
  cases.
- The fault of one sample is in its text, and its sandbox gets no request.
"""

from __future__ import annotations

import json
from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from guerdon._batch.columns import Single, plain_text
from guerdon._lanes.http.column_texts import JSON
from guerdon._lanes.http.template import MadeField
from guerdon.errors import DataError
from guerdon.rewards.code.child.decoding import decode
from guerdon.rewards.code.child.encoding import EncodingError, encode
from guerdon.rewards.code.trusted.cases import CallCase, Case, StdinCase, is_text
from guerdon.rewards.code.trusted.extract import Extract, extract_program
from guerdon.rewards.code.trusted.row_texts import Columns

__all__ = ["CaseTexts", "ProgramTexts", "cases_of"]


@dataclass(frozen=True)
class _RowTexts(MadeField):
    """Texts made of rows."""

    taken: Columns = field(kw_only=True)

    @property
    def optional(self) -> tuple[str, ...]:
        """Columns that it takes where they are there."""
        return (self.taken.entry_point,)

    def made(self, values: Mapping[str, Sequence[object] | Single], samples: int) -> tuple[str, list[object]]:
        """The text of each sample."""
        names = [name for name in (*self.columns, *self.optional) if name in values]
        # Texts by identity, while `values` keeps the objects: samples of a group share those.
        known: dict[tuple[object, ...], str] = {}
        texts: list[object] = []
        for row in zip(*(_each(values[name], samples) for name in names), strict=True):
            key = tuple(one if isinstance(one, str) else id(one) for one in row)
            if key not in known:
                known[key] = self._dumped(dict(zip(names, row, strict=True)))
            texts.append(known[key])
        return JSON, texts

    def _dumped(self, row: dict[str, object]) -> str:
        try:
            return json.dumps(self._one(row))
        except Exception as error:  # a function of the user's own may raise anything
            return json.dumps({"error": f"{type(error).__name__}: {error}"[:1000]})

    def _one(self, row: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError


@dataclass(frozen=True)
class ProgramTexts(_RowTexts):
    """The programs of completions.

    Attributes:
        extract: As for `guerdon.code_reward`.
        tags: Of the language, in lower case.
    """

    extract: Extract = "last"
    tags: frozenset[str] = frozenset()

    @property
    def columns(self) -> list[str]:
        """All columns that it takes."""
        return [one for one in (self.column, self.taken.prelude, self.taken.cases) if one]

    def _one(self, row: dict[str, Any]) -> dict[str, Any]:
        program, why = extract_program(
            plain_text(row[self.column]), self.extract, self.tags, lambda: self.taken.wanted(row)
        )
        return {"fault": why} if program is None else {"source": program, "prelude": self.taken.prelude_of(row)}


@dataclass(frozen=True)
class CaseTexts(_RowTexts):
    """The cases of samples.

    Attributes:
        python: Programs are Python, whose functions can be called.
    """

    python: bool = True

    def _one(self, row: dict[str, Any]) -> dict[str, Any]:
        cases = [self._case(case, place) for place, case in enumerate(self.taken.cases_of(row))]
        return {"cases": b2a_base64(encode(cases), newline=False).decode()}

    def _case(self, case: Case, place: int) -> tuple[object, ...]:
        if isinstance(case, StdinCase):
            if not is_text(case.stdin) or not is_text(case.stdout):
                raise DataError(f"case {place} holds half a surrogate pair, which can't be sent to a sandbox")
            return case.stdin, case.stdout
        if not self.python:
            raise DataError("cases that call functions are for Python")
        try:
            values = encode((case.args, case.kwargs, case.expected))
            repr((case.args, case.kwargs))  # as they are sent: an integer may have too many digits
        except (EncodingError, ValueError) as error:
            raise DataError(f"case {place} can't be sent to a program: {error}") from None
        return case.fn, values, b""


def cases_of(text: str) -> list[Case]:
    """The cases in such a text."""
    made: list[Case] = []
    for first, second, *call in decode(a2b_base64(text)):
        if call:
            args, kwargs, expected = decode(second)
            made.append(CallCase(first, args, expected, kwargs))
        else:
            made.append(StdinCase(first, second))
    return made


def _each(values: Sequence[object] | Single, samples: int) -> Sequence[object]:
    return [values.value] * samples if isinstance(values, Single) else values

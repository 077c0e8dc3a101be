"""The texts that a sandbox's requests are made of: a sample's program, and its cases.

- They are made once a batch, on the caller's thread; the samples of a group share the text of their
  cases.
- The fault of one sample is in its text: the engine answers for it, and asks nobody.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from guerdon._batch.columns import Single, plain_text
from guerdon._lanes.http.column_texts import JSON
from guerdon._lanes.http.template import MadeField
from guerdon.errors import DataError
from guerdon.rewards.code.child import child
from guerdon.rewards.code.child.decoding import decode
from guerdon.rewards.code.child.encoding import EncodingError, encode
from guerdon.rewards.code.remote import canonical, sandbox_calls
from guerdon.rewards.code.trusted.cases import CallCase, Case, StdinCase, is_text
from guerdon.rewards.code.trusted.extract import Extract, extract_program
from guerdon.rewards.code.trusted.row_texts import Columns

__all__ = ["CaseTexts", "ProgramTexts", "callers"]

_LONGEST_VALUE: Final = 1 << 28


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
        calls: For how long a value the functions of a program may be called; None: never.
    """

    extract: Extract = "last"
    tags: frozenset[str] = frozenset()
    calls: int | None = None

    @property
    def columns(self) -> list[str]:
        """All columns that it takes."""
        return [one for one in (self.column, self.taken.prelude, self.taken.cases) if one]

    def _one(self, row: dict[str, Any]) -> dict[str, Any]:
        program, why = extract_program(
            plain_text(row[self.column]), self.extract, self.tags, lambda: self.taken.wanted(row)
        )
        if program is None:
            return {"fault": why}
        before = self.taken.prelude_of(row)
        # A completion may go on in mid-line, as the body of a function that the prelude begins.
        between = "\n" if before and not before[-1].isspace() else ""
        made: dict[str, Any] = {"source": f"{before}{between}{program}"}
        if self.calls is not None:
            made["calls"] = f"answer_call({program!r}, {before!r}, {self.calls})\n"
        return made


@dataclass(frozen=True)
class CaseTexts(_RowTexts):
    """The cases of samples.

    Attributes:
        python: Programs are Python, whose functions can be called.
        numbers: Numbers are compared by size.
    """

    python: bool = True
    numbers: bool = False

    def _one(self, row: dict[str, Any]) -> dict[str, Any]:
        return {"cases": [self._case(case, place) for place, case in enumerate(self.taken.cases_of(row))]}

    def _case(self, case: Case, place: int) -> dict[str, Any]:
        if isinstance(case, StdinCase):
            if not is_text(case.stdin) or not is_text(case.stdout):
                raise DataError(f"case {place} holds half a surrogate pair, which can't be sent to a sandbox")
            return {"stdin": case.stdin, "expected": [case.stdout]}
        if not self.python:
            raise DataError("cases that call functions are for Python")
        return self._call(case, place)

    def _call(self, case: CallCase, place: int) -> dict[str, Any]:
        try:
            arguments = repr(decode(encode((case.args, case.kwargs))))
            canonical.canonical([case.args, case.kwargs], numbers=False, limit=_LONGEST_VALUE)
            expected = [canonical.canonical(one, numbers=self.numbers, limit=_LONGEST_VALUE) for one in case.expected]
        except (EncodingError, canonical.NotDataError, ValueError) as error:
            raise DataError(f"case {place} can't be sent to a program: {error}") from None
        call = {"fn": case.fn, "arguments": arguments, "numbers": self.numbers}
        return {"stdin": json.dumps(call), "expected": expected, "calls": True}


def _each(values: Sequence[object] | Single, samples: int) -> Sequence[object]:
    return [values.value] * samples if isinstance(values, Single) else values


@cache
def callers() -> str:
    """Returns the source above the line that calls a program's function: the beginning of a string
    of JSON."""
    shared: tuple[Any, ...] = (child._define, child._compiled, child._found, child._raised)
    constants = f"_FILE = {child._FILE!r}\nPRELUDE = {child.PRELUDE!r}\n_LONGEST_MESSAGE = {child._LONGEST_MESSAGE!r}\n"
    parts = [inspect.getsource(canonical), constants, *map(inspect.getsource, shared), inspect.getsource(sandbox_calls)]
    future = "from __future__ import annotations\n"
    return json.dumps(future + "\n".join(part.replace(future, "") for part in parts) + "\n\n")[:-1]

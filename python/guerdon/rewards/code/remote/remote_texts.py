"""The texts that a sandbox's requests are made of: a sample's program, and its cases.

- They are made once a batch, on the caller's thread; the samples of a group share the text of their
  cases.
- The fault of one sample is in its text: the engine answers for it, and asks nobody.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
from guerdon.rewards.code.trusted.cases import CallCase, Case, StdinCase, called_by, parse_cases
from guerdon.rewards.code.trusted.extract import Extract, extract_program
from guerdon.rewards.code.trusted.row_texts import entry_point_of, text_of

__all__ = ["CaseTexts", "ProgramTexts", "callers"]

_LONGEST_VALUE: Final = 1 << 28
_NO_TEXT: Final = "the program is no valid text: it holds half a surrogate pair"


@dataclass(frozen=True)
class ProgramTexts(MadeField):
    """The programs of completions.

    Attributes:
        prelude: The column with code before them.
        extract: As for `guerdon.code_reward`.
        tags: Of the language, in lower case.
        calls: For how long a value the functions of a program may be called; None: never.
        cases: The column with cases, which say what a program defines.
        entry_point: As for `CaseTexts`.
    """

    prelude: str | None = None
    cases: str = ""
    entry_point: str = ""
    extract: Extract = "last"
    tags: frozenset[str] = frozenset()
    calls: int | None = None

    @property
    def columns(self) -> list[str]:
        """All columns that it takes."""
        return [one for one in (self.column, self.prelude, self.cases) if one]

    @property
    def optional(self) -> tuple[str, ...]:
        """Columns that it takes where they are there."""
        return (self.entry_point,)

    def made(self, values: Mapping[str, Sequence[object] | Single], samples: int) -> tuple[str, list[object]]:
        """The text of each sample."""
        completions = _each(values[self.column], samples)
        preludes = [None] * samples if self.prelude is None else _each(values[self.prelude], samples)
        cases = _each(values[self.cases], samples)
        names = _each(values[self.entry_point], samples) if self.entry_point in values else [None] * samples
        rows = zip(completions, preludes, cases, names, strict=True)
        return JSON, [_dumped(self._one, *row) for row in rows]

    def _one(self, completion: Any, prelude: object, cases: object, entry_point: object) -> dict[str, Any]:
        def wanted() -> set[str]:
            name = entry_point_of(self.entry_point, entry_point)
            return called_by(parse_cases(cases, name, column=self.cases))

        program, why = extract_program(plain_text(completion), self.extract, self.tags, wanted)
        if program is None:
            return {"fault": why}
        before = text_of(self.prelude, prelude)
        if not _is_text(program):
            return {"fault": _NO_TEXT}
        # A completion may go on in mid-line, as the body of a function that the prelude begins.
        between = "\n" if before and not before[-1].isspace() else ""
        made: dict[str, Any] = {"source": f"{before}{between}{program}"}
        if self.calls is not None:
            made["calls"] = f"answer_call({program!r}, {before!r}, {self.calls})\n"
        return made


@dataclass(frozen=True)
class CaseTexts(MadeField):
    """The cases of samples.

    Attributes:
        entry_point: The column, if it is there, with the function of cases that name none.
        python: Programs are Python, whose functions can be called.
        numbers: Numbers are compared by size.
    """

    entry_point: str = ""
    python: bool = True
    numbers: bool = False

    @property
    def optional(self) -> tuple[str, ...]:
        """Columns that it takes where they are there."""
        return (self.entry_point,)

    def made(self, values: Mapping[str, Sequence[object] | Single], samples: int) -> tuple[str, list[object]]:
        """The text of each sample."""
        given = _each(values[self.column], samples)
        names = _each(values[self.entry_point], samples) if self.entry_point in values else [None] * samples
        # Texts by identity, while `given` keeps the values: those of a group are one object.
        known: dict[tuple[int, object], str] = {}
        texts: list[object] = []
        for value, name in zip(given, names, strict=True):
            key = id(value), name if isinstance(name, str) else id(name)
            text = known.get(key)
            if text is None:
                text = known[key] = _dumped(self._one, value, name)
            texts.append(text)
        return JSON, texts

    def _one(self, value: object, entry_point: object) -> dict[str, Any]:
        cases = parse_cases(value, entry_point_of(self.entry_point, entry_point), column=self.column)
        return {"cases": [self._case(case, place) for place, case in enumerate(cases)]}

    def _case(self, case: Case, place: int) -> dict[str, Any]:
        if isinstance(case, StdinCase):
            if not _is_text(case.stdin) or not _is_text(case.stdout):
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


def _dumped(make: Callable[..., dict[str, Any]], *values: object) -> str:
    try:
        return json.dumps(make(*values))
    except Exception as error:  # a function of the user's own may raise anything
        return json.dumps({"error": f"{type(error).__name__}: {error}"[:1000]})


def _each(values: Sequence[object] | Single, samples: int) -> Sequence[object]:
    return [values.value] * samples if isinstance(values, Single) else values


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


@cache
def callers() -> str:
    """Returns the source above the line that calls a program's function: the beginning of a string
    of JSON."""
    shared: tuple[Any, ...] = (child._define, child._compiled, child._found, child._raised)
    constants = f"_FILE = {child._FILE!r}\nPRELUDE = {child.PRELUDE!r}\n_LONGEST_MESSAGE = {child._LONGEST_MESSAGE!r}\n"
    parts = [inspect.getsource(canonical), constants, *map(inspect.getsource, shared), inspect.getsource(sandbox_calls)]
    future = "from __future__ import annotations\n"
    return json.dumps(future + "\n".join(part.replace(future, "") for part in parts) + "\n\n")[:-1]

"""`CodeScorer` judges completions in this process: the one of `judge`.

- A program that fails is 0.0 with a reason; what is no fault of it raises, and is NaN.
- Its settings, a `Judging`, pickle.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from guerdon._batch.columns import plain_text
from guerdon.errors import DataError
from guerdon.rewards.code.child.encoding import EncodingError
from guerdon.rewards.code.trusted.cases import StdinCase, called_by, function_name, parse_cases
from guerdon.rewards.code.trusted.check_code import asked_of_program
from guerdon.rewards.code.trusted.driver import Driver, JudgingRules, with_input
from guerdon.rewards.code.trusted.extract import Extract, extract_program
from guerdon.rewards.code.trusted.judge_state import EXTRACT, JudgeState
from guerdon.rewards.code.trusted.judgement import Judgement
from guerdon.rewards.code.trusted.row_texts import BOM, entry_point_of, text_of
from guerdon.rewards.code.zygote.fence import FenceSpec
from guerdon.rewards.code.zygote.level import Level
from guerdon.rewards.code.zygote.toolchain import check_toolchain
from guerdon.rewards.code.zygote.zygote_process import ProgramZygote, ZygoteLostError

__all__ = ["COMPLETION", "CodeScorer", "Columns", "Judging"]

COMPLETION: Final = "completion"
# A lost zygote is started again within a call where both fit in what the call has beside its own
# time; else the call fails, and what retries calls may try again.
_EARLY_S: Final = 5.0
_AGAIN_S: Final = 20.0


@dataclass(frozen=True)
class Columns:
    """Names of the columns that a code reward takes; None for what it does without.

    Attributes:
        row: Those that a function ``check=`` takes by name.
    """

    cases: str | None
    tests: str | None
    entry_point: str | None
    prelude: str | None
    row: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judging:
    """Settings that turn a completion into a judgement; picklable.

    Attributes:
        extract: Where the program is in a completion.
        tags: Of its language.
        check: A function that judges instead of cases.
        level: What held where this was made.
        host: Where that was.
    """

    columns: Columns
    rules: JudgingRules
    fence: FenceSpec
    extract: Extract
    tags: frozenset[str]
    check: Callable[..., Any] | None
    level: Level
    host: str = field(default_factory=socket.gethostname)

    @property
    def has_functions(self) -> bool:
        """Says whether functions of the user's judge."""
        return any(map(callable, (self.check, self.extract, self.rules.compare)))


class CodeScorer:
    """Scores completions; its zygote starts with `setup`, or with the first of them."""

    def __init__(self, judging: Judging, state: JudgeState | None = None) -> None:
        self._judging = judging
        self._state = state or JudgeState()
        self._zygote: ProgramZygote | None = None
        self._checked = False  # whether its language works here

    def setup(self) -> None:
        """Start the zygote.

        Raises:
            RegistrationError: This machine is another, and lacks what ``"strict"`` needs; or a
                compiler is not there, or does not work.
            ZygoteLostError: It can't be started.
        """
        zygote = self._made()
        zygote.start()
        self._check(zygote)

    def _start(self, zygote: ProgramZygote) -> None:
        with self._state.waiting():
            zygote.start(_AGAIN_S)
            self._check(zygote)

    def _check(self, zygote: ProgramZygote) -> None:
        """Once, with the first start."""
        if not self._checked:
            check_toolchain(zygote, self._judging.rules.language)
            self._checked = True

    def _made(self) -> ProgramZygote:
        if self._zygote is None:
            judging = self._judging
            judging.rules.language.check()
            level = judging.level
            if judging.host != socket.gethostname():
                from guerdon.rewards.code.zygote.isolation import probe

                level = probe(judging.fence)
            self._zygote = ProgramZygote(judging.fence, [name for name, _ in level.held])
        return self._zygote

    def close(self) -> None:
        """End it."""
        if self._zygote is not None:
            self._zygote.close()

    def judge(self, row: Mapping[str, Any]) -> Judgement:
        """The judgement on one completion.

        Args:
            row: ``completion`` and the columns.

        Raises:
            DataError: The row's cases or tests are at fault.
            ZygoteLostError: Programs can't be run.
        """
        judging = self._judging
        with self._state.during(EXTRACT):
            program, why = extract_program(
                plain_text(row[COMPLETION]), judging.extract, judging.tags, lambda: self._wanted(row)
            )
        if program is None:
            return Judgement(0.0, reason=why)
        try:
            program.encode("utf-8")
        except UnicodeEncodeError:
            return Judgement(0.0, reason="the program is no valid text: it holds half a surrogate pair")
        began = time.monotonic()
        zygote = self._made()
        try:
            self._start(zygote)
            return self._judgement(program, row)
        except ZygoteLostError:
            if time.monotonic() - began > _EARLY_S:
                raise
            self._start(zygote)  # a new one; what happens twice is not by chance
            return self._judgement(program, row)

    def compares_reference(self, row: Mapping[str, Any], place: int) -> bool:
        """Says whether a function ``compare=`` gives an answer for what this case expects.

        Raises:
            Exception: What it raises.
        """
        columns = self._judging.columns
        assert columns.cases is not None
        entry_point = entry_point_of(columns.entry_point, _given(row, columns.entry_point))
        case = parse_cases(row[columns.cases], entry_point, column=columns.cases)[place]
        expected = case.stdout if isinstance(case, StdinCase) else case.expected[0]
        if expected not in ("", None):  # else there is no reference to tell
            compare = with_input(self._judging.rules, case)
            assert callable(compare)
            compare(expected, expected)
        return True

    def _wanted(self, row: Mapping[str, Any]) -> Collection[str]:
        """The functions that the row asks a program for.

        Raises:
            DataError: The row's cases or tests are at fault.
        """
        columns = self._judging.columns
        entry_point = entry_point_of(columns.entry_point, _given(row, columns.entry_point))
        if columns.cases is not None:
            return called_by(parse_cases(row[columns.cases], entry_point, column=columns.cases))
        if entry_point or columns.tests is None:
            return [function_name(entry_point)] if entry_point else []
        tests = _tests(row, columns.tests)
        return asked_of_program([tests] if isinstance(tests, str) else tests)

    def _judgement(self, program: str, row: Mapping[str, Any]) -> Judgement:
        assert self._zygote is not None
        driver = Driver(self._zygote, self._judging.rules, self._state)
        found = self._judged_by(driver, program, row)
        if driver.starved:  # once more: it was not its own fault
            found = self._judged_by(driver, program, row)
        return found

    def _judged_by(self, driver: Driver, program: str, row: Mapping[str, Any]) -> Judgement:
        judging, columns = self._judging, self._judging.columns
        prelude = text_of(columns.prelude, _given(row, columns.prelude))
        entry_point = entry_point_of(columns.entry_point, _given(row, columns.entry_point))
        try:
            if judging.check is not None:
                given = {name: row[name] for name in columns.row if name in row}
                return driver.judge_by(
                    judging.check, program, prelude, function_name(entry_point) if entry_point else "", given
                )
            if columns.tests is not None:
                name = function_name(entry_point) if entry_point else None
                return driver.judge_tests(program, prelude, _tests(row, columns.tests), name)
            assert columns.cases is not None
            return driver.judge_cases(
                program, prelude, parse_cases(row[columns.cases], entry_point, column=columns.cases)
            )
        except EncodingError as error:
            raise DataError(f"a case can't be sent to a program: {error}") from None


def _given(row: Mapping[str, Any], column: str | None) -> object:
    return None if column is None else row.get(column)


def _tests(row: Mapping[str, Any], column: str) -> str | list[str]:
    value = row[column]
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, str) and value.strip():
        return value.removeprefix(BOM)
    if isinstance(value, (list, tuple)) and value and all(isinstance(one, str) for one in value):
        return [one.removeprefix(BOM) for one in value]
    raise DataError(f"column {column!r} holds no tests: Python code, or a list of texts with it, not {value!r:.80}")

"""`CodeScorer` judges completions in this process: the one of `judge`.

- A program that fails is 0.0 with a reason; a fault elsewhere raises, and is NaN.
- Its settings, a `Judging`, pickle.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

from guerdon._batch.columns import plain_text
from guerdon.errors import DataError
from guerdon.rewards.code.child.encoding import EncodingError
from guerdon.rewards.code.trusted.case_judge import CaseJudge, JudgingRules, compare_reference, with_input
from guerdon.rewards.code.trusted.cases import StdinCase
from guerdon.rewards.code.trusted.driver import Driver
from guerdon.rewards.code.trusted.extract import Extract, extract_program
from guerdon.rewards.code.trusted.judge_state import EXTRACT, JudgeState
from guerdon.rewards.code.trusted.judgement import Judgement
from guerdon.rewards.code.trusted.row_texts import COMPLETION, Columns
from guerdon.rewards.code.trusted.sandbox_output import CaseRun, fault_of_run
from guerdon.rewards.code.trusted.warn_once import warn_of_module
from guerdon.rewards.code.zygote.command_run import check_toolchain
from guerdon.rewards.code.zygote.fence import FenceSpec
from guerdon.rewards.code.zygote.level import Level
from guerdon.rewards.code.zygote.zygote_process import AGAIN_S, START_S, ProgramZygote, ZygoteLostError

__all__ = ["CodeScorer", "Judging"]

# A zygote that is lost sooner is started again within the call, which has time for that; a later
# loss fails the call, which may be retried.
_EARLY_S: Final = 5.0


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
        self._start(START_S)

    def _start(self, seconds: float) -> None:
        with self._state.waiting():
            if self._zygote is None:
                self._zygote = self._made()
            self._zygote.start(seconds)
            if not self._checked:
                check_toolchain(self._zygote, self._judging.rules.language)
                self._checked = True

    def _made(self) -> ProgramZygote:
        judging = self._judging
        judging.rules.language.check()
        level = judging.level
        if judging.host != socket.gethostname():
            from guerdon.rewards.code.zygote.fence_probe import probe

            level = probe(judging.fence)
        return ProgramZygote(judging.fence, [name for name, _ in level.held])

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
                plain_text(row[COMPLETION]), judging.extract, judging.tags, lambda: judging.columns.wanted(row)
            )
        if program is None:
            return Judgement(0.0, reason=why)
        began = time.monotonic()
        try:
            self._start(AGAIN_S)
            return self._judgement(program, row)
        except ZygoteLostError:
            if time.monotonic() - began > _EARLY_S:
                raise
            self._start(AGAIN_S)  # a new one; the same fault twice is not chance
            return self._judgement(program, row)

    def compare_reference(self, row: Mapping[str, Any], place: int) -> None:
        """Compares the expected value of a case with itself, by a function ``compare=``."""
        case = self._judging.columns.cases_of(row)[place]
        expected = case.stdout if isinstance(case, StdinCase) else case.expected[0]
        compare_reference(with_input(self._judging.rules, case), expected)

    def fault_of(self, run: CaseRun) -> str:
        """The fault of a run in a sandbox elsewhere; "" for one that passes its case."""
        return fault_of_run(CaseJudge(self._judging.rules, self._state), run)

    def _judgement(self, program: str, row: Mapping[str, Any]) -> Judgement:
        assert self._zygote is not None
        judging = self._judging
        prelude = judging.columns.prelude_of(row)
        for again in (False, True):
            with closing(Driver(self._zygote, judging.rules, self._state, program, prelude)) as driver:
                found = self._judged_by(driver, row)
            if again or not driver.starved:  # once more where it was not its own fault
                break
        warn_of_module(found.reason)
        return found

    def _judged_by(self, driver: Driver, row: Mapping[str, Any]) -> Judgement:
        judging, columns = self._judging, self._judging.columns
        try:
            if judging.check is not None:
                given = {name: row[name] for name in columns.row if name in row}
                return driver.judge_by(judging.check, columns.function_of(row) or "", given)
            if columns.tests is not None:
                return driver.judge_tests(columns.tests_of(row), columns.function_of(row))
            return driver.judge_cases(columns.cases_of(row))
        except EncodingError as error:
            raise DataError(f"a case can't be sent to a program: {error}") from None

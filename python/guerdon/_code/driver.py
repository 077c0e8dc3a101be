"""Judging a program: the trusted side, in a worker of the process lane or in the caller's process.

- The time for all cases starts with the first; a case that takes it all leaves the others unpassed.
- Where the share of passed cases counts, the time that is left is divided among the cases that are
  left, so that one that hangs takes no other's; else the first failed case ends it.
- Raises only for what is no fault of the program.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from guerdon._code.calls import CallAnswer, ProgramCalls
from guerdon._code.cases import Case, StdinCase
from guerdon._code.check import run_function, run_tests
from guerdon._code.command_run import CommandProgram
from guerdon._code.compare import Compare, outputs_match, shown, values_match
from guerdon._code.judgement import Judgement, Score, of_cases
from guerdon._code.languages import LANGUAGES, PYTHON, Language
from guerdon._code.script_run import ScriptRun, run_script
from guerdon._code.zygote_process import ProgramZygote
from guerdon.errors import DataError

__all__ = ["Driver", "JudgingRules"]

Run = Callable[[bytes, float], ScriptRun]
"""One run of a program: what it reads, and until when."""
_TIME_IS_UP = "the time for all cases was up"


@dataclass(frozen=True)
class JudgingRules:
    """How programs are judged.

    Attributes:
        timeout: Seconds for all cases of a program.
        case_timeout: Seconds for one; None: what is left.
        compare: When an output is the expected one.
        score: What counts.
        max_output: Bytes that a program may print, or return, in a case.
        language: Of the programs.
    """

    timeout: float
    case_timeout: float | None
    compare: Compare
    score: Score
    max_output: int
    language: Language = LANGUAGES[PYTHON]


class Driver:
    """Judges one program after the other, each in processes from `zygote`."""

    def __init__(self, zygote: ProgramZygote, rules: JudgingRules) -> None:
        self._zygote = zygote
        self._rules = rules

    def judge_cases(self, program: str, prelude: str, cases: list[Case]) -> Judgement:
        """Run the cases.

        Raises:
            ZygoteLostError, EncodingError: No fault of the program.
        """
        rules = self._rules
        if not rules.language.command:
            run = self._script(program, prelude)
        else:
            if not all(isinstance(case, StdinCase) for case in cases):
                raise DataError(f"cases that call functions are for Python, not for {rules.language.name}")
            other = CommandProgram(self._zygote, rules.language, f"{prelude}{program}", rules.max_output)
            if fault := other.compile():
                return Judgement(0.0, 0, len(cases), fault)
            run = other.run
        faults: list[str] = []
        deadline = time.monotonic() + rules.timeout
        calls = ProgramCalls(self._zygote, program, prelude, rules.max_output)
        with contextlib.closing(calls):
            for place, case in enumerate(cases):
                fault = self._case(run, calls, case, self._until(deadline, len(cases) - place))
                faults.append(fault)
                if fault and rules.score == "all":
                    break
        return of_cases(faults, len(cases), rules.score)

    def judge_tests(self, program: str, prelude: str, tests: str | list[str], entry_point: str | None) -> Judgement:
        """Run test code against the program.

        Raises:
            DataError, ZygoteLostError: No fault of the program.
        """
        with self._calls(program, prelude) as call:
            faults = run_tests(tests, call, entry_point, prelude)
        return of_cases(faults, len(faults), self._rules.score)

    def judge_by(
        self, check: Callable[..., Any], program: str, prelude: str, name: str, row: dict[str, Any]
    ) -> Judgement:
        """Have a function of the user's own judge it.

        Raises:
            DataError, ZygoteLostError: No fault of the program.
        """
        with self._calls(program, prelude) as call:
            found = run_function(check, call, name, row)
        if isinstance(found, str):
            return Judgement(0.0, 0, 1, found)
        score = found if self._rules.score == "share" else float(found == 1.0)
        return Judgement(score, int(found == 1.0), 1, "" if found == 1.0 else f"check gave {found:g}")

    @contextlib.contextmanager
    def _calls(self, program: str, prelude: str) -> Any:
        """Calls of the program's functions, within the time for all of them."""
        deadline = time.monotonic() + self._rules.timeout
        with contextlib.closing(ProgramCalls(self._zygote, program, prelude, self._rules.max_output)) as calls:

            def call(name: str, args: list[Any], kwargs: dict[str, Any]) -> CallAnswer:
                if time.monotonic() >= deadline:
                    return CallAnswer(None, _TIME_IS_UP)
                return calls.call(name, args, kwargs, self._until(deadline, 1))

            yield call

    def _script(self, program: str, prelude: str) -> Run:
        request = {"source": program, "prelude": prelude}
        return lambda stdin, deadline: run_script(self._zygote, request, stdin, deadline, self._rules.max_output)

    def _until(self, deadline: float, cases_left: int) -> float:
        now = time.monotonic()
        rules = self._rules
        if rules.case_timeout is not None:
            return min(deadline, now + rules.case_timeout)
        return deadline if rules.score == "all" else now + (deadline - now) / cases_left

    def _case(self, run: Run, calls: ProgramCalls, case: Case, deadline: float) -> str:
        """Why the case is not passed; "" if it is."""
        rules = self._rules
        if time.monotonic() >= deadline:
            return _TIME_IS_UP
        if isinstance(case, StdinCase):
            ended = run(case.stdin.encode("utf-8", "surrogatepass"), deadline)
            if ended.fault:
                return ended.fault
            printed = ended.stdout.decode("utf-8", "replace")
            if _passed(outputs_match, case.stdout, printed, rules.compare):
                return ""
            return f"it printed {shown(printed)}, expected {shown(case.stdout)}"
        answer = calls.call(case.fn, case.args, case.kwargs, deadline)
        if answer.fault:
            return answer.fault
        if any(_passed(values_match, expected, answer.value, rules.compare) for expected in case.expected):
            return ""
        return f"it returned {shown(answer.value)}, expected {shown(case.expected[0])}"


def _passed(match: Callable[[Any, Any, Compare], bool], expected: object, given: object, rule: Compare) -> bool:
    """Whether they match; not, where a function of the user's raises on what a program gave.

    Raises:
        DataError: It raises on the expected value itself.
    """
    try:
        return match(expected, given, rule)
    except Exception as error:
        if not callable(rule):
            raise
        try:
            rule(expected, expected)
        except Exception:
            raise DataError(f"compare raised {type(error).__name__}: {str(error)[:300]}") from error
        return False

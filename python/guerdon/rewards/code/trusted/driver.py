"""Judging a program: the trusted side, in a worker of the process lane or in the caller's process.

- If the share of passed cases counts, a case that hangs takes no other's time (`case_time`); else
  the first failed case ends it.
- Raises only for faults that are not the program's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from guerdon.errors import DataError
from guerdon.rewards.code.trusted.calls import CallAnswer, ProgramCalls
from guerdon.rewards.code.trusted.case_judge import CaseJudge, JudgingRules, expects_list
from guerdon.rewards.code.trusted.case_time import ProgramTime
from guerdon.rewards.code.trusted.cases import Case, StdinCase
from guerdon.rewards.code.trusted.check import run_function, run_tests
from guerdon.rewards.code.trusted.judge_state import TESTS, JudgeState
from guerdon.rewards.code.trusted.judgement import Judgement, of_cases
from guerdon.rewards.code.zygote.command_run import CommandProgram
from guerdon.rewards.code.zygote.deadline import Deadline
from guerdon.rewards.code.zygote.script_run import STDIN, ScriptRun, run_script
from guerdon.rewards.code.zygote.zygote_process import ProgramZygote

__all__ = ["Driver"]

Run = Callable[[bytes, Deadline], ScriptRun]
"""One run of a program: what it reads, and until when."""


class Driver:
    """Judges a program, in processes from `zygote`; `close` ends them."""

    def __init__(
        self, zygote: ProgramZygote, rules: JudgingRules, state: JudgeState, program: str, prelude: str
    ) -> None:
        self._zygote = zygote
        self._rules = rules
        self._state = state
        self._judge = CaseJudge(rules, state)
        self._program = program
        self._prelude = prelude
        self._time = ProgramTime(rules.timeout, rules.case_timeout, divided=rules.score == "share")
        self._calls = ProgramCalls(zygote, program, prelude, rules.max_output, state, self._time)
        self._starved = False

    @property
    def starved(self) -> bool:
        """Says whether it was ended as time was up, of which others had the most."""
        return self._starved or self._calls.starved

    def close(self) -> None:
        """End its process, if one runs."""
        self._calls.close()

    def judge_cases(self, cases: list[Case]) -> Judgement:
        """Run the cases."""
        run = self._script
        if self._rules.language.command:
            if not all(isinstance(case, StdinCase) for case in cases):
                raise DataError(f"cases that call functions are for Python, not for {self._rules.language.name}")
            source = f"{self._prelude}{self._program}"
            compiled = CommandProgram(self._zygote, self._rules.language, source, self._rules.max_output)
            with self._state.waiting():
                fault = compiled.compile()
            if fault:
                return Judgement(0.0, 0, len(cases), fault)
            run = compiled.run
        faults: list[str] = []
        for place, case in enumerate(cases):
            self._state.case(place, place - sum(map(bool, faults)), len(cases))
            self._time.begin(len(cases) - place)
            faults.append(self._case(run, case))
            if faults[-1] and self._rules.score == "all":
                break
        return of_cases(faults, len(cases), self._rules.score)

    def judge_tests(self, texts: list[str], entry_point: str | None) -> Judgement:
        """Run test code against the program."""

        def begin(place: int, passed: int) -> None:
            self._time.begin(len(texts) - place)
            self._state.case(place, passed, len(texts))

        to_end = self._rules.score != "all"
        with self._state.during(TESTS):
            faults, left = run_tests(texts, self._call, entry_point, self._prelude, begin, to_end=to_end)
        return of_cases(faults, len(faults) + left, self._rules.score)

    def judge_by(self, check: Callable[..., Any], name: str, row: dict[str, Any]) -> Judgement:
        """Judges it by a user's function."""

        def call(*given: Any) -> CallAnswer:
            self._time.begin(1)  # each call is a separate case; their number is unknown
            return self._call(*given)

        with self._state.during(TESTS):
            found = run_function(check, call, name, row)
        if isinstance(found, str):
            return Judgement(0.0, 0, 1, found)
        score = found if self._rules.score == "share" else float(found == 1.0)
        return Judgement(score, int(found == 1.0), 1, "" if found == 1.0 else f"check gave {found:g}")

    def _call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> CallAnswer:
        """Calls a function of the program, within the time of the case that is judged."""
        if fault := self._time.fault():
            return CallAnswer(None, fault)
        return self._calls.call(name, args, kwargs)

    def _script(self, stdin: bytes, deadline: Deadline) -> ScriptRun:
        opens = STDIN in f"{self._prelude}{self._program}"
        request = {"source": self._program, "prelude": self._prelude, "opens_stdin": opens}
        return run_script(self._zygote, request, stdin, deadline, self._rules.max_output)

    def _case(self, run: Run, case: Case) -> str:
        """Returns why the case is not passed; "" if it is."""
        if fault := self._time.fault():
            return fault
        if isinstance(case, StdinCase):
            with self._state.waiting(), self._time.asked():
                ended = run(case.stdin.encode("utf-8", "surrogatepass"), self._time.to_answer())
            self._time.process_ended(ended.ended.seconds)
            self._starved |= ended.starved
            self._state.answered()
            if ended.fault:
                return ended.fault
            # No expected text equals an output that is not UTF-8.
            return self._judge.printed(case, ended.stdout.decode("utf-8", "surrogateescape"))
        answer = self._calls.call(case.fn, case.args, case.kwargs)
        if expects_list(case, answer.value):
            answer = self._calls.call("#list", [answer.value], {})
        return answer.fault or self._judge.returned(case, answer.value)

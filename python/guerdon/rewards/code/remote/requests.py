"""The requests that run one program in a sandbox elsewhere, one a case, and its judgement.

- The time for all cases counts their running time, by the sandbox's clock: waiting is not a
  program's fault.
- Expected values stay here, and so does the verdict.
"""

from __future__ import annotations

import inspect
import json
import secrets
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from guerdon.errors import DataError
from guerdon.rewards.code.child import child, encoding
from guerdon.rewards.code.remote import sandbox_calls
from guerdon.rewards.code.trusted.case_judge import ITERATORS, JudgingRules
from guerdon.rewards.code.trusted.cases import Case, StdinCase
from guerdon.rewards.code.trusted.judgement import Judgement, of_cases
from guerdon.rewards.code.trusted.sandbox_output import CaseRun, SandboxRun
from guerdon.rewards.code.zygote.command_run import COMPILE_S, compile_fault
from guerdon.rewards.code.zygote.script_run import exit_fault

__all__ = ["ProgramRequests"]

# Time that an interpreter may take to reach its program.
_ENTER_S: Final = 1.0


class ProgramRequests:
    """The requests of one program.

    Attributes:
        name: That of the present request, for reasons.
    """

    def __init__(
        self,
        program: str,
        prelude: str,
        cases: list[Case],
        rules: JudgingRules,
        request: Mapping[str, Any],
    ) -> None:
        self._program = program
        self._prelude = prelude
        self._cases = cases
        self._rules = rules
        self._request = request
        self._faults: list[str] = []
        self._used = 0.0
        self._judging = 0.0  # seconds that its outputs took
        self._at_first = self._seconds() or 0.0
        self._nonce = ""
        self._limit = 0.0  # of the present case, in seconds
        self._ended: Judgement | None = None

    @property
    def name(self) -> str:
        """The case of the present request, in words."""
        return f"case {len(self._faults)}"

    def next(self) -> str | Judgement:
        """The body of the next request, or of the one whose answer has not come; or the end."""
        while self._ended is None and len(self._faults) < len(self._cases):
            if self._rules.score == "all" and any(self._faults):
                break
            seconds = self._seconds()
            if seconds is not None:
                self._limit = seconds
                return self._body(self._cases[len(self._faults)])
            self._faults.append("the time for all cases was up")
        return self._ended or of_cases(self._faults, len(self._cases), self._rules.score)

    def take(self, run: SandboxRun, fault_of: Callable[[CaseRun, float], str]) -> None:
        """Takes the answer to the present request.

        Args:
            fault_of: `OutputJudge.fault_of`.

        Raises:
            DataError: The sandbox did not come to the program.
        """
        case = self._cases[len(self._faults)]
        calls = not isinstance(case, StdinCase)
        if calls and not self._came_to_program(run):
            how = "its time was up" if run.end == "time limit" else f"its end was {run.end!r}"
            if run.end == "exit":
                how = exit_fault(run.status, run.stderr) or "it printed nothing"
            raise DataError(f"{self.name}: the sandbox did not come to the program: {how}")
        # The sandbox's time to stop a program does not count.
        self._used += self._limit if run.end == "time limit" else min(run.seconds, self._limit)
        if run.end in ("not compiled", "compiler time limit"):
            fault = f"it does not compile: it did not end within {COMPILE_S:.2g} s"
            if run.end == "not compiled":
                fault = compile_fault(run.stderr, "the compiler failed")
            self._ended = Judgement(0.0, 0, len(self._cases), fault)
            return
        began = time.monotonic()
        self._faults.append(fault_of(CaseRun(case, run, self._nonce, self._limit), self._judging))
        self._judging += time.monotonic() - began

    def _seconds(self) -> float | None:
        """Time that the next case may run; None where none is left."""
        left = self._rules.timeout - self._used
        if left <= 0:
            return None
        if self._rules.case_timeout is not None:
            return min(self._rules.case_timeout, left)
        return left / max(1, len(self._cases) - len(self._faults)) if self._rules.score == "share" else left

    def _body(self, case: Case) -> str:
        # A completion may go on in mid-line, as the body of a function that the prelude begins.
        between = "\n" if self._prelude and not self._prelude[-1].isspace() else ""
        if isinstance(case, StdinCase):
            code, stdin = f"{self._prelude}{between}{self._program}", case.stdin
        else:
            self._nonce = secrets.token_hex(16)
            arguments = repr((case.args, case.kwargs))
            stdin = f"{self._nonce}\n{json.dumps({'fn': case.fn, 'arguments': arguments})}"
            code = f"{_callers()}answer_call({self._program!r}, {self._prelude!r}, {self._rules.max_output})\n"
        return json.dumps({"code": code, "stdin": stdin, "run_timeout": round(self._limit, 3), **self._request})

    def _came_to_program(self, run: SandboxRun) -> bool:
        """Returns whether a process that makes a call came to its program: an earlier end is not
        its fault.

        It says so, on its first line; but a sandbox drops all lines for a byte that is not UTF-8,
        and has only a complaint in their place: any output counts. One whose other cases left
        it no time for that has itself to blame.
        """
        shortened = self._limit < min(self._at_first, _ENTER_S)
        return run.end == "too long" or (run.end == "time limit" and shortened) or bool(run.stdout.strip())


@cache
def _callers() -> str:
    """The source above the line that calls a program's function."""
    shared: tuple[Any, ...] = (child._define, child._compiled, child._found, child._raised)
    names = {"_FILE": child._FILE, "PRELUDE": child.PRELUDE, "_LONGEST_MESSAGE": child._LONGEST_MESSAGE}
    constants = "".join(f"{name} = {value!r}\n" for name, value in {**names, "ITERATORS": ITERATORS}.items())
    parts = [inspect.getsource(encoding), constants, *map(inspect.getsource, shared), inspect.getsource(sandbox_calls)]
    future = "from __future__ import annotations\n"
    return future + "\n".join(part.replace(future, "") for part in parts) + "\n\n"

"""A thread that judges programs of one function whose sandbox is elsewhere, and makes their
requests for the http lane."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Any, Final

from guerdon._native import ProgramAnswer, ProgramQuestions
from guerdon.rewards.code.remote.requests import ProgramRequests
from guerdon.rewards.code.remote.texts import cases_of
from guerdon.rewards.code.trusted.compare import printable
from guerdon.rewards.code.trusted.judge import BESIDE_S, EndedError, Judge
from guerdon.rewards.code.trusted.judgement import Judgement
from guerdon.rewards.code.trusted.sandbox_output import CaseRun, SandboxRun
from guerdon.rewards.code.trusted.scorer import Judging
from guerdon.rewards.code.zygote.zygote_process import ZygoteLostError

__all__ = ["OutputJudge", "ProgramThread"]

# All outputs of a program have this time; one of ``max_output`` bytes takes a fraction of it.
_WITHIN_S: Final = BESIDE_S


class OutputJudge(Judge):
    """Judges runs in a separate process: a program's output may be made to cost much."""

    def fault_of(self, run: CaseRun, used: float) -> str:
        """The fault of a run that does not pass its case; "" for one that does.

        Args:
            used: Seconds that earlier outputs of its program took.

        Raises:
            ZygoteLostError: There is no process for it, which is not the program's fault.
        """
        how = f"did not end within {_WITHIN_S:g} s"
        for _ in range(2):
            try:
                self._start()
            except EndedError as error:
                raise ZygoteLostError(f"the process that judges could not be started: {error}") from None
            if used >= _WITHIN_S:
                break
            try:
                fault: str = self._ask("fault_of", _WITHIN_S - used, run)
                return fault
            except EndedError as error:
                if "within" in str(error):
                    break
                how = str(error)
        return f"judging {how} with what the program gave"


@dataclass(frozen=True)
class ProgramThread:
    """Makes the requests of programs, and judges them.

    Attributes:
        judging: The rules.
        request: The fields that all requests have.
    """

    judging: Judging
    request: dict[str, Any]

    def serve(self, questions: ProgramQuestions, name: str) -> threading.Thread:
        """Answers questions on a thread that ends with them.

        Args:
            name: The reward function's.
        """
        target, called = self._answer, f"guerdon judge of {name}"
        thread = threading.Thread(target=target, args=(questions,), name=called, daemon=True)
        thread.start()
        return thread

    def _answer(self, questions: ProgramQuestions) -> None:
        judge = OutputJudge(self.judging)  # its process starts with the first output
        try:
            while (question := questions.next()) is not None:
                *asked, answer = question
                try:
                    self._next(judge, answer, *asked)
                except Exception as error:  # a program must not end the thread
                    answer.fail(printable(str(error)) or type(error).__name__)
                del question, asked, answer  # while it waits for the next one
        finally:
            judge.close()

    def _next(
        self,
        judge: OutputJudge,
        answer: ProgramAnswer,
        values: str | None,
        program: ProgramRequests | None,
        run: tuple[str, int, float, str, str] | None,
    ) -> None:
        if values is not None:
            given = json.loads(values)
            completion, row = given["program"], given["cases"]
            if "fault" in completion:
                _judged(answer, Judgement(0.0, reason=completion["fault"]))
                return
            if error := completion.get("error") or row.get("error"):
                answer.fail(printable(error))
                return
            cases = cases_of(row["cases"])
            source = completion["source"], completion["prelude"]
            program = ProgramRequests(*source, cases, self.judging.rules, self.request)
        assert program is not None
        if run is not None:
            program.take(SandboxRun(*run), judge.fault_of)
        step = program.next()
        if isinstance(step, Judgement):
            _judged(answer, step)
        else:
            answer.send(program, step, program.name)


def _judged(answer: ProgramAnswer, found: Judgement) -> None:
    answer.judged(found.score, found.passed, found.cases, printable(found.reason))

"""The thread that judges the programs of one function whose sandbox is elsewhere, and makes their
requests for the http lane."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Any

from guerdon._native import ProgramQuestions
from guerdon.rewards.code.remote.outputs import OutputJudge, OutputJudging, SandboxRun
from guerdon.rewards.code.remote.requests import ProgramRequests
from guerdon.rewards.code.remote.texts import cases_of
from guerdon.rewards.code.trusted.compare import printable
from guerdon.rewards.code.trusted.judgement import Judgement

__all__ = ["ProgramThread"]


@dataclass(frozen=True)
class ProgramThread:
    """Makes the requests of programs, and judges them.

    Attributes:
        judging: The rules.
        request: The fields that all requests have.
    """

    judging: OutputJudging
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
                try:
                    self._next(questions, judge, *question)
                except Exception as error:  # a program must not end the thread
                    questions.fail(printable(str(error)) or type(error).__name__)
        finally:
            judge.close()

    def _next(
        self,
        questions: ProgramQuestions,
        judge: OutputJudge,
        values: str | None,
        program: ProgramRequests | None,
        run: tuple[str, int, float, str, str] | None,
    ) -> None:
        if values is not None:
            given = json.loads(values)
            completion, row = given["program"], given["cases"]
            if "fault" in completion:
                _judged(questions, Judgement(0.0, reason=completion["fault"]))
                return
            if error := completion.get("error") or row.get("error"):
                questions.fail(printable(error))
                return
            cases = cases_of(row["cases"])
            source = completion["source"], completion["prelude"]
            program = ProgramRequests(*source, cases, self.judging.rules, self.request, judge.fault_of)
        assert program is not None
        if run is not None:
            program.take(SandboxRun(*run))
        step = program.next()
        if isinstance(step, Judgement):
            _judged(questions, step)
        else:
            questions.send(program, step, program.name)


def _judged(questions: ProgramQuestions, found: Judgement) -> None:
    questions.judged(found.score, found.passed, found.cases, printable(found.reason))

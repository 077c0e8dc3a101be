"""`CodeScorer`, what a worker of the code lane runs, and `CodeReward`, the item of a dispatcher's
list.

- A program that fails is 0.0 with a reason; what is no fault of it raises, and is NaN.
- A `CodeReward` pickles as the arguments that it was made from; called as a trainer calls reward
  functions it scores in the caller's process, one program after the other.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from guerdon._batch.columns import COMPLETIONS, PROMPTS, Single, collect, plain_text
from guerdon._code.cases import called_by, function_name, parse_cases
from guerdon._code.check_code import asked_of_program
from guerdon._code.compare import printable
from guerdon._code.driver import Driver, JudgingRules
from guerdon._code.encoding import EncodingError
from guerdon._code.extract import Extract, extract_program
from guerdon._code.fence import FenceSpec
from guerdon._code.isolation import probe
from guerdon._code.judgement import Judgement
from guerdon._code.level import Level
from guerdon._code.row_texts import BOM, entry_point_of, text_of
from guerdon._code.toolchain import check_toolchain
from guerdon._code.zygote_process import ProgramZygote, ZygoteLostError
from guerdon._functions.spec import FunctionSpec
from guerdon._functions.stateful import StatefulReward
from guerdon.errors import DataError
from guerdon.rewards.plain_columns import given_column, missing_column

__all__ = ["CodeReward", "CodeScorer", "Columns"]

COMPLETION: Final = "completion"
# A lost zygote is started again within a call where both fit in what the call has beside its own
# time; else the call fails, and what retries calls may try again.
_EARLY_S: Final = 5.0
_AGAIN_S: Final = 20.0
_SINGULAR: Final = {COMPLETIONS: COMPLETION, PROMPTS: "prompt"}


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
    """How a completion becomes a judgement; picklable.

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


class CodeScorer(StatefulReward):
    """Scores completions; its zygote starts with `setup`, or with the first of them."""

    def __init__(self, judging: Judging) -> None:
        self._judging = judging
        self._zygote: ProgramZygote | None = None
        self._checked = False  # whether its language works here

    def __getstate__(self) -> dict[str, Any]:
        return {"_judging": self._judging, "_zygote": None, "_checked": False}

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

    def _check(self, zygote: ProgramZygote) -> None:
        """Once, with the first start."""
        if not self._checked:
            check_toolchain(zygote, self._judging.rules.language)
            self._checked = True

    def _made(self) -> ProgramZygote:
        if self._zygote is None:
            judging = self._judging
            judging.rules.language.check()
            level = judging.level if judging.host == socket.gethostname() else probe(judging.fence)
            self._zygote = ProgramZygote(judging.fence, [name for name, _ in level.held])
        return self._zygote

    def close(self) -> None:
        """End it."""
        if self._zygote is not None:
            self._zygote.close()

    def score(self, **row: Any) -> dict[str, Any]:
        """The judgement on one completion, as fields."""
        return {**self.judge(row).fields(), "isolation": self._judging.level.name}

    def judge(self, row: Mapping[str, Any]) -> Judgement:
        """The judgement on one completion.

        Args:
            row: ``completion`` and the columns.

        Raises:
            DataError: The row's cases or tests are at fault.
            ZygoteLostError: Programs can't be run.
        """
        judging = self._judging
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
            zygote.start(_AGAIN_S)
            self._check(zygote)
            return self._judgement(program, row)
        except ZygoteLostError:
            if time.monotonic() - began > _EARLY_S:
                raise
            zygote.start(_AGAIN_S)  # a new one; what happens twice is not by chance
            self._check(zygote)
            return self._judgement(program, row)

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
        judging, columns = self._judging, self._judging.columns
        assert self._zygote is not None
        driver = Driver(self._zygote, judging.rules)
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


class CodeReward:
    """A reward function that runs programs: made by `guerdon.code_reward`.

    It is callable as TRL calls reward functions, ``(prompts, completions, **columns)``, and then
    gives a list with a number for each completion, or None where it could not be judged.

    Attributes:
        spec: What the dispatcher needs to know about it.
        level: The fences that hold on this machine.
    """

    __guerdon_decorated__ = True

    def __init__(
        self,
        made: tuple[Callable[..., CodeReward], dict[str, Any]],
        spec: FunctionSpec,
        scorer: CodeScorer,
        level: Level,
    ) -> None:
        self._made = made
        self.spec = spec
        self.level = level
        self.__name__ = spec.name
        self._scorer = scorer
        # The zygote runs one program at a time, whatever threads call.
        self._lock = threading.Lock()
        self._owner = os.getpid()

    @property
    def name(self) -> str:
        """Its name in metrics, files and messages."""
        return self.spec.name

    def __call__(
        self, prompts: object = None, completions: object = None, completion_ids: object = None, **columns: object
    ) -> list[float | None]:
        """The scores of a batch.

        Raises:
            DataError: A column is missing.
        """
        data = collect(prompts, completions, completion_ids, columns, singles=True)
        given: dict[str, list[object] | Single] = dict(data.dataset)
        given.update((one, data.own[name]) for name, one in _SINGULAR.items() if name in data.own)
        missing = [name for name in self.spec.wants.required if name not in given]
        if missing:
            raise missing_column(self.spec, missing[0], data)
        for name in self.spec.wants.named:
            if name in data.dataset:
                given_column(self.name, name, data)
        scores: list[float | None] = []
        with self._own_lock():
            for sample in range(data.samples):
                row: dict[str, object] = {}
                for name in self.spec.wants.named:
                    values = given.get(name)
                    if values is not None:
                        row[name] = values.value if isinstance(values, Single) else values[sample]
                scores.append(self._scored(row, sample))
        return scores

    def _scored(self, row: dict[str, object], sample: int) -> float | None:
        import logging

        try:
            return self._scorer.judge(row).score
        except Exception as error:  # a function of the user's own may raise anything
            why = printable(str(error))
            logging.getLogger("guerdon").warning("%s: sample %d has no score: %s", self.name, sample, why)
            return None

    def _own_lock(self) -> threading.Lock:
        """In a process that was forked, another one: a thread that is not there may hold that."""
        if self._owner != os.getpid():
            self._lock = threading.Lock()
            self._owner = os.getpid()  # last: another thread that sees it takes that lock
        return self._lock

    def close(self) -> None:
        """End what the calls of this object started; the next call starts it again."""
        with self._own_lock():
            self._scorer.close()

    def __reduce__(self) -> Any:
        make, arguments = self._made
        return _remake, (make, arguments)

    def __repr__(self) -> str:
        return f"<code reward {self.name!r}: isolation {self.level.name}, timeout {self._scorer._judging.rules.timeout:g} s>"


def _remake(make: Callable[..., CodeReward], arguments: dict[str, Any]) -> CodeReward:
    return make(**arguments)

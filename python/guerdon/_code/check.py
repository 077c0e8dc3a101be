"""Tests of a dataset, run on the trusted side with a proxy in place of the program's function.

- The tests never reach the program's process, and nothing of that runs here: a call of the proxy is
  a call there, and its value comes back as plain data.
- An exception that a program raises is raised here too, as the builtin one of its name.
- Tests that fail before they called the program, or never call it, are the dataset's fault.
"""

from __future__ import annotations

import builtins
from collections import deque
from collections.abc import Callable
from types import CodeType
from typing import Any, Final, TypeVar

from guerdon._code.calls import CallAnswer
from guerdon._code.check_code import FILE, check_code, defined_by
from guerdon._code.check_result import fault_of, score_of
from guerdon._code.compare import shown
from guerdon._code.encoding import BoundError, EncodingError, Opaque
from guerdon._code.watchdog import LateError, at_most
from guerdon.errors import DataError

__all__ = ["Caller", "Candidate", "CandidateError", "run_function", "run_tests"]

Caller = Callable[[str, list[Any], dict[str, Any]], CallAnswer]
"""Calls a function of the program."""
T = TypeVar("T")
# Raised by a proxy they would steer the tests, not fail them.
_NOT_RAISED: Final = ("StopIteration", "StopAsyncIteration", "GeneratorExit")


class CandidateError(Exception):
    """A program's function raised an exception that is no builtin one, or gave no value."""


class _StoppedError(BaseException):
    """The program hangs or crashed: no test can go on. No ``except Exception`` keeps it."""


class Candidate:
    """A function of a program, as tests see it.

    It has no attribute of the program's.
    """

    def __init__(self, name: str, call: Caller, state: State) -> None:
        self.__name__ = self.__qualname__ = name
        self._call = call
        self._state = state

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        state = self._state
        if not self.__name__:
            raise DataError("check calls a program whose function has no name: give it in the column entry_point")
        if state.stopped or state.lost is not None:
            raise _StoppedError
        try:
            answer = self._call(self.__name__, list(args), kwargs)
        except EncodingError as error:
            if any(map(_holds_opaque, [*args, *kwargs.values()])):
                raise CandidateError("it returned what is no data, and the tests pass that on") from None
            if isinstance(error, BoundError) and state.calls:  # it may be of what it returned
                raise CandidateError(f"the tests call {self.__name__!r} with what can't be sent: {error}") from None
            raise DataError(f"the tests call {self.__name__!r} with what can't be sent: {error}") from None
        except MemoryError:  # of what the tests hold of the program's
            raise
        except Exception as error:  # of ours, whatever tests do with it
            state.lost = error
            raise _StoppedError from error
        state.calls += 1
        if not answer.fault:
            return answer.value
        if answer.raised is None:
            state.stopped = answer.fault
            raise _StoppedError
        name, text = answer.raised
        raise _exception(name, text, answer.fault)

    def function(self, name: str) -> Candidate:
        """Another function of the same program."""
        return Candidate(name, self._call, self._state)

    def __repr__(self) -> str:
        return f"<{self.__name__} of the program>"


class State:
    """What the proxies of one program share.

    Attributes:
        calls: How many were made.
        stopped: Why the program can't go on; "" while it can.
        lost: Why no program can be called any more, by no fault of it; None while it can.
        late: The tests did not end; none that follows is run.
        deadline: Until when tests may run, by `time.monotonic`.
    """

    __slots__ = ("calls", "deadline", "late", "lost", "stopped")

    def __init__(self, deadline: float) -> None:
        self.calls = 0
        self.stopped = ""
        self.lost: Exception | None = None
        self.late = False
        self.deadline = deadline

    def run(self, tests: Callable[[], T]) -> T:
        """What tests return, before their time is up.

        Raises:
            BaseException: What they raise; but what was lost of ours, whatever they make of it.
        """
        try:
            return at_most(self.deadline, tests)
        finally:
            if self.lost is not None:
                raise self.lost

    def ended_late(self) -> str:
        """Why the program fails tests that did not end.

        Raises:
            DataError: It has no part in that.
        """
        self.late = True
        if not self.calls:
            raise DataError("check did not end before it called the program")
        return "the tests did not end with what the program returned"


def run_tests(
    texts: list[str],
    call: Caller,
    entry_point: str | None,
    prelude: str,
    deadline: float,
    begin: Callable[[int], None] = lambda left: None,
    *,
    to_end: bool = True,
) -> tuple[list[str], int]:
    """Run test code: the fault of each of its cases, "" where it passed, and how many are left.

    A text that defines ``check`` has it called with the candidate, as HumanEval's. What comes
    before the first call of the program, imports say, is no case.

    Args:
        texts: Python code, each text a case of its own.
        entry_point: The candidate's name; without it, the first by name of the functions that the
            tests use and nothing defines.
        prelude: Code whose names the tests may use.
        deadline: Until when all of them may run, by `time.monotonic`.
        begin: Called before each text, with how many are left.
        to_end: Whether texts after a failed one are run.

    Raises:
        DataError: The tests are no tests.
    """
    state = State(deadline)
    namespace: dict[str, Any] = {"__name__": "check"}
    _run_prelude(prelude, namespace)
    known = frozenset(namespace).union(*map(defined_by, texts))
    codes = [check_code(text, known) for text in texts]
    names = sorted({name for code in codes for name in code.functions} - {entry_point})
    if entry_point:
        names.insert(0, entry_point)
    if not names:
        raise DataError(
            "check: the tests use no function that the program could define; name it in the column entry_point"
        )
    proxies = {name: Candidate(name, call, state) for name in names}
    for code in codes:
        namespace.update(code.others)
    namespace.update(proxies, candidate=proxies[names[0]])
    faults = []
    for place, (text, code) in enumerate(zip(texts, codes, strict=True)):
        begin(len(texts) - place)
        state.stopped = ""
        fault = _run_text(text, code.code, namespace, proxies[names[0]], state)
        if state.calls:
            faults.append(fault)
        if (fault and not to_end) or state.late:
            return faults, len(texts) - place - 1
    if not faults:
        raise DataError(
            "check: the tests never called the program. Give assert statements, or a function check(candidate): what "
            "pytest or unittest would collect is not run"
        )
    return faults, 0


def run_function(
    check: Callable[..., Any], call: Caller, name: str, row: dict[str, Any], deadline: float
) -> float | str:
    """Run a function of the user's own with the candidate: a score from 0 to 1, or why it is 0.

    Args:
        deadline: Until when it may run, by `time.monotonic`.

    Raises:
        DataError: It failed before it called the program, or returned no score.
    """
    state = State(deadline)
    try:
        result = state.run(lambda: check(Candidate(name, call, state), **row))
    except _StoppedError:
        return state.stopped
    except LateError:
        return state.ended_late()
    except (Exception, SystemExit) as error:
        if isinstance(error, DataError) or error is state.lost:
            raise
        return _fault(error, state, None)
    if state.stopped:
        return state.stopped
    return score_of(check, result, calls=state.calls)


def _run_text(text: str, code: CodeType, namespace: dict[str, Any], candidate: Candidate, state: State) -> str:
    namespace.pop("check", None)  # of the text before

    def run() -> str:
        exec(code, namespace)
        check = namespace.get("check")
        return fault_of(check, check(candidate)) if callable(check) else ""

    try:
        fault = state.run(run)
    except _StoppedError:
        return state.stopped
    except LateError:
        return state.ended_late()
    except (Exception, SystemExit) as error:
        if isinstance(error, DataError) or error is state.lost:
            raise
        return _fault(error, state, text)
    return state.stopped or fault


def _fault(error: BaseException, state: State, text: str | None) -> str:
    """Why the program failed the tests, from what they raised."""
    if state.calls == 0 and not isinstance(error, CandidateError):
        raise DataError(
            f"check failed before it called the program: {type(error).__name__}: {_text_of(error)[:300]}"
        ) from error
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    if text is not None and line is not None:
        lines = text.split("\n")
        asked = lines[line - 1].strip()[:200] if line <= len(lines) else ""
        if isinstance(error, AssertionError):
            return f"failed: {asked}"
        return f"{type(error).__name__}: {_text_of(error)[:200]}, in: {asked}"
    return f"{type(error).__name__}: {_text_of(error)[:300]}"


def _text_of(error: BaseException) -> str:
    """What it says; it may hold what a program returned, an integer that is too long for a text."""
    try:
        return str(error)
    except Exception:
        return ", ".join(map(shown, error.args))


def _run_prelude(prelude: str, namespace: dict[str, Any]) -> None:
    if not prelude:
        return
    try:
        code = compile(prelude, "<prelude>", "exec", dont_inherit=True)
    except SyntaxError:  # the beginning of a function, which the completion continues
        return
    except ValueError as error:
        raise DataError(f"prelude is no Python code: {error}") from None
    try:
        exec(code, namespace)
    except (Exception, SystemExit) as error:
        raise DataError(f"prelude can't be run: {type(error).__name__}: {str(error)[:300]}") from error


def _holds_opaque(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_opaque, [*value, *value.values()]))
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return any(map(_holds_opaque, value))
    return isinstance(value, Opaque)


def _exception(name: str, text: str, fault: str) -> Exception:
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception) and name not in _NOT_RAISED:
        try:
            return kind(text)
        except TypeError:  # UnicodeDecodeError, say, is made of five values
            return CandidateError(fault)
    return CandidateError(fault)

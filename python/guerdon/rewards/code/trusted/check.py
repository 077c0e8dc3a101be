"""Tests of a dataset, run on the trusted side with a proxy in place of the program's function.

- The tests never reach the program's process, and nothing of that runs here: a call of the proxy is
  a call there, and its value comes back as plain data.
- An exception that a program raises is raised here too, as the builtin one that it is.
- Tests that fail before they called the program, or never call it, are the dataset's fault.
"""

from __future__ import annotations

import ast
import builtins
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from types import CodeType
from typing import Any, Final, NoReturn, TypeVar

from guerdon.errors import DataError
from guerdon.rewards.code.child.child import MAKES
from guerdon.rewards.code.child.encoding import BoundError, EncodingError, Opaque
from guerdon.rewards.code.trusted.calls import CallAnswer
from guerdon.rewards.code.trusted.check_code import FILE, IN_PLACE, SEED, check_code, defined_by
from guerdon.rewards.code.trusted.check_collected import collected, ended, only_test, outcomes, run_collected
from guerdon.rewards.code.trusted.check_result import fault_of, score_of
from guerdon.rewards.code.trusted.compare import shown
from guerdon.rewards.code.trusted.handles import ACTS_ON_OPERANDS, DERIVED, MADE, RETURNED, Exchange, Handle

__all__ = ["Caller", "Candidate", "CandidateError", "run_function", "run_tests"]

Caller = Callable[[str, list[Any], dict[str, Any]], CallAnswer]
"""Calls a function of the program."""
T = TypeVar("T")
# A text that asks what a container has; the classes of another text answer as data, then.
_ASKS_FOR_ITEMS: Final = re.compile(r"\bin\b|contains|countOf|indexOf|assert(?:Not)?In\b")
# Raised by a proxy they would steer the tests, not fail them.
_NOT_RAISED: Final = ("StopIteration", "StopAsyncIteration", "GeneratorExit")


class CandidateError(Exception):
    """A program's function raised an exception that is not a builtin one, or returned no value."""


class _StoppedError(BaseException):
    """The program hangs or crashed: no test can go on. No ``except Exception`` keeps it."""


class Candidate:
    """A function of a program, as tests see it."""

    def __init__(self, name: str, program: Program, *, in_place: bool = False) -> None:
        self.__name__ = self.__qualname__ = name
        self._program = program
        self._in_place = in_place

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.__name__:
            raise DataError("check calls a program whose function has no name: give it in the column entry_point")
        return self._program.call(self.__name__, args, kwargs, in_place=self._in_place)

    def function(self, name: str) -> Candidate:
        """Another function of the same program."""
        return Candidate(name, self._program)

    def __repr__(self) -> str:
        return f"<{self.__name__} of the program>"


class Program:
    """The requests of tests to a program.

    Attributes:
        makers: The names of its functions that make objects, as the tests use them.
        held: Those whose objects the text in hand uses as objects, also where they are of data.
        classes: Of the tests and the prelude, by name: their objects go over by their attributes.
        calls: How many were made.
        asked: How often anything was asked of it.
        stopped: Why the program can't go on; "" while it can.
        lost: Why no program can be called any more, through a fault elsewhere; None while one can.
    """

    def __init__(self, call: Caller) -> None:
        self._call = call
        self.makers: frozenset[str] = frozenset()
        self.held: frozenset[str] = frozenset()
        self.classes: dict[str, type] = {}
        self.calls = 0
        self.asked = 0
        self.stopped = ""
        self.lost: Exception | None = None
        self._one = threading.RLock()  # tests may call it on threads
        self._waiting: list[str] = []

    def run(self, tests: Callable[[], T]) -> T | str:
        """Returns the value of tests, or the reason why the program stopped. A loss of ours is
        raised, whatever the tests catch."""
        try:
            found = tests()
        except _StoppedError:
            return self.stopped
        finally:
            if self.lost is not None:
                raise self.lost
        return self.stopped or found

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, in_place: bool) -> Any:
        """Calls a function; with `in_place`, its changes of the arguments are kept."""
        exchange = Exchange(self, self.classes, MADE if name in self.makers else RETURNED)
        if in_place or self.classes:
            args = tuple(exchange.sent(one, in_place=in_place) for one in args)
            kwargs = {key: exchange.sent(one, in_place=in_place) for key, one in kwargs.items()}
        value = exchange.received(self._asked(MAKES + name if name in self.held else name, list(args), kwargs))
        self.calls += 1
        if in_place:
            exchange.update()
        return value

    def ask(self, act: str, args: list[Any]) -> Any:
        """Performs an act on an object of the program."""
        value = self._asked(f"#{act}", args, {})
        if act in ("new", "keep", "part") and isinstance(value, Opaque):
            return Handle("", value.guerdon_number, self)
        if act in ("vars", "value"):
            return value
        origins = [one.guerdon_origin for one in args if isinstance(one, Handle)]
        origin = DERIVED if act in ACTS_ON_OPERANDS and max(origins) != RETURNED else RETURNED
        return Exchange(self, self.classes, origin).received(value)

    def end(self) -> None:
        """Answers no thread of the tests any more: the next program has the same channel.

        A call that goes on ends with the program.
        """
        free = self._one.acquire(timeout=0.2)
        self.lost = self.lost or DataError("check calls the program after its tests ended")
        if free:
            self._one.release()

    def refuse(self) -> NoReturn:
        """Ends the tests without a score: they have the program compare its own objects."""
        self.lost = DataError(
            "check compares objects of the program by value: its own methods would decide. Compare what their methods and "
            "attributes give, or use is"
        )
        raise _StoppedError

    def _asked(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if self.stopped or self.lost is not None:
            raise _StoppedError
        self.asked += 1
        self._waiting.append(name)
        try:
            with self._one:
                if self.lost is not None:
                    raise _StoppedError
                answer = self._call(name, args, kwargs)
        except EncodingError as error:
            # A value that is too large may be the program's.
            kind = CandidateError if isinstance(error, BoundError) and self.calls else DataError
            raise kind(f"the tests call {name.removeprefix(MAKES)!r} with what can't be sent: {error}") from error
        except MemoryError:  # of what the tests hold of the program's
            raise
        except Exception as error:  # raised by us, whatever tests do with it
            self.lost = error
            raise _StoppedError from error
        finally:
            self._waiting.remove(name)
        if not answer.fault:
            return answer.value
        self.calls += 1
        if answer.raised is None:
            if answer.waited and self._waiting and not self.stopped:
                self.lost = DataError(
                    "check calls the program on threads, and a call did not end while another waited: a program runs one call "
                    "at a time, so that calls which wait for each other never end"
                )
            self.stopped = answer.fault
            raise _StoppedError
        kind_name, text, *bases = answer.raised
        if name == "#next" and kind_name == "StopIteration":
            raise StopIteration
        raise _exception((kind_name, *bases), text, answer.fault)


def run_tests(
    texts: list[str],
    call: Caller,
    entry_point: str | None,
    prelude: str,
    begin: Callable[[int, int], None],
    *,
    to_end: bool = True,
) -> tuple[list[str], int]:
    """Run test code: the fault of each of its cases, "" where it passed, and how many are left.

    A text that defines ``check`` has it called with the candidate, as HumanEval's. Work before the
    first call of the program, imports say, is not a case.

    Args:
        texts: Python code, each text a case of its own.
        entry_point: The candidate's name; without it, the first by name of the functions that the
            tests use and nothing defines.
        prelude: Code whose names the tests may use.
        begin: Called before each text, with its place and how many were passed.
        to_end: Whether texts after a failed one are run.

    Raises:
        DataError: The tests are no tests.
    """
    program = Program(call)
    namespace: dict[str, Any] = {"__name__": "check"}
    _run_prelude(prelude, namespace)
    known = frozenset(namespace).union(*map(defined_by, texts))
    codes = [check_code(text, known) for text in texts]
    program.makers = frozenset().union(*(code.classes for code in codes))
    names = sorted({name for code in codes for name in code.functions} - {entry_point})
    if entry_point:
        names.insert(0, entry_point)
    if not names:
        raise DataError(
            "check: the tests use no function that the program could define; name it in the column entry_point"
        )
    proxies = {name: Candidate(name, program) for name in names}
    for code in codes:
        namespace.update(code.others)
    namespace.update(proxies, candidate=proxies[names[0]])
    namespace[SEED] = lambda module, value: program.ask("seed", [module, value]) if type(value) is int else None
    for name in [*names, "candidate"]:
        namespace[f"{name}{IN_PLACE}"] = Candidate(
            proxies.get(name, proxies[names[0]]).__name__, program, in_place=True
        )
    faults: list[str] = []
    try:
        for place, (text, code) in enumerate(zip(texts, codes, strict=True)):
            begin(place, sum(not fault for fault in faults))
            program.stopped = ""
            others = " ".join(one for one in texts if one is not text)
            program.held = frozenset() if _ASKS_FOR_ITEMS.search(others) else code.held
            fault = _run_text(text, code.code, namespace, proxies[names[0]], program)
            if program.calls:
                faults.append(fault)
            if fault and not to_end:
                return faults, len(texts) - place - 1
    finally:
        program.end()
    if not faults:
        raise DataError(
            "check: the tests never called the program. Give assert statements, a function check(candidate), or functions "
            "and classes that pytest or unittest collects"
        )
    return faults, 0


def run_function(check: Callable[..., Any], call: Caller, name: str, row: dict[str, Any]) -> float | str:
    """Run a function of the user's own with the candidate: a score from 0 to 1, or why it is 0.

    Raises:
        DataError: It failed before it called the program, or returned no score.
    """
    program = Program(call)
    try:
        result = program.run(lambda: check(Candidate(name, program), **row))
    except (Exception, SystemExit) as error:
        return _fault(error, program, None)
    finally:
        program.end()
    return program.stopped or score_of(check, result, calls=program.calls)


def _run_text(text: str, code: CodeType, namespace: dict[str, Any], candidate: Candidate, program: Program) -> str:
    for name in collected(namespace):  # of the text before
        if not isinstance(namespace[name], Candidate):
            del namespace[name]
    program.classes = _classes(namespace)

    def run() -> str:
        with outcomes():
            exec(code, namespace)
        program.classes = _classes(namespace)
        check = namespace.get("check")
        if callable(check) and not isinstance(check, Candidate):  # one of the program
            return fault_of(check, ended(check(candidate)))
        if test := only_test(text, namespace):
            with outcomes():
                return fault_of(test, ended(test()))
        run_collected(namespace)
        return ""

    try:
        return program.run(run)
    except (Exception, SystemExit) as error:
        return _fault(error, program, text)


def _fault(error: BaseException, program: Program, text: str | None) -> str:
    """Returns the reason why the program failed the tests, from their exception; raises it where it
    is not the fault of the program."""
    if isinstance(error, DataError) or error is program.lost:
        raise error
    if program.calls == 0 and not isinstance(error, CandidateError):
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
    """Returns its text; it may hold what a program returned, an integer that is too long for a
    text."""
    try:
        return str(error)
    except (Exception, _StoppedError):  # an object of the program, which hangs, has no text either
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


def _classes(namespace: dict[str, Any]) -> dict[str, type]:
    """The plain classes that the tests and the prelude define."""
    defined = {"check", "builtins"}
    return {
        name: one
        for name, one in namespace.items()
        if isinstance(one, type) and one.__module__ in defined and one.__name__ == name and one.__base__ is object
    }


def _exception(names: tuple[str, ...], text: str, fault: str) -> Exception:
    """The builtin exception of the first of these names that has one which is made of a text."""
    for name in names:
        kind = getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, Exception) and name not in (*_NOT_RAISED, "Exception"):
            with suppress(TypeError):  # UnicodeDecodeError, say, is made of five values
                return kind(_key(text) if kind is KeyError else text)
    return CandidateError(fault)


def _key(text: str) -> Any:
    """The key of a `KeyError`, whose text is the key's `repr`."""
    with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        key = ast.literal_eval(text)
        return key if repr(key) == text else text
    return text

"""Exceptions as one line of text, and their tracebacks."""

from __future__ import annotations

import traceback
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from guerdon._worker.invoke.call import Call
from guerdon._worker.invoke.reasons import (
    REASON_LIMIT,
    TRUNCATED,
    SetupTimeout,
    reason_of,
    setup_reason_of,
    truncated_utf8,
)
from guerdon._worker.invoke.tracebacks import TRACEBACK_LIMIT, traceback_of
from tests.contract.misbehaving_functions import Mute, Silent


def test_reasons_are_bounded_and_printable() -> None:
    assert reason_of(ValueError("bad")) == "ValueError: bad"
    assert reason_of(ValueError()) == "ValueError"
    assert reason_of(Silent()) == "Silent: (no message: its __str__ raised RuntimeError)"

    class Nameless(type):
        @property
        def __name__(cls) -> str:  # type: ignore[override]
            raise ValueError("no name")

    class UnnamedError(Exception, metaclass=Nameless):
        pass

    assert reason_of(UnnamedError("a")) == "an exception without a name: a"
    assert len(reason_of(ValueError("é" * 10_000)).encode()) < REASON_LIMIT + 100
    assert reason_of(ValueError("\ud83d")) == "ValueError: \\ud83d"
    assert truncated_utf8("abc", 3) == "abc"
    truncated_utf8("日" * 100, 100).encode()


class Text(str):
    """A text at which nothing can be done."""

    def __bool__(self) -> bool:
        raise ValueError("no")

    __len__ = __getitem__ = __format__ = encode = __bool__  # type: ignore[assignment]


def test_texts_of_the_user_s_own_class() -> None:
    class Kind(type):
        @property
        def __name__(cls) -> str:  # type: ignore[override]
            return Text("Odd")

    class Odd(Exception, metaclass=Kind):
        def __str__(self) -> str:
            return Text("x" * 5000)

    reason = reason_of(Odd())
    assert type(reason) is str
    assert reason.startswith("Odd: xxx")
    assert len(reason) < REASON_LIMIT + 100


def test_a_message_is_cut_before_it_is_copied() -> None:
    text = "x" * 50_000_000
    tracemalloc.start()
    try:
        assert len(reason_of(ValueError(text))) < REASON_LIMIT + 100
        assert tracemalloc.get_traced_memory()[1] < len(text) // 10
    finally:
        tracemalloc.stop()


def test_of_a_setup_that_failed() -> None:
    assert setup_reason_of(ValueError("bad")) == "setup() failed: ValueError: bad"
    assert setup_reason_of(SetupTimeout("it did not end")) == "it did not end"


RECIPE = {"name": "f", "shape": "sample", "rowwise": True, "records": [], "stateful": False}


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except type(error):
        return error


def test_tracebacks_show_user_frames_only() -> None:
    def score(completions: list[str]) -> list[float]:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer") from error

    bound = Call(score, RECIPE).bind(("completions",))
    with pytest.raises(ValueError) as caught:
        bound("x")
    text = traceback_of(caught.value)
    assert text is not None
    assert "KeyError: 'inner'" in text
    assert "ValueError: outer" in text
    assert "in score" in text
    assert "_worker" not in text

    def deep(depth: int) -> None:
        if depth:
            other(depth - 1)
        raise ValueError("\ud83d" * 10_000)

    def other(depth: int) -> None:
        deep(depth)

    with pytest.raises(ValueError) as caught:
        deep(300)
    text = traceback_of(caught.value)
    assert text is not None
    assert len(text.encode()) < TRACEBACK_LIMIT * 1.1
    assert text.startswith("Traceback")


def chained(count: int) -> BaseException:
    error: BaseException = ValueError("the first")
    for index in range(count):
        try:
            raise KeyError(index) from error
        except KeyError as another:
            error = another
    return error


def grouped(count: int) -> BaseException:
    return ExceptionGroup("many", [raised(ValueError(index)) for index in range(count)])


def doubled(depth: int) -> BaseException:
    error: Any = ValueError("both")
    for _ in range(depth):
        error = ExceptionGroup("two", [error, error])
    return raised(error)


def noted(count: int) -> BaseException:
    error = ValueError("noted")
    error.__notes__ = ["a note"] * count  # type: ignore[attr-defined]
    return raised(error)


def expected(error: BaseException) -> str:
    """What Python itself makes of it."""
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


@pytest.mark.parametrize(
    "error",
    [
        chained(5),
        raised(ValueError("a\nb")),
        raised(SyntaxError("bad", ("a.py", 1, 2, "x = = 1"))),
        noted(3),
        lambda: grouped(5),
        lambda: doubled(3),
    ],
)
def test_small_values_have_pythons_own_text(error: BaseException | Callable[[], BaseException]) -> None:
    error = error if isinstance(error, BaseException) else error()
    assert traceback_of(error) == expected(error)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: raised(ValueError("x\n" * 2_000_000)), ["in raised", "ValueError: x", TRUNCATED]),
        (lambda: chained(10_000), [TRUNCATED, "direct cause", "in chained", "KeyError: 9999"]),
        (lambda: raised(SyntaxError("bad", ("a.py", 1, 2, "y" * 20_000_000))), ["SyntaxError: bad"]),
        # Up to Python 3.12 there would be a mark below each of these columns.
        (lambda: raised(SyntaxError("bad", ("a.py", 1, 2, "x", 1, 10**30))), ["SyntaxError: bad"]),
        (lambda: noted(1_000_000), ["in raised", "ValueError: noted"]),
        (lambda: grouped(20_000), ["ExceptionGroup: many", "ValueError: 2\n", "19997 more"]),
        (lambda: doubled(60), ["ExceptionGroup: two (2 sub-exceptions)\n  Exc"]),
    ],
)
def test_large_exceptions_are_formatted_quickly(make: Callable[[], BaseException], expected: list[str]) -> None:
    """Python's own formatting takes seconds for these, hours for the last."""
    text = traceback_of(make())
    assert text is not None
    assert len(text) < TRACEBACK_LIMIT * 1.1
    assert all(words in text for words in expected), text


def test_hostile_exceptions_are_reported() -> None:
    class Worse(Exception):
        def __str__(self) -> str:
            raise SystemExit(3)

    assert "Silent: <exception str() failed>" in str(traceback_of(raised(Silent())))
    assert "in raised" in str(traceback_of(raised(Worse())))

    class Liar(Exception):
        @property
        def __class__(self) -> type:
            return SyntaxError

    assert "Liar: lies" in str(traceback_of(raised(Liar("lies"))))
    assert traceback_of(raised(Mute())) is None
    circle, other = raised(ValueError(1)), raised(ValueError(2))
    circle.__cause__, other.__cause__ = other, circle
    assert "ValueError: 2" in str(traceback_of(circle))
    odd = raised(ValueError("notes"))
    odd.__notes__ = 3  # type: ignore[attr-defined]
    assert "ValueError: notes" in str(traceback_of(odd))

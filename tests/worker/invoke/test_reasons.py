"""Exceptions as one line of text."""

from __future__ import annotations

import tracemalloc

from guerdon._worker.invoke.reasons import REASON_LIMIT, SetupTimeout, reason_of, setup_reason_of, truncated_utf8


def test_reasons_are_bounded_and_printable() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError("no")

    assert reason_of(ValueError("bad")) == "ValueError: bad"
    assert reason_of(ValueError()) == "ValueError"
    assert reason_of(Odd()) == "Odd: (no message: its __str__ raised ValueError)"

    class Nameless(type):
        @property
        def __name__(cls) -> str:  # type: ignore[override]
            raise ValueError("no name")

    class Unnamed(Exception, metaclass=Nameless):
        pass

    assert reason_of(Unnamed("a")) == "an exception without a name: a"
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

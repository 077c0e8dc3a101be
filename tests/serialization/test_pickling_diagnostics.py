"""What can't be pickled or is large is named at registration."""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import functools
import multiprocessing
import os
import re
import socket
import sqlite3
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, StatefulReward, reward
from guerdon._functions.build import spec_of
from guerdon._functions.serialization import serialized_functions
from guerdon._functions.serialization.serialized_functions import check_serializable
from guerdon.errors import GuerdonWarning, SerializationError
from tests.serialization.making_functions import Scorer, by_value, closes_over, holds_lock, refused


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (closes_over, "the closure variable 'value'"),
        ("def score(completion): return bool(L)", "the global 'L'"),
        ("def score(completion): return (lambda: L)()", "the global 'L'"),
        ("def score(completion, x=1, lock=L): return 1.0", "the default of 'lock'"),
        ("def score(completion, *, lock=L): return 1.0", "the default of 'lock'"),
        ("def helper(): return L\ndef score(completion): return helper()", "the global 'helper', there the global 'L'"),
        # An attribute has the name of a global that is as bad.
        ("lock = L\ndef score(completion): return completion.lock + str(L)", "the global 'L'"),
        (
            """
            def even(n): return True if n == 0 else odd(n - 1)
            def odd(n): return L is None if n == 0 else even(n - 1)
            def score(completion): return float(even(len(completion)))
            """,
            "the global 'even', there the global 'odd', there the global 'L'",
        ),
        (Scorer, "the attribute 'factor' of the Scorer"),
        (
            lambda lock: Scorer(lock).method,
            "its object, the Scorer, there the attribute 'factor' of the Scorer",
        ),
        (lambda lock: functools.partial(lambda completion, other: 1.0, other=lock), "argument 'other' of the partial"),
        (
            lambda lock: closes_over({"fine": 1, "client": [0, lock]}),
            "the closure variable 'value', there the value of 'client', there item 1",
        ),
    ],
)
def test_unpicklable_part_is_named(make: Any, named: str) -> None:
    lock = threading.Lock()
    made = by_value(make, L=lock) if isinstance(make, str) else make(lock)
    message = refused(reward(made, name="judge"))
    named = f"{named} (a _thread.lock, {sys.getsizeof(lock)} bytes)"
    assert message.startswith(f"reward function 'judge' can't be sent to a worker process: {named} can't be pickled: ")
    assert "TypeError: cannot pickle '_thread.lock' object" in message


def test_an_object_that_can_not_be_inspected_is_named() -> None:
    """Proxies of what isn't there raise at whatever is asked of them, `isinstance` among
    it."""

    class Proxy:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError("there is no request")

    message = refused(reward(by_value("def score(completion): return P.score(completion)", P=Proxy()), name="judge"))
    assert message.startswith("reward function 'judge' can't be sent to a worker process: the global 'P' (a ")
    assert "RuntimeError: there is no request" in message


def test_an_object_that_refuses_to_be_pickled_is_named_itself() -> None:
    class Connection:
        def __call__(self, completion: str) -> float:
            return 1.0

        def __reduce__(self) -> Any:
            raise RuntimeError("connections stay at home")

    message = refused(reward(Connection()))
    assert "it itself (a " in message
    assert "RuntimeError: connections stay at home" in message
    message = refused(reward(closes_over(Connection())))
    assert "the closure variable 'value' (a " in message


def test_large_values_are_warned_about_and_too_large_ones_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    table = bytes(3_000_000)
    score = by_value("def score(completion): return float(len(T) + S)", T=table, S=1)
    monkeypatch.setattr(serialized_functions, "LARGE", 2_000_000)
    with pytest.warns(
        GuerdonWarning, match=r"takes 3 MB to a worker process, most of it the global 'T' \(a bytes, 3 MB\)"
    ):
        check_serializable(spec_of(reward(score)))
    monkeypatch.setattr(serialized_functions, "TOO_LARGE", 2_500_000)
    with pytest.raises(SerializationError, match=r"more than 2\.5 MB are refused"):
        check_serializable(spec_of(reward(score)))


def test_the_largest_part_is_named() -> None:
    score = by_value(
        """
        CONFIG = {"name": "table", "rows": bytes(12_000_000)}
        def helper(text): return len(CONFIG["rows"])
        def score(completion): return float(helper(completion))
        """
    )
    where = "the global 'helper', there the global 'CONFIG', there the value of 'rows' \\(a bytes, 12 MB\\)"
    with pytest.warns(GuerdonWarning, match=f"takes 12 MB to a worker process, most of it {where}"):
        check_serializable(spec_of(reward(score)))
    many = closes_over([bytes(1_000_000 + index) for index in range(12)])
    with pytest.warns(GuerdonWarning, match=r"most of it the closure variable 'value' \(a list, 12 MB\)"):
        check_serializable(spec_of(reward(many)))


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda stack: stack.enter_context(Path(os.devnull).open("wb")), "_io.BufferedWriter"),  # noqa: SIM115
        (lambda stack: stack.enter_context(socket.socket()), "socket.socket"),
        (lambda stack: stack.enter_context(contextlib.closing(sqlite3.connect(":memory:"))), "sqlite3.Connection"),
        (lambda stack: (number for number in range(3)), "generator"),
        (lambda stack: weakref.ref(stack), "weakref"),
        (lambda stack: contextvars.ContextVar("x"), "_contextvars.ContextVar"),
        (lambda stack: ctypes.pointer(ctypes.c_int(1)), "LP_c_int"),
        (lambda stack: sys._getframe(), "frame"),
        (lambda stack: multiprocessing.get_context("fork").Lock(), "_multiprocessing.SemLock"),
        (lambda stack: pytest.importorskip("torch").empty(1000, device="meta"), "torch.Tensor, 4 kB"),
    ],
)
def test_large_captured_values_are_refused_with_type_and_size(make: Callable[[Any], Any], kind: str) -> None:
    with contextlib.ExitStack() as stack:
        message = refused(reward(closes_over(make(stack)), name="judge"))
    assert re.search(rf"^reward function 'judge' .*: the closure variable 'value'.* \(a [\w.]*{kind}", message), message
    assert re.search(r", [\d.]+ (bytes|kB)\) can't be pickled: ", message), message


def test_each_way_out_that_a_refusal_names_is_one() -> None:
    class LockedReward(StatefulReward):
        def setup(self) -> None:
            self.lock = threading.Lock()

        def score(self, completion: str) -> float:
            with self.lock:
                return 3.0

    lock = threading.Lock()
    functions = [
        reward(holds_lock),
        reward(lambda completion: 2.0 if lock else 0.0, name="thread", lane="thread"),
        LockedReward(),
    ]
    with Dispatcher(functions, workers=1) as made:
        assert made.score(completions=["a"]).rewards.ravel().tolist() == [1.0, 2.0, 3.0]

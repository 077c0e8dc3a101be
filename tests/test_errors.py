"""The error tree, statuses and limits."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import guerdon
from guerdon import errors
from guerdon.errors import GuerdonError, RegistrationError, RewardFailureError
from guerdon.limits import Limit, RetryAfter
from guerdon.results.status import Status


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.RegistrationError, ValueError),
        (errors.SerializationError, RegistrationError),
        (errors.DataError, ValueError),
        (errors.ClosedError, RuntimeError),
        (errors.RewardFailureError, GuerdonError),
        (errors.ToolError, RuntimeError),
    ],
)
def test_every_error_is_a_guerdon_error_and_the_builtin_one_expects(
    error: type[GuerdonError], builtin: type[Exception]
) -> None:
    assert issubclass(error, GuerdonError)
    assert issubclass(error, builtin)


@guerdon.reward
def asks(completion: str, answer: str) -> float:
    return 1.0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: guerdon.reward(asks, timeout=-1),
        lambda: guerdon.Dispatcher([3]),
        lambda: guerdon.Dispatcher([asks], trace="/no/such/folder/x"),
        lambda: guerdon.Dispatcher([asks]).score(completions=["a"]),
        lambda: guerdon.Dispatcher([asks]).submit(completions=["a"]),
    ],
)
def test_an_error_comes_without_the_packages_own_frames(wrong: Callable[[], object]) -> None:
    with pytest.raises(GuerdonError) as caught:
        wrong()
    files = [frame.filename for frame in inspect.getinnerframes(caught.tb)]
    assert files == [__file__] * 2


def test_frames_of_the_user_are_kept_with_all_others() -> None:
    class Columns(list[str]):
        def __iter__(self) -> Iterator[str]:
            raise RegistrationError("the user's own")

    with pytest.raises(RegistrationError) as caught:
        guerdon.Dispatcher([asks]).score(completions=Columns(["a"]), answer=["b"])
    frames = inspect.getinnerframes(caught.tb)
    assert frames[-1].function == "__iter__"
    assert len(frames) > 3


def test_statuses_are_those_of_the_engine() -> None:
    assert [(s.value, s.label) for s in Status] == [
        (0, "ok"),
        (1, "abstained"),
        (2, "timeout"),
        (3, "error"),
        (4, "crashed"),
        (5, "cancelled"),
        (6, "skipped"),
    ]
    assert [s for s in Status if s.failed] == [Status.TIMEOUT, Status.ERROR, Status.CRASHED, Status.CANCELLED]


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "3", None])
def test_retry_after_takes_a_time(seconds: object) -> None:
    with pytest.raises(ValueError, match="expected seconds"):
        RetryAfter(seconds)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error",
    [
        errors.ToolError("search took longer than 30 s", Status.TIMEOUT),
        RewardFailureError("'judge' failed on 3 of 8 samples", result={"rewards": [1.0]}),  # type: ignore[arg-type]
        RetryAfter(2.5, "the judge sleeps"),
    ],
)
def test_an_error_survives_pickling_with_its_attributes(error: GuerdonError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
    for name in {"status", "result", "retry_after", "status_code"} & set(dir(error)):
        assert getattr(again, name) == getattr(error, name)


def test_attributes_of_errors() -> None:
    assert errors.ToolError("late", Status.TIMEOUT).status == Status.TIMEOUT
    assert RewardFailureError("nothing kept").result is None
    assert (RetryAfter(2.5).retry_after, RetryAfter(2.5).status_code) == (2.5, 429)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        *(({"concurrency": wrong}, "Limit") for wrong in (0, -1, 2.5, True, "8", 70_000)),
        *(
            ({option: wrong}, rf"Limit\({option}=.*a number a minute")
            for option in ("rpm", "tpm")
            for wrong in (0, -1.0, True, "8", float("nan"), float("inf"), 10**400)
        ),
        *(({"key": wrong}, "name of an endpoint") for wrong in ("", " ", "a\nb", 3)),
        ({"rpm": 5, "tokens": 3}, "without tpm="),
        ({"tpm": 5, "tokens": "many"}, "expected the number of tokens of a call"),
        ({}, "limits nothing"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(RegistrationError, match=says):
        Limit(**options)

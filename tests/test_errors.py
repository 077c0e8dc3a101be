"""The error tree, statuses and limits."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator

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
    """Each error is also the builtin that one would expect."""
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


def test_a_tool_error_keeps_its_status_through_pickle() -> None:
    """Errors survive pickling with what they carry."""
    again = pickle.loads(pickle.dumps(errors.ToolError("search took longer than 30 s", Status.TIMEOUT)))
    assert (type(again), str(again), again.status) == (
        errors.ToolError,
        "search took longer than 30 s",
        Status.TIMEOUT,
    )


def test_a_failure_keeps_its_result_through_pickle() -> None:
    """Errors survive pickling with what they carry."""
    error = RewardFailureError("'judge' failed on 3 of 8 samples", result={"rewards": [1.0]})  # type: ignore[arg-type]
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is RewardFailureError
    assert str(again) == str(error)
    assert again.result == {"rewards": [1.0]}
    assert RewardFailureError("nothing kept").result is None


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


def test_a_limit_bounds_calls_in_flight() -> None:
    assert guerdon.Limit(concurrency=64) == Limit(64)


@pytest.mark.parametrize("wrong", [0, -1.0, True, "8", float("nan"), float("inf"), 10**400])
@pytest.mark.parametrize("option", ["rpm", "tpm"])
def test_rates_that_make_no_sense_are_refused(option: str, wrong: object) -> None:
    with pytest.raises(RegistrationError, match=rf"Limit\({option}=.*a number a minute"):
        Limit(**{option: wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["", " ", "a\nb", 3])
def test_a_key_is_the_name_of_an_endpoint(key: object) -> None:
    with pytest.raises(RegistrationError, match="name of an endpoint"):
        Limit(key=key)  # type: ignore[arg-type]


def test_tokens_count_toward_something() -> None:
    with pytest.raises(RegistrationError, match="without tpm="):
        Limit(rpm=5, tokens=3)
    with pytest.raises(RegistrationError, match="expected the number of tokens of a call"):
        Limit(tpm=5, tokens="many")  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "3", None])
def test_retry_after_takes_a_time(seconds: object) -> None:
    with pytest.raises(ValueError, match="expected seconds"):
        RetryAfter(seconds)  # type: ignore[arg-type]


def test_retry_after_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(RetryAfter(2.5, "the judge sleeps")))
    assert (error.retry_after, error.status_code, str(error)) == (2.5, 429, "the judge sleeps")


@pytest.mark.parametrize("concurrency", [0, -1, 2.5, True, "8", 70_000])
def test_a_limit_that_makes_no_sense_is_refused(concurrency: object) -> None:
    with pytest.raises(RegistrationError, match="Limit"):
        Limit(concurrency=concurrency)  # type: ignore[arg-type]


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(RegistrationError, match="limits nothing"):
        Limit()

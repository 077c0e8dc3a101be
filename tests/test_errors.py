"""The error tree (E-1 to E-3), statuses and limits."""

from __future__ import annotations

import pickle

import pytest

import guerdon
from guerdon import errors
from guerdon.errors import GuerdonError, NotYetError, RegistrationError, RewardFailureError
from guerdon.limits import Limit
from guerdon.status import Status


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.RegistrationError, ValueError),
        (errors.ShippingError, RegistrationError),
        (errors.DataError, ValueError),
        (errors.ClosedError, RuntimeError),
        (errors.NotYetError, NotImplementedError),
        (errors.RewardFailureError, GuerdonError),
    ],
)
def test_every_error_is_a_guerdon_error_and_the_builtin_one_expects(
    error: type[GuerdonError], builtin: type[Exception]
) -> None:
    """E-1"""
    assert issubclass(error, GuerdonError)
    assert issubclass(error, builtin)


def test_a_failure_keeps_its_result_through_pickle() -> None:
    """E-3"""
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
    ]
    assert [s for s in Status if s.failed] == [Status.TIMEOUT, Status.ERROR, Status.CRASHED, Status.CANCELLED]


def test_a_limit_bounds_calls_in_flight() -> None:
    assert guerdon.Limit(concurrency=64) == Limit(64)


@pytest.mark.parametrize("option", ["rpm", "tpm", "key"])
def test_limits_that_are_not_built_yet_say_so(option: str) -> None:
    with pytest.raises(NotYetError, match=rf"Limit\({option}=…\) is not supported yet"):
        Limit(concurrency=1, **{option: 100})


@pytest.mark.parametrize("concurrency", [0, -1, 2.5, True, "8", 70_000])
def test_a_limit_that_makes_no_sense_is_refused(concurrency: object) -> None:
    with pytest.raises(RegistrationError, match="Limit"):
        Limit(concurrency=concurrency)  # type: ignore[arg-type]


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(RegistrationError, match="limits nothing"):
        Limit()

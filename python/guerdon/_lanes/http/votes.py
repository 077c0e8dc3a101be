"""Votes: ``votes=`` of `guerdon.judge`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from guerdon._lanes.http.compound import CompoundPlan, CompoundReward
from guerdon._lanes.http.reward import HttpReward, is_given
from guerdon._system.units import number
from guerdon.errors import GuerdonWarning, RegistrationError

__all__ = ["check_votes", "with_votes"]

_MOST = 64
_WAYS = ("median", "majority", "mean")


def check_votes(name: str, votes: object, vote: object, min_agreement: object) -> None:
    """Refuses options of votes that can't be.

    Raises:
        RegistrationError: One of them can't.
    """
    if isinstance(votes, bool) or not isinstance(votes, int) or not 1 <= votes <= _MOST:
        raise RegistrationError(
            f"reward function {name!r}: votes={votes!r}: expected a whole number from 1 to {_MOST}."
        )
    if vote not in _WAYS:
        raise RegistrationError(f"reward function {name!r}: vote={vote!r}: expected 'median', 'majority' or 'mean'.")
    if min_agreement is None:
        return
    if votes == 1:
        raise RegistrationError(
            f"reward function {name!r}: min_agreement={min_agreement!r} with a single vote, which always agrees with itself. Give "
            "votes=, such as 5."
        )
    if not 0 < number(min_agreement) <= 1:
        raise RegistrationError(
            f"reward function {name!r}: min_agreement={min_agreement!r}: expected a share of the votes, above 0 and up to 1."
        )


def with_votes(
    judge: HttpReward,
    made_by: Callable[..., HttpReward],
    given: dict[str, Any],
    votes: int,
    vote: str,
    min_agreement: float | None,
) -> CompoundReward:
    """The judge, asked several times a sample."""
    name = judge.name
    if is_given(judge, "pure", True):
        raise RegistrationError(
            f"reward function {name!r}: pure=True with votes={votes}: votes are requests of their own, and none stands for another."
        )
    if given["temperature"] == 0:
        warnings.warn(
            f"reward function {name!r} asks for votes={votes} at temperature 0, where a judge gives the same answer each time. Give "
            "temperature=, such as 0.7, or None for the server's own.",
            GuerdonWarning,
            stacklevel=4,
        )
    plan = CompoundPlan.of(
        "votes",
        [(name, judge)],
        votes=votes,
        reduce=vote,
        needed=votes // 2 + 1,
        min_agreement=min_agreement,
    )
    spec = judge.spec
    return CompoundReward(
        (made_by, given),
        name,
        plan,
        spec.policy,
        columns=spec.wants.required,
        run_if=spec.run_if,
        # If there is a folder, samples share all votes of one call.
        pure=spec.cache is not None,
        cache=spec.cache,
    )

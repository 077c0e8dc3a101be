"""`Votes`: several requests of a judge, made into one score."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from guerdon._lanes.http.compound import CompoundPlan, CompoundReward
from guerdon._lanes.http.reward import HttpReward, is_given
from guerdon._system.units import number
from guerdon.errors import GuerdonWarning, RegistrationError, with_known_options

__all__ = ["Votes", "votes_of", "with_votes"]

_MOST = 64
_WAYS = ("median", "majority", "mean")


@with_known_options
@dataclass(frozen=True)
class Votes:
    """Several requests a sample, made into one score: ``votes=`` of `guerdon.judge`.

    The judge gets as many as can decide, more only while the score is open, and none that can't
    change it. More than half must give a score. ``result.extra`` has ``<name>/votes`` and
    ``<name>/agreement``.

    Attributes:
        count: Requests a sample at most, up to 64.
        by: ``"median"``, ``"majority"``, the most common score (a tie abstains), or ``"mean"``.
        min_agreement: Abstain where the most common score has a smaller share of the votes.

    Examples:
        >>> from guerdon import Votes, judge
        >>> votes = Votes(5, by="majority", min_agreement=0.6)
        >>> judge(base_url="http://localhost:8000/v1", model="m", prompt="{completion}", votes=votes, temperature=0.7)
        <votes 'judge': http://localhost:8000/v1/chat/completions, timeout 30 s>
    """

    count: int
    by: Literal["median", "majority", "mean"] = field(default="median", kw_only=True)
    min_agreement: float | None = field(default=None, kw_only=True)


def votes_of(name: str, given: object) -> Votes:
    """The votes of a judge, checked.

    Raises:
        RegistrationError: They can't be.
    """
    votes = given if isinstance(given, Votes) else Votes(given)  # type: ignore[arg-type]
    wrong, count, share = f"reward function {name!r}: votes={given!r}: ", votes.count, votes.min_agreement
    given_count: object = count
    if isinstance(given_count, bool) or not isinstance(given_count, int) or not 1 <= count <= _MOST:
        raise RegistrationError(f"{wrong}expected a whole number from 1 to {_MOST}, or a guerdon.Votes of it.")
    if votes.by not in _WAYS:
        raise RegistrationError(f"{wrong}by={votes.by!r}: expected 'median', 'majority' or 'mean'.")
    if share is not None and count == 1:
        raise RegistrationError(
            f"{wrong}min_agreement={share!r} with a single vote, which always agrees with itself. Give more, such as 5."
        )
    if share is not None and not 0 < number(share) <= 1:
        raise RegistrationError(f"{wrong}min_agreement={share!r}: expected a share of the votes, above 0 and up to 1.")
    return votes


def with_votes(
    judge: HttpReward, made_by: Callable[..., HttpReward], given: dict[str, Any], votes: Votes
) -> CompoundReward:
    """The judge, asked several times a sample."""
    name = judge.name
    if is_given(judge, "pure", True):
        raise RegistrationError(
            f"reward function {name!r}: pure=True with votes={votes.count}: votes are requests of their own, and none stands for another."
        )
    if given["temperature"] == 0:
        warnings.warn(
            f"reward function {name!r} asks for votes={votes.count} at temperature 0, where a judge gives the same answer each time. Give "
            "temperature=, such as 0.7, or None for the server's own.",
            GuerdonWarning,
            stacklevel=4,
        )
    plan = CompoundPlan.of(
        "votes",
        [(name, judge)],
        votes=votes.count,
        reduce=votes.by,
        needed=votes.count // 2 + 1,
        min_agreement=votes.min_agreement,
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

"""`Votes`: several calls of one function on one sample, made into one score."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from guerdon._functions.spec import Composition, FunctionSpec
from guerdon._system.units import number
from guerdon.errors import RegistrationError, with_known_options

__all__ = ["Votes", "votes_of", "with_votes"]

_MOST = 64
_WAYS = ("median", "majority", "mean")


@with_known_options
@dataclass(frozen=True)
class Votes:
    """Several calls a sample, made into one score: ``votes=`` of `guerdon.judge` and
    `guerdon.reward`.

    The function is called as often as can decide, more only while the score is open, and never
    where it can't change it. More than half must give a score. ``result.extra`` has
    ``<name>/votes`` and ``<name>/agreement``.

    Attributes:
        count: Calls a sample at most, up to 64.
        by: ``"median"`` (of an even number, the mean of the two in the middle), ``"majority"``, the
            most common score (a tie abstains), or ``"mean"``.
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
    """The votes of a function, checked.

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


def with_votes(spec: FunctionSpec, votes: Votes) -> FunctionSpec:
    """The function, called several times a sample.

    Raises:
        RegistrationError: Its calls are not of one sample, or it has an option that votes exclude.
    """
    wrong = f"reward function {spec.name!r}: "
    if spec.shape != "sample" or spec.finish is not None:
        raise RegistrationError(f"{wrong}votes={votes.count} is for functions whose calls score one sample alone.")
    if spec.batch_size is not None:
        raise RegistrationError(f"{wrong}votes={votes.count} with batch_size=: votes are about one sample at a time.")
    if spec.cache is None and spec.pure and spec.lane != "http":
        raise RegistrationError(f"{wrong}pure=True with votes={votes.count}: no vote stands for another.")
    if spec.cache is not None and spec.lane != "http":
        raise RegistrationError(f"{wrong}cache= with votes= is for guerdon.judge alone.")
    composition = Composition(
        "votes",
        (spec.name,),
        (spec.as_member_of(spec.name, spec.name),),
        reduce=votes.by,
        needed=votes.count // 2 + 1,
        min_agreement=votes.min_agreement,
        votes=votes.count,
    )
    return replace(spec.composed(composition), pure=spec.cache is not None)

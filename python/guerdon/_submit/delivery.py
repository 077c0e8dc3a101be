"""When the groups of a batch are delivered: whole, with a quorum of their samples, or by a deadline.

- D-1  Every group is delivered once, whatever cuts it, and what was cut has a status and a reason.
- D-2  A sample that a quorum left behind did not fail: it counts toward no `max_failure_rate`, and ``on_failure`` makes
       nothing of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from guerdon import _options
from guerdon.errors import DataError, RegistrationError

if TYPE_CHECKING:
    from typing import Literal

    from guerdon._registration.spec import FunctionSpec

__all__ = ["Deadline", "Delivery", "Quorum", "deadline", "quorum"]

QUORUM_REASON = "quorum"


@dataclass(frozen=True)
class Quorum:
    """See `quorum`."""

    samples: int


@dataclass(frozen=True)
class Deadline:
    """See `deadline`."""

    seconds: float


if TYPE_CHECKING:
    Delivery = Literal["all"] | Quorum | Deadline


def quorum(samples: int) -> Quorum:
    """For ``groups=``: deliver a group once so many of its samples have all their cells.

    The calls of the others are cancelled: `Status.CANCELLED`, reason "quorum". They are listed in
    `RewardBatch.failures`, but don't count toward ``max_failure_rate``. A group function counts as a cell of each
    sample, so its group waits for it; a function with ``finish_group`` gets the scores that there are.

    Raises:
        DataError: `samples` is no count.

    Examples:
        >>> import asyncio, guerdon
        >>> @guerdon.reward
        ... async def slow(seconds: float) -> float:
        ...     await asyncio.sleep(seconds)
        ...     return 1.0
        >>> dispatcher = guerdon.Dispatcher([slow])
        >>> batch = dispatcher.score(
        ...     completions=["a", "b"], seconds=[0.0, 60.0], num_generations=2, groups=guerdon.quorum(1)
        ... )
        >>> [guerdon.Status(status).label for status in batch.status.ravel()]
        ['ok', 'cancelled']
    """
    try:
        return Quorum(_options.whole("samples", samples) or 1)
    except RegistrationError as error:
        raise DataError(f"quorum: {error}") from None


def deadline(seconds: float) -> Deadline:
    """For ``groups=``: deliver a group so many seconds after its first sample was given.

    Calls that have not ended by then are `Status.TIMEOUT`, reason "group deadline"; they count toward
    ``max_failure_rate``. Only ``finish_group`` comes after it, with the scores that there are.

    Raises:
        DataError: `seconds` is no such time.

    Examples:
        >>> import guerdon
        >>> guerdon.deadline(2.5)
        Deadline(seconds=2.5)
    """
    try:
        return Deadline(_options.bound("seconds", seconds))
    except RegistrationError as error:
        raise DataError(f"deadline: {error}") from None


def checked(
    groups: object, num_generations: int, max_pending: object, specs: Sequence[FunctionSpec]
) -> tuple[int | None, float | None, int | None]:
    """``groups`` and ``max_pending`` of a batch as the engine gets them: quorum, seconds, samples.

    Raises:
        DataError: They can't work, with these functions or at all.
    """
    whole = next((spec.name for spec in specs if spec.shape == "batch"), None)
    instead = "declare it with reward(fn, rowwise=True) if its rows are independent, or as a group_reward"
    try:
        most = _options.whole("max_pending", max_pending)
    except RegistrationError as error:
        raise DataError(str(error)) from None
    if most is not None and whole is not None:
        raise DataError(
            f"max_pending={most} with {whole!r}, which sees the whole batch: no group completes before finish(), and "
            f"add() would wait for ever. Leave max_pending out, or {instead}."
        )
    if isinstance(groups, Quorum):
        if groups.samples > num_generations:
            raise DataError(
                f"groups=quorum({groups.samples}), but a group has {num_generations} samples (num_generations)."
            )
        return groups.samples, None, most
    if isinstance(groups, Deadline):
        if whole is not None:
            raise DataError(
                f"groups=deadline({groups.seconds:g}) can't hold with {whole!r}, which sees the whole batch: its one "
                f"call belongs to no group alone. Use batch_timeout=, or {instead}."
            )
        return None, groups.seconds, most
    if groups == "all":
        return None, None, most
    raise DataError(f"groups={groups!r}: expected 'all', guerdon.quorum(k) or guerdon.deadline(seconds).")

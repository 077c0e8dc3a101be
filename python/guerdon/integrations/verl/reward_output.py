"""Rewards as verl takes them: ``{"reward_score": float, "reward_extra_info": {…}}``.

verl has no mask for a missing reward: a response without one gets what ``failed_reward`` says, and
so do the numbers of its extra info, of which verl takes means. ``guerdon_status`` shows each
function's status: ``correct:ok judge:timeout``. The keys are the same for every response, whatever
failed, because verl reads those of the first from all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from guerdon.errors import RewardFailureError
from guerdon.results.status import Status

if TYPE_CHECKING:
    from guerdon.integrations.verl.overlong import Overlong
    from guerdon.integrations.verl.settings import Failed
    from guerdon.results import RewardBatch


@dataclass(frozen=True, eq=False)
class ScoredBatch:
    """A batch of responses with its result.

    Attributes:
        result: The rewards of the functions.
        penalties: What each response's length adds; zeros without DAPO's option.
    """

    result: RewardBatch
    penalties: Sequence[float]


Place: TypeAlias = tuple[ScoredBatch, int]
"""One response: the batch that it was scored in, and its index there."""


class ExtraInfo(dict[str, Any]):
    """A dict in which a missing key is None: a failed function's fields are missing."""

    def __missing__(self, key: str) -> None:
        return None


def has_reward(scored: ScoredBatch, sample: int) -> bool:
    """Returns whether this response of a batch has a reward."""
    return not math.isnan(scored.result.total.reshape(-1)[sample])


def reward_output(
    scored: ScoredBatch,
    sample: int,
    failed: Failed,
    group: Sequence[Place],
    *,
    plain: bool,
    overlong: Overlong | None = None,
) -> dict[str, Any]:
    """The reward of one response, for verl.

    Args:
        scored: The batch that it was scored in.
        sample: Its index in the batch.
        failed: Its score if it has no reward.
        group: The responses to its prompt, of which means are taken.
        plain: The one function is verl's ``compute_score``: its fields keep the names that verl's
            own manager gives them.
        overlong: Where the penalties come from.

    Raises:
        RewardFailureError: It has no reward, and `failed` is ``"raise"``.
    """
    result = scored.result
    info = ExtraInfo()
    missing: Failed = "group_mean" if has_reward(scored, sample) else failed
    for function, name in enumerate(result.functions):
        value = _value(scored, sample, function)
        if value != value:
            value = _missing_number([_value(*place, function) for place in group], missing)
        info["score" if plain else name] = value
    for column in dict.fromkeys(column for one, _ in [(scored, sample), *group] for column in one.result.extra):
        key = column.partition("/")[2] if plain and column.startswith(f"{result.functions[0]}/") else column
        if all(len(one.result.extra.get(column, one.result)) == len(one.result) for one, _ in group):
            own = _recorded(scored, sample, column)
            others = [_recorded(*place, column) for place in group]
            known = (*others, *scored.result.extra.get(column, ()))
            numbers = any(isinstance(each, (int, float)) for each in known)
            info[key] = _missing_number(others, missing) if own is None and numbers else own
    if plain:
        info.setdefault("acc", info["score"])
    if overlong is not None:
        info.update(overlong.info(scored.penalties[sample]))
    states = result.status.reshape(-1, len(result.functions))[sample].tolist()
    info["guerdon_status"] = " ".join(
        f"{name}:{Status(state).label}" for name, state in zip(result.functions, states, strict=True)
    )
    score = _trained_on(scored, sample)
    if math.isnan(score):
        score = _substitute(scored, sample, failed, group, info["guerdon_status"])
    return {"reward_score": score, "reward_extra_info": info}


def _value(scored: ScoredBatch, sample: int, function: int) -> float:
    """Returns the reward of a response by a function; NaN where it gave nothing."""
    return float(scored.result.rewards.reshape(-1, len(scored.result.functions))[sample, function])


def _recorded(scored: ScoredBatch, sample: int, column: str) -> Any:
    """Returns a function's record of a response; None where it recorded nothing."""
    values = scored.result.extra.get(column)
    return None if values is None else values[sample]


def _trained_on(scored: ScoredBatch, sample: int) -> float:
    """The total of a response, with its penalty; NaN where it has no reward."""
    return float(scored.result.total.reshape(-1)[sample]) + scored.penalties[sample]


def _missing_number(values: Sequence[Any], failed: Failed) -> float:
    """Returns the value of a number that one response of a group lacks, by the rule for its
    score."""
    if not isinstance(failed, str):
        return float(failed)
    known = [float(each) for each in values if isinstance(each, (int, float)) and each == each]
    return sum(known) / len(known) if known else 0.0


def _substitute(scored: ScoredBatch, sample: int, failed: Failed, group: Sequence[Place], status: str) -> float:
    """The score of a response that has no reward."""
    result = scored.result
    if failed == "raise":
        why = [str(failure) for failure in result.failures() if failure.sample == sample]
        raise RewardFailureError(
            f"a response has no reward: {'; '.join(why) or status}. verl can't leave it out of its group, so choose its score: "
            "+reward.reward_kwargs.failed_reward=group_mean (the mean of the others of its prompt), or a number.",
            result,
        )
    # Rewards as they are trained on, penalties included: so its advantage is 0.
    return _missing_number([_trained_on(*place) for place in group], failed)

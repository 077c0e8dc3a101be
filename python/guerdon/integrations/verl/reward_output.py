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
from typing import TYPE_CHECKING, Any

import numpy as np

from guerdon.errors import RewardFailureError
from guerdon.results.status import Status

if TYPE_CHECKING:
    from guerdon.integrations.verl.overlong import Overlong
    from guerdon.integrations.verl.settings import Failed
    from guerdon.results import RewardBatch

__all__ = ["ExtraInfo", "Scored", "has_reward", "reward_output"]


@dataclass(frozen=True, eq=False)
class Scored:
    """A batch of responses with its result.

    Attributes:
        result: The rewards of the functions.
        penalties: What each response's length adds; zeros without DAPO's option.
    """

    result: RewardBatch
    penalties: Sequence[float]


class ExtraInfo(dict[str, Any]):
    """A dict in which a missing key is None: a failed function's fields are missing."""

    def __missing__(self, key: str) -> None:
        return None


def has_reward(scored: Scored, sample: int) -> bool:
    """Whether this response of a batch has a reward of its own."""
    return not math.isnan(scored.result.total.reshape(-1)[sample])


def reward_output(
    scored: Scored, sample: int, failed: Failed, *, plain: bool, overlong: Overlong | None = None
) -> dict[str, Any]:
    """The reward of one response, for verl.

    Args:
        scored: The batch that it was scored in.
        sample: Its index in the batch.
        failed: Its score if it has no reward.
        plain: The one function is verl's ``compute_score``: its fields keep the names that verl's
            own manager gives them.
        overlong: Where the penalties come from.

    Raises:
        RewardFailureError: It has no reward, and `failed` is ``"raise"``.
    """
    result = scored.result
    prompt, generation = divmod(sample, result.rewards.shape[1])
    info = ExtraInfo()
    missing: Failed = "group_mean" if has_reward(scored, sample) else failed
    size = result.rewards.shape[1]
    group = slice(prompt * size, (prompt + 1) * size)
    for function, name in enumerate(result.functions):
        values = result.rewards[prompt, :, function].tolist()
        value = values[generation]
        info["score" if plain else name] = value if value == value else _missing_number(values, missing)
    for column, recorded in result.extra.items():
        key = column.partition("/")[2] if plain and column.startswith(f"{result.functions[0]}/") else column
        if len(recorded) == len(result):
            numbers = any(isinstance(each, (int, float)) for each in recorded)
            gap = recorded[sample] is None and numbers
            info[key] = _missing_number(recorded[group], missing) if gap else recorded[sample]
    if plain:
        info.setdefault("acc", info["score"])
    if overlong is not None:
        info.update(overlong.info(scored.penalties[sample]))
    states = result.status[prompt, generation].tolist()
    info["guerdon_status"] = " ".join(
        f"{name}:{Status(state).label}" for name, state in zip(result.functions, states, strict=True)
    )
    if has_reward(scored, sample):
        score = float(result.total[prompt, generation]) + scored.penalties[sample]
    else:
        score = _substitute(scored, sample, failed, info["guerdon_status"])
    return {"reward_score": score, "reward_extra_info": info}


def _missing_number(values: Sequence[Any], failed: Failed) -> float:
    """What stands for a number that one response of a group lacks, by the rule for its score."""
    if not isinstance(failed, str):
        return float(failed)
    known = [float(each) for each in values if isinstance(each, (int, float)) and each == each]
    return sum(known) / len(known) if known else 0.0


def _substitute(scored: Scored, sample: int, failed: Failed, status: str) -> float:
    """The score of a response that has no reward."""
    result = scored.result
    if failed == "raise":
        why = [str(failure) for failure in result.failures() if failure.sample == sample]
        raise RewardFailureError(
            f"a response has no reward: {'; '.join(why) or status}. verl can't leave it out of its group, so choose its score: "
            "+reward.reward_kwargs.failed_reward=group_mean (the mean of the others of its prompt), or a number.",
            result,
        )
    if failed == "group_mean":
        # As they are trained on, penalties included: so its advantage is 0.
        finals = result.total + np.asarray(scored.penalties, dtype=np.float64).reshape(result.total.shape)
        others = finals[sample // result.total.shape[1]]
        others = others[~np.isnan(others)]
        return float(others.mean()) if others.size else 0.0
    return float(failed)

"""The asyncio lane means the same as a task per sample.

The same coroutines run as plain tasks of `asyncio` and through the lane, alone, and mixed in one
batch so that each runner task meets them one after another.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import pytest

from guerdon import Dispatcher, Limit, Status
from guerdon.results import RewardBatch

from .coroutines import CASES
from .lane_helpers import looped

Case = Callable[[str], Awaitable[float]]


def as_tasks(work: Sequence[tuple[Case, str]]) -> list[float | str | None]:
    """What a task each makes of them: the value, or the name of the exception."""

    async def main() -> list[object]:
        tasks = [asyncio.ensure_future(case(text)) for case, text in work]
        return await asyncio.gather(*tasks, return_exceptions=True)

    return [type(one).__name__ if isinstance(one, BaseException) else one for one in asyncio.run(main())]


def through_the_lane(dispatcher: Dispatcher, work: Sequence[tuple[Case, str]]) -> list[float | str | None]:
    numbers = [CASES.index(case) for case, _ in work]
    result = dispatcher.score(completions=[text for _, text in work], case=numbers)
    return [seen(result, sample) for sample in range(len(work))]


def seen(result: RewardBatch, sample: int) -> float | str | None:
    status = Status(result.status[sample, 0, 0])
    if status is Status.OK:
        return float(result.rewards[sample, 0, 0])
    if status is Status.ABSTAINED:
        return None
    (failure,) = [failure for failure in result.failures() if failure.sample == sample]
    assert status is Status.ERROR, failure
    return failure.reason.split(":")[0].split(".")[-1]


async def run_case(completion: str, case: int) -> float:
    return await CASES[case](completion)


def without_names(found: list[float | str | None]) -> list[float | str | None]:
    """`asyncio.CancelledError` and `TimeoutError` have several names, by version."""
    names = {"CancelledError": "cancelled", "TimeoutError": "timeout"}
    return [names.get(one, one) if isinstance(one, str) else one for one in found]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_each_alone(case: Case) -> None:
    with Dispatcher([looped(run_case)], max_failure_rate=1.0) as dispatcher:
        work = [(case, text) for text in ("a", "bc", "def")]
        found = through_the_lane(dispatcher, work)
        # The same again, on the loop that it left behind.
        assert through_the_lane(dispatcher, work) == found
    assert without_names(found) == without_names(as_tasks(work))


@pytest.mark.parametrize("limit", [1, 3, 256])
@pytest.mark.parametrize("seed", [1, 2])
def test_all_mixed(limit: int, seed: int) -> None:
    chance = random.Random(seed)
    work = [(chance.choice(CASES), str(index)) for index in range(400)]
    expected = without_names(as_tasks(work))
    with Dispatcher([looped(run_case, limit=Limit(concurrency=limit))], max_failure_rate=1.0) as dispatcher:
        found = without_names(through_the_lane(dispatcher, work))
    wrong = [
        (case.__name__, one, other) for (case, _), one, other in zip(work, found, expected, strict=True) if one != other
    ]
    assert not wrong

"""Scoring in the asynchronous rollout loop: many groups at once, each as TRL would score it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl")
pytest.importorskip("aiohttp")

from guerdon import Dispatcher
from tests.integrations.trl.async_grpo import reward_functions, rollout_loops
from tests.integrations.trl.async_grpo.rollout_loops import group_of

pytestmark = pytest.mark.filterwarnings("default", "error::guerdon.GuerdonWarning")


@pytest.fixture
def scored() -> Iterator[Any]:
    """Scores groups in a loop of ours; gives (loop, samples by group in order of arrival)."""
    made: list[Any] = []

    def run(dispatcher: Dispatcher | None, groups: list[Any], **named: Any) -> tuple[Any, list[list[Any]]]:
        loop = rollout_loops.make_loop(dispatcher, **named)
        made.append((loop, dispatcher))
        return loop, rollout_loops.score(loop, groups)

    yield run
    for loop, dispatcher in made:
        rollout_loops.close(loop)
        if dispatcher is not None:
            dispatcher.close()


def logged(loop: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    while not loop._metrics_queue.empty():
        for name, value in loop._metrics_queue.get_nowait().items():
            found.setdefault(name, []).append(value)
    return found


def advantages(totals: list[float]) -> list[float]:
    """TRL's, of the asynchronous trainer."""
    return [(total - float(np.mean(totals))) / (float(np.std(totals)) + 1e-8) for total in totals]


def test_as_many_groups_are_scored_at_once_as_were_asked_for(scored: Any) -> None:
    """Each of nine groups waits in its reward function until all nine are there."""
    reward_functions.meeting.reset()
    groups = [group_of(index, ["a"]) for index in range(reward_functions.TOGETHER)]
    _, found = scored(
        Dispatcher([reward_functions.meets]), groups, concurrent_groups=reward_functions.TOGETHER, num_generations=1
    )
    assert sorted(samples[0].group_id for samples in found) == list(range(reward_functions.TOGETHER))


def test_a_group_is_sent_on_when_its_last_reward_is_there_and_keeps_its_order(scored: Any) -> None:
    groups = [group_of(0, ["ax", "b", "ccc", "dd"]), group_of(1, ["aaaa", "b", "cc", "ddd"])]
    _, found = scored(Dispatcher([reward_functions.slow_on_x]), groups)
    assert [samples[0].group_id for samples in found] == [1, 0]
    assert [sample.metrics["rewards/slow_on_x"] for sample in found[0]] == [4.0, 1.0, 2.0, 3.0]
    assert [sample.metrics["rewards/slow_on_x"] for sample in found[1]] == [2.0, 1.0, 3.0, 2.0]


def test_a_group_has_the_advantages_that_trl_alone_gives_it(scored: Any) -> None:
    texts = ["a", "bcd", "", "efghi"]
    _, (ours,) = scored(Dispatcher([reward_functions.plain]), [group_of(0, texts)])
    plain = rollout_loops.make_plain_loop([reward_functions.plain])
    try:
        (theirs,) = rollout_loops.score(plain, [group_of(0, texts)])
    finally:
        rollout_loops.close(plain)
    assert [sample.advantage for sample in ours] == [sample.advantage for sample in theirs]
    assert [sample.metrics for sample in ours] == [sample.metrics for sample in theirs]


def test_weights_hold_in_the_sum_and_not_in_the_log(scored: Any) -> None:
    texts = ["a", "aab", "b", "ab"]
    _, (samples,) = scored(
        Dispatcher([reward_functions.length, reward_functions.letters], weights=[0.5, 2.0]), [group_of(0, texts)]
    )
    totals = [0.5 * len(text) + 2.0 * text.count("a") for text in texts]
    assert [sample.metrics["reward"] for sample in samples] == totals
    assert [sample.metrics["rewards/letters"] for sample in samples] == [1.0, 2.0, 0.0, 1.0]
    assert [sample.advantage for sample in samples] == pytest.approx(advantages(totals))


@pytest.mark.parametrize("function", [reward_functions.fails_on_x, reward_functions.not_a_number])
def test_a_failed_sample_is_left_out_of_its_group(scored: Any, function: Any) -> None:
    texts = ["a", "xbbbbbbbb", "cc", "ddd"]
    loop, (samples,) = scored(Dispatcher([reward_functions.length, function], log_metrics="all"), [group_of(0, texts)])
    rest = advantages([2.0 * len(text) for text in texts if "x" not in text])
    assert [sample.advantage for sample in samples] == pytest.approx([rest[0], 0.0, *rest[1:]])
    assert math.isnan(samples[1].metrics["reward"])
    assert math.isnan(samples[1].metrics["rewards/length"])
    assert samples[0].metrics["reward_std"] == pytest.approx(float(np.std([2.0, 4.0, 6.0])))
    name = list(loop._scorer.dispatchers[0].names)[1]
    assert logged(loop)[f"guerdon/{name}/error_frac"] == [0.25]


def test_a_group_without_a_single_reward_is_not_trained_on(scored: Any) -> None:
    _, (samples,) = scored(Dispatcher([reward_functions.fails_on_x]), [group_of(0, ["x", "xx"])], num_generations=2)
    assert [sample.advantage for sample in samples] == [0.0, 0.0]
    assert all(math.isnan(sample.metrics["reward"]) for sample in samples)


def test_group_functions_see_whole_groups_in_order(scored: Any) -> None:
    groups = [group_of(index, texts) for index, texts in enumerate((["b", "a", "dd", "c"], ["zz", "y", "x", "w"]))]
    _, found = scored(Dispatcher([reward_functions.rank, reward_functions.Best()]), groups)
    by_id = {samples[0].group_id: samples for samples in found}
    assert [sample.metrics["rewards/rank"] for sample in by_id[0]] == [1.0, 0.0, 3.0, 2.0]
    assert [sample.metrics["rewards/rank"] for sample in by_id[1]] == [3.0, 2.0, 1.0, 0.0]
    assert [sample.metrics["rewards/Best"] for sample in by_id[1]] == [1.0, 0.0, 0.0, 0.0]


def test_a_group_that_is_too_old_is_not_scored(scored: Any) -> None:
    old, fresh = group_of(0, ["a"]), group_of(1, ["bb"])
    old.model_version, old.completions_sequences = -3, [[]]
    loop, found = scored(Dispatcher([reward_functions.length]), [old, fresh], num_generations=1)
    assert [samples[0].group_id for samples in found] == [1]
    assert sum(logged(loop)["guerdon/stale_groups_total"]) == 1


def test_the_log_says_how_functions_fared(scored: Any) -> None:
    loop, _ = scored(Dispatcher([reward_functions.length]), [group_of(0, ["a", "b"])], num_generations=2)
    found = logged(loop)
    assert found["guerdon/length/failed_frac"] == [0.0]
    assert found["guerdon/groups_scoring"] == [1.0]
    assert found["guerdon/length/run_p50_s"][0] >= 0.0
    assert "guerdon/length/error_frac" not in found


def test_trl_itself_scores_several_groups_at_once_with_the_columns_of_a_dispatcher() -> None:
    """Each column is called from a thread of its own, for several groups in turns."""
    import asyncio

    dispatcher = Dispatcher(
        [reward_functions.length, reward_functions.letters, reward_functions.rank], num_generations=4
    )
    loop = rollout_loops.make_plain_loop(dispatcher.reward_funcs)
    groups = [group_of(index, ["a" * (index + 1), "b", "cc", "ddd" * index]) for index in range(6)]

    async def run() -> list[list[Any]]:
        return list(await asyncio.gather(*(loop._score_group(group) for group in groups)))

    try:
        with dispatcher:
            found = loop._loop.run_until_complete(run())
        loop._loop.run_until_complete(loop._loop.shutdown_default_executor())
    finally:
        rollout_loops.close(loop)
    for group, samples in zip(groups, found, strict=True):
        texts = [completion[0]["content"] for completion in group.completions]
        assert [sample.metrics["rewards/length"] for sample in samples] == [float(len(text)) for text in texts]
        assert [sample.metrics["rewards/letters"] for sample in samples] == [float(text.count("a")) for text in texts]
        assert [sample.metrics["rewards/rank"] for sample in samples] == [float(sorted(texts).index(t)) for t in texts]


def test_the_heart_beats_while_rewards_are_slow(scored: Any) -> None:
    """A group whose reward takes longer than a beat: the loop says all the while that it lives."""
    import asyncio

    loop = rollout_loops.make_loop(Dispatcher([reward_functions.slow_on_x]), num_generations=1)

    async def run() -> list[float]:
        stop = asyncio.Event()
        watch = asyncio.create_task(loop._watch(stop))
        loop._heartbeat_value.value = 0.0
        beats = []
        task = asyncio.create_task(loop._score_group(group_of(0, ["x"])))
        while not task.done():
            await asyncio.sleep(0.05)
            beats.append(loop._heartbeat_value.value)
        stop.set()
        await watch
        return beats

    asyncio.set_event_loop(loop._loop)
    try:
        beats = loop._loop.run_until_complete(run())
    finally:
        rollout_loops.close(loop)
        loop._scorer.dispatchers[0].close()
    assert beats[-1] > time.time() - 60

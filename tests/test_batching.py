"""Calls on many samples: `@reward(batch_size=...)` on every lane."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from typing import Any

import pytest

import guerdon
from guerdon import Dispatcher, Limit, RegistrationError, StatefulReward, Status, group_reward, reward
from tests.simple import on_lane

LANES = ("process", "thread", "asyncio")


def sizes(completions: list[str]) -> list[float]:
    return [float(len(completions))] * len(completions)


@pytest.mark.parametrize("lane", LANES)
def test_additions_go_into_one_call_and_nothing_waits_at_the_end(lane: str) -> None:
    """Only a call that is full, or the end, can start anything here: a minute is longer than what
    is waited for."""
    with Dispatcher([on_lane(sizes, lane, batch_size=4, batch_wait=60.0)], workers=1) as made:
        pending = made.stream(num_generations=2)
        pending.add(completions=["a"])
        pending.add(completions=["b", "c"])
        assert not pending.completed()
        pending.add(completions=["d", "e"])
        groups = pending.groups(timeout=30)
        first = [next(groups), next(groups)]
        assert sorted(group.index for group in first) == [0, 1]
        assert [group.rewards.ravel().tolist() for group in first] == [[4.0, 4.0]] * 2
        pending.add(completions=["f"])
        pending.finish()
        assert pending.result(30).rewards.ravel().tolist() == [4.0] * 4 + [2.0] * 2


def test_a_call_of_few_samples_starts_when_it_has_waited() -> None:
    with Dispatcher([on_lane(sizes, "thread", batch_size=4, batch_wait=0.001)]) as made:
        pending = made.stream()
        pending.add(completions=["a"])
        assert next(pending.groups(timeout=30)).rewards.tolist() == [[1.0]]
        pending.finish()


def test_lists_are_called_as_those_of_a_group_function() -> None:
    def seen(
        prompts: list[str],
        completions: list[Any],
        texts: list[str],
        answer: list[int],
        weight: int = 1,
        **row: list[Any],
    ) -> list[float]:
        assert set(row) == {"other"}
        assert row["other"] == answer
        assert [f"p{one}" for one in answer] == prompts
        assert [f"c{one}" for one in answer] == texts == completions
        return [float(one * weight) for one in answer]

    functions = [reward(seen, name=lane, lane=lane, batch_size=3) for lane in ("process", "thread")]
    numbers = list(range(7))
    with Dispatcher(functions, workers=1) as made:
        result = made.score(
            prompts=[f"p{one}" for one in numbers],
            completions=[f"c{one}" for one in numbers],
            answer=numbers,
            other=numbers,
        )
    assert result.rewards[:, 0].tolist() == [[float(one)] * 2 for one in numbers]


def test_a_list_of_another_length_fails_no_sample_that_is_alone() -> None:
    def short(completions: list[str]) -> list[float]:
        return [1.0] * max(1, len(completions) - 1)

    with Dispatcher([reward(short, lane="thread", batch_size=4)], max_failure_rate=1.0) as made:
        assert made.score(completions=["c"] * 9).rewards.ravel().tolist() == [1.0] * 9
    wrong: Any = reward(lambda completions: 1.0, name="wrong", lane="thread", batch_size=2)
    with Dispatcher([wrong], max_failure_rate=1.0) as made:
        failures = made.score(completions=["c"] * 2).failures()
    assert [failure.attempts for failure in failures] == [2, 2]
    assert "is not a list of rewards" in failures[0].reason


def ends(completions: list[str]) -> list[float]:
    if "kill" in completions:
        os.kill(os.getpid(), signal.SIGKILL)
    if "exit" in completions:
        os._exit(1)
    while "hang" in completions:
        pass
    return [float(len(completion)) for completion in completions]


@pytest.mark.fault(
    "one of the samples in a call on many (`batch_size=`) kills its worker, ends it, or never returns",
    sees="`crashed` or `timeout` for that sample, their values for the others of its call",
)
def test_the_sample_that_ends_its_worker_or_hangs_is_found() -> None:
    completions = ["a", "bb", "kill", "ccc", "d", "exit", "ee", "fff"]
    with Dispatcher([reward(ends, batch_size=4, timeout=30)], workers=2, max_failure_rate=1.0) as made:
        result = made.score(completions=completions)
        crashed = {failure.sample: failure for failure in result.failures()}
        assert {sample: failure.status for sample, failure in crashed.items()} == dict.fromkeys((2, 5), Status.CRASHED)
        assert {failure.attempts for failure in crashed.values()} == {3}
        good = [sample for sample in range(8) if sample not in crashed]
        assert [result.rewards[sample, 0, 0] for sample in good] == [float(len(completions[sample])) for sample in good]
    with Dispatcher([reward(ends, batch_size=2, timeout=2, grace=0)], workers=2, max_failure_rate=1.0) as made:
        result = made.score(completions=["a", "hang", "bb"])
        assert result.status.ravel().tolist() == [Status.OK, Status.TIMEOUT, Status.OK]
        assert [failure.attempts for failure in result.failures()] == [2]


@pytest.mark.filterwarnings("ignore::guerdon.GuerdonWarning")
def test_a_thread_and_a_loop_leave_only_the_sample_that_hangs() -> None:
    released = threading.Event()

    def stuck(completions: list[str]) -> list[float]:
        if "hang" in completions:
            released.wait(200)
        return [1.0] * len(completions)

    async def sleeps(completions: list[str]) -> list[float]:
        import asyncio

        if "hang" in completions:
            await asyncio.sleep(200)
        return [1.0] * len(completions)

    options: Any = {"batch_size": 2, "timeout": 2, "grace": 0.1}
    functions = [reward(stuck, lane="thread", **options), reward(sleeps, **options)]
    try:
        with Dispatcher(functions, max_failure_rate=1.0) as made:
            result = made.score(completions=["a", "hang", "b", "c"])
            assert result.status[:, 0].tolist() == [[s, s] for s in (Status.OK, Status.TIMEOUT, Status.OK, Status.OK)]
            released.set()
            while made.stats()["abandoned_threads"]:
                time.sleep(0.01)
    finally:
        released.set()


def test_retries_are_of_the_sample_that_is_alone() -> None:
    calls: list[list[str]] = []

    def fails(completions: list[str]) -> list[float]:
        calls.append(completions)
        if "bad" in completions:
            raise ValueError("bad")
        return [1.0] * len(completions)

    with Dispatcher([reward(fails, lane="thread", retries=2, batch_size=4)], max_failure_rate=1.0) as made:
        (failure,) = made.score(completions=["a", "bad", "b", "c"]).failures()
    assert calls.count(["bad"]) == 3
    assert len(calls) == 7
    assert failure.attempts == 5


def test_a_server_that_is_busy_splits_nothing() -> None:
    calls: list[list[str]] = []

    def busy(completions: list[str]) -> list[float]:
        calls.append(completions)
        if len(calls) == 1:
            raise guerdon.RetryAfter(0.01)
        return [1.0] * len(completions)

    with Dispatcher([reward(busy, lane="thread", batch_size=4)]) as made:
        assert made.score(completions=list("abcd")).rewards.ravel().tolist() == [1.0] * 4
    assert calls == [list("abcd")] * 2


def test_a_permit_is_for_a_call() -> None:
    inside: list[int] = []
    most: list[int] = []

    def counted(completions: list[str]) -> list[float]:
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.002)
        inside.pop()
        return [float(len(completions))] * len(completions)

    limited = reward(counted, lane="thread", limit=Limit(concurrency=1, rpm=60_000), batch_size=8)
    with Dispatcher([limited]) as made:
        result = made.score(completions=["c"] * 20)
    assert result.rewards.ravel().tolist() == [8.0] * 16 + [4.0] * 4
    assert most == [1] * 3


def test_records_stand_where_their_samples_are() -> None:
    def recording(completions: list[str], log_extra: Any, log_metric: Any) -> list[float]:
        if "bad" in completions and len(completions) > 1:
            raise ValueError("not with others")
        log_extra("upper", [completion.upper() for completion in completions])
        log_extra("samples", len(completions))
        log_metric("calls", 1.0)
        return [1.0] * len(completions)

    functions = [reward(recording, name=lane, lane=lane, batch_size=2) for lane in ("process", "thread")]
    with Dispatcher(functions, workers=1) as made:
        recorded = made.score(completions=["a", "bad", "c", "d", "e"])._recorded
    for one in recorded:
        assert dict(one.extra) == {"upper": ["A", "BAD", "C", "D", "E"], "samples": [1, 1, 2, 2, 1]}
        assert one.metrics == [("calls", 1.0)] * 4


class Model(StatefulReward):
    """Plays a reward model: set up once, its scores centred by group."""

    def setup(self) -> None:
        self.ready = True

    def score(self, completions: list[str]) -> list[float]:
        assert self.ready
        assert len(completions) <= 3
        return [float(len(completion)) for completion in completions]

    def finish_group(self, scores: list[float | None], **columns: Any) -> list[float]:
        known = [score for score in scores if score is not None]
        return [score - sum(known) / len(known) for score in known]


def test_a_stateful_reward_scores_many_and_finishes_groups() -> None:
    functions = [reward(Model(), name=lane, lane=lane, batch_size=3) for lane in LANES]
    with Dispatcher(functions, workers=1) as made:
        result = made.score(completions=["a", "abc", "ab", "abcd"], num_generations=2)
    assert result.rewards[..., 0].tolist() == [[-1.0, 1.0], [-1.0, 1.0]]
    assert (result.rewards == result.rewards[..., :1]).all()


def test_a_function_of_trls_contract_gets_batches_of_rows() -> None:
    def trl_style(prompts: Any, completions: list[str], **kwargs: Any) -> list[float]:
        assert len(kwargs["answer"]) == len(completions) <= 2
        return [float(completion == answer) for completion, answer in zip(completions, kwargs["answer"], strict=True)]

    rows = reward(trl_style, rowwise=True, batch_size=2)
    with Dispatcher([rows], workers=1) as made:
        result = made.score(prompts=["p"] * 3, completions=["a", "b", "c"], answer=["a", "x", "c"])
    assert result.rewards.ravel().tolist() == [1.0, 0.0, 1.0]


def test_a_quorum_ends_samples_of_a_call_and_not_the_call() -> None:
    def slow(completions: list[str]) -> list[float]:
        if "last" in completions:
            released.wait(200)
        return [1.0] * len(completions)

    released = threading.Event()
    with Dispatcher([reward(slow, lane="thread", batch_size=2)]) as made:
        pending = made.submit(
            completions=["a", "b", "last", "c"], num_generations=4, group_quorum=2
        )  # its second call is under way when the group is cut, or was never made
        try:
            assert next(pending.groups(timeout=30)).status.ravel().tolist() == [Status.OK] * 2 + [Status.CANCELLED] * 2
        finally:
            released.set()
        pending.result(30)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "8", 1 << 20])
def test_sizes_that_can_not_be_are_refused(wrong: Any) -> None:
    with pytest.raises(RegistrationError, match=r"'sizes': batch_size=.*whole number"):
        reward(sizes, batch_size=wrong)


@pytest.mark.parametrize("wrong", [-1, math.nan, math.inf, True, "8", None, 1e6, 10**400])
def test_waits_that_can_not_be_are_refused(wrong: Any) -> None:
    with pytest.raises(RegistrationError, match=r"'sizes': batch_wait=.*seconds"):
        reward(sizes, batch_size=8, batch_wait=wrong)


def test_unbatchable_functions_are_refused() -> None:
    with pytest.raises(RegistrationError, match=r"batch_wait=0\.1: expected batch_size= too"):
        reward(sizes, batch_wait=0.1)
    with pytest.raises(
        RegistrationError, match="batch_size= has it called with lists: use 'completions', or leave batch_size out"
    ):
        reward(lambda completion: 1.0, batch_size=8)
    with pytest.raises(RegistrationError, match="decorated already"):
        reward(group_reward(sizes), batch_size=8)
    for decorated in (lambda: group_reward(sizes, batch_size=8), lambda: group_reward(batch_size=8)(sizes)):  # type: ignore[call-overload]
        with pytest.raises(
            RegistrationError, match=r"'sizes': batch_size= puts .* one whole group\. Leave batch_size out"
        ):
            decorated()

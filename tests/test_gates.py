"""Gates: ``run_if`` and ``otherwise`` on every lane, and where a skipped cell is seen."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest

from guerdon import (
    Dispatcher,
    RegistrationError,
    RewardFailureError,
    StatefulReward,
    Status,
    group_reward,
    http_reward,
    judge,
    reward,
)
from guerdon._batch.trainer.metrics import metrics_of
from guerdon._insight.diagnostics.score_totals import ScoreTotals
from tests.simple import shared_dispatcher

COMPLETIONS = ["a", "b", "a", "b"]


@reward
def correct(completion: str) -> float:
    return float(completion == "a")


@reward(run_if={"correct": "< 1"}, otherwise=0.5)
def in_worker(completion: str) -> float:
    assert completion == "b"
    return 2.0


@reward(run_if={"correct": ["< 1", ">= 0"]}, lane="thread")
def on_thread(completion: str) -> float:
    assert completion == "b"
    return 2.0


@reward(run_if={"correct": "!= 1"})
async def on_loop(completion: str) -> float:
    assert completion == "b"
    return 2.0


@reward(run_if={"correct": "< 1"}, rowwise=True)
def by_row(completions: list[str], **columns: Any) -> list[float]:
    assert completions == ["b"]
    return [2.0]


@reward(run_if={"correct": "< 1"}, batch_size=8)
def gathered(completions: list[str]) -> list[float]:
    assert set(completions) == {"b"}
    return [2.0] * len(completions)


class Keyword(StatefulReward):
    def score(self, completion: str) -> float:
        assert completion == "b"
        return 1.0

    def finish_group(self, scores: list[float | None], **columns: Any) -> list[float | None]:
        assert scores == [None, 1.0, None, 1.0]
        return [score if score is None else score + 1 for score in scores]


stateful = reward(Keyword(), name="stateful", run_if={"correct": "< 1"}, otherwise=-1)
chained = reward(lambda completion: 3.0, name="chained", lane="thread", run_if={"in_worker": ">= 2"})
EVERY = [chained, in_worker, on_thread, on_loop, by_row, gathered, stateful, correct]


dispatcher = shared_dispatcher(EVERY, workers=2)


def test_a_function_of_every_lane_is_called_where_its_gate_opens(dispatcher: Dispatcher) -> None:
    result = dispatcher.score(completions=COMPLETIONS, num_generations=4)
    status = dict(zip(result.functions, result.status[0].T.tolist(), strict=True))
    values = dict(zip(result.functions, result.rewards[0].T.tolist(), strict=True))
    assert status.pop("correct") == [Status.OK] * 4
    assert status == dict.fromkeys(status, [Status.SKIPPED, Status.OK] * 2)
    assert values["in_worker"] == [0.5, 2.0, 0.5, 2.0]
    assert values["stateful"] == [-1.0, 2.0, -1.0, 2.0]
    assert values["chained"] == [pytest.approx(math.nan, nan_ok=True), 3.0] * 2
    assert result.failures() == []
    assert not result.failed_samples.any()
    assert not result.unscorable.any()
    assert result.skipped == dict.fromkeys(status, (0, 2))
    assert "2 ok, 2 skipped" in repr(result)


def test_a_skipped_cell_stands_in_every_output(dispatcher: Dispatcher) -> None:
    result = pickle.loads(pickle.dumps(dispatcher.score(completions=COMPLETIONS, num_generations=4)))
    row = result.to_dicts()[0]
    assert (row["status"]["on_loop"], row["rewards"]["on_loop"], row["rewards"]["in_worker"]) == ("skipped", None, 0.5)
    metrics = metrics_of(result)
    assert metrics["guerdon/on_loop/skipped_frac"] == 0.5
    assert metrics["guerdon/on_loop/failed_frac"] == 0.0
    assert "guerdon/correct/skipped_frac" not in metrics
    report = ScoreTotals(result.functions)
    report.add(result)
    assert (report.rows()[0].counts[Status.SKIPPED], report.rows()[0].called, report.failures()) == (2, 2, "")
    assert "skipped" in report.table()


def test_a_skipped_cell_has_no_reason_in_pandas(dispatcher: Dispatcher) -> None:
    pytest.importorskip("pandas")
    frame = dispatcher.score(completions=COMPLETIONS, num_generations=4).to_pandas()
    assert (frame[frame.function == "on_loop"].status == ["skipped", "ok"] * 2).all()
    assert frame.reason.isna().all()


def test_a_trainer_gets_what_otherwise_says() -> None:
    silent = reward(lambda completion: 2.0, name="silent", lane="thread", run_if={"correct": "< 1"})
    with Dispatcher([correct, in_worker, silent], workers=1) as dispatcher:
        arguments = {"prompts": ["p"] * 4, "completions": COMPLETIONS, "trainer_state": None}
        columns = [column(**arguments) for column in dispatcher.reward_funcs]
    assert [list(column) for column in columns] == [[1, 0, 1, 0], [0.5, 2, 0.5, 2], [None, 2, None, 2]]


@pytest.mark.fault(
    "a function fails that another waits for (`run_if`)",
    sees="`error` of the first, `skipped` of the other, which is not called; the sample is unscorable",
)
def test_a_source_that_failed_skips_and_the_sample_is_unscorable() -> None:
    @reward(lane="thread")
    def source(completion: str) -> float | None:
        if completion == "bad":
            raise ValueError("no")
        return None if completion == "silent" else 0.0

    gated = reward(lambda completion: 1.0, name="gated", lane="thread", run_if={"source": "< 1"}, otherwise=7.0)
    with Dispatcher([gated, source], max_failure_rate=1.0) as dispatcher:
        result = dispatcher.score(completions=["bad", "silent", "good"])
    assert result.status[:, 0].tolist() == [[Status.SKIPPED, Status.ERROR], [6, Status.ABSTAINED], [0, 0]]
    assert result.unscorable.ravel().tolist() == [True, False, False]
    assert [failure.function for failure in result.failures()] == ["source"]


@pytest.mark.fault(
    "a function hangs on one sample that others wait for, each behind the one before it (`run_if`)",
    sees="`timeout` of that one; the others are `skipped` there at once and called on all other samples",
)
@pytest.mark.parametrize("lane", ["process", "asyncio"])
def test_a_source_that_times_out_skips_the_chain_behind_it(lane: str) -> None:
    def hangs(completion: str) -> float:
        while completion == "bad":
            pass
        return 0.0

    async def hangs_async(completion: str) -> float:
        import asyncio

        await asyncio.sleep(60 if completion == "bad" else 0)
        return 0.0

    chain = [
        reward(hangs if lane == "process" else hangs_async, name="source", timeout=2.5, grace=0.1),
        reward(lambda completion: 1.0, name="second", lane="thread", run_if={"source": "< 1"}),
        reward(lambda completion: 2.0, name="third", run_if={"second": ">= 1"}, otherwise=7.0),
        reward(lambda completion: 3.0, name="fourth", lane="thread", run_if={"third": "== 7"}),
    ]
    with Dispatcher(chain, workers=2, max_failure_rate=1.0) as dispatcher:
        result = dispatcher.score(completions=["good", "bad", "good"], num_generations=3)
    assert result.status[0].tolist() == [[0, 0, 0, 6], [Status.TIMEOUT, 6, 6, 0], [0, 0, 0, 6]]
    assert result.rewards[0, 1, 2:].tolist() == [7.0, 3.0]
    assert result.unscorable.ravel().tolist() == [False, True, False]


@pytest.mark.fault(
    "a function that is called for few samples (`run_if`) fails on each of them",
    sees="RewardFailureError: the rate is that of the calls that were made",
)
def test_the_failure_rate_is_that_of_the_calls_that_were_made() -> None:
    @reward(run_if={"picked": "== 1"}, lane="thread")
    def broken(completion: str) -> float:
        raise ValueError("no")

    picked = reward(lambda completion: float(completion == "a"), name="picked", lane="thread")
    with (
        Dispatcher([picked, broken], max_failure_rate=0.5) as dispatcher,
        pytest.raises(RewardFailureError, match="failed on 8 of 8 samples"),
    ):
        dispatcher.score(completions=["a"] * 8 + ["b"] * 92)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"run_if": {}}, "expected conditions by function"),
        ({"run_if": "correct < 1"}, "expected conditions by function"),
        ({"run_if": {"correct": "1"}}, "no condition"),
        ({"run_if": {"correct": "< one"}}, "no condition"),
        ({"run_if": {"correct": "< nan"}}, "no condition"),
        ({"run_if": {"correct": "< 1_0"}}, "no condition"),
        ({"run_if": {"correct": "< \u0661"}}, "no condition"),
        ({"run_if": {"correct": 1}}, "no condition"),
        ({"run_if": {"correct": ["< 1", "and"]}}, "no condition"),
        ({"otherwise": 1.0}, "only run_if= skips"),
        ({"run_if": {"correct": "< 1"}, "otherwise": "zero"}, "finite number"),
        ({"run_if": {"correct": "< 1"}, "otherwise": 1e39}, "finite number"),
    ],
)
def test_wrong_conditions_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(RegistrationError, match=says):
        reward(lambda completion: 1.0, name="gated", **options)
    with pytest.raises(RegistrationError, match=says):
        judge(base_url="http://localhost:1/v1", model="m", prompt="{completion}", **options)
    with pytest.raises(RegistrationError, match=says):
        http_reward("http://localhost:1/", **options)


def test_gates_that_cannot_work_are_refused() -> None:
    def plain(name: str, **options: Any) -> Any:
        return reward(lambda completion: 1.0, name=name, lane="thread", **options)

    @group_reward
    def of_group(completions: list[str]) -> list[float]:
        return [1.0 for _ in completions]

    def of_batch(prompts: Any, completions: Any, **columns: Any) -> list[float]:
        return [1.0 for _ in completions]

    cycle = [plain(name, run_if={source: "< 1"}) for name, source in (("a", "b"), ("b", "c"), ("c", "a"))]
    for functions, problem in (
        ([plain("judge", run_if={"corect": "< 1"}), correct], r"'judge': run_if names 'corect'.*'judge', 'correct'"),
        ([plain("judge", run_if={"of_group": "< 1"}), of_group], "'of_group', which scores a whole group at once"),
        ([plain("judge", run_if={"of_batch": "< 1"}), of_batch], "'of_batch', which scores a whole batch at once"),
        ([*cycle, correct], r"wait for each other.*'a' -> 'b' -> 'c' -> 'a'"),
        ([plain("self", run_if={"self": "< 1"})], "'self' -> 'self'"),
    ):
        with pytest.raises(RegistrationError, match=problem):
            Dispatcher(functions)
    with pytest.raises(RegistrationError, match="a call of a group function is one whole group"):
        group_reward(run_if={"correct": "< 1"})(lambda completions: [])  # type: ignore[call-overload]

"""What a failure does and does not do: invariants 3, 5 and 6 of docs/internals/promises.md, and
what follows from them."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from guerdon import Dispatcher, RewardFailureError, Status, group_reward, reward
from tests.contract import misbehaving_functions as behaviours
from tests.simple import on_lane, shared_dispatcher

NAN = math.nan

raising = shared_dispatcher(
    [
        reward(behaviours.fail, name="process"),
        reward(behaviours.fail, name="thread", lane="thread"),
        reward(behaviours.afail, name="asyncio"),
        reward(behaviours.fail, name="forked", isolation="call"),
    ],
    workers=2,
    max_failure_rate=1.0,
)


@pytest.mark.fault(
    "a function raises anything: SystemExit, KeyboardInterrupt, MemoryError, what refuses to be looked at",
    sees="`error` with its traceback in that cell; siblings are scored, on every lane",
)
@pytest.mark.parametrize("how", behaviours.ERRORS)
def test_row_6_any_exception_fails_its_own_cell(
    raising: Dispatcher, how: str, capfd: pytest.CaptureFixture[str]
) -> None:
    result = raising.score(completions=["c"] * 5, how=["", "", how, "", ""])
    for function, lane in enumerate(result.functions):
        assert result.status[:, 0, function].tolist() == [0, 0, Status.ERROR, 0, 0], lane
        np.testing.assert_array_equal(result.rewards[:, 0, function], [1, 1, NAN, 1, 1])
    assert result.attempts.max() == 1
    assert "ended a thread" not in capfd.readouterr().err
    for failure in result.failures():
        assert failure.sample == 2
        expected = behaviours.ERRORS[how][1]
        if how == "StopIteration" and failure.function == "asyncio":
            expected = "StopAsyncIteration"
        assert failure.reason.startswith(expected), failure
        assert failure.run_s >= 0


def test_a_traceback_shows_the_users_code_alone(raising: Dispatcher) -> None:
    failures = raising.score(completions=["c"], how=["chained"]).failures()
    assert [failure.function for failure in failures] == list(raising.names)
    for failure in failures:
        trace = failure.traceback or ""
        assert "ValueError: inner" in trace
        assert "LookupError: outer" in trace
        assert "misbehaving_functions.py" in trace
        assert "guerdon/_" not in trace, trace


@pytest.mark.fault(
    "a function calls `os._exit`, reads a null pointer, or is killed by SIGKILL or SIGABRT",
    sees="`crashed` with the exit status or signal, after one more try alone; siblings are scored",
)
@pytest.mark.parametrize("how", ["exit", "SIGSEGV", "SIGKILL", "SIGABRT"])
def test_row_6_a_call_that_ends_its_process_is_crashed_after_one_more_try(how: str) -> None:
    functions = [
        reward(behaviours.end, name="sample"),
        group_reward(behaviours.end_all, name="group"),
        reward(behaviours.end_all, name="batch", rowwise=True),
        behaviours.end_all,
    ]
    with Dispatcher(functions, workers=2, max_failure_rate=1.0) as made:
        result = made.score(prompts=["p"] * 6, completions=["c"] * 6, how=["", "", how, "", "", ""], num_generations=2)
        again = made.score(prompts=["p"] * 6, completions=["c"] * 6, how=[""] * 6, num_generations=2)
    crashed = {"sample": {2}, "group": {2, 3}, "batch": {2}, "end_all": set(range(6))}
    status, attempts = result.status.reshape(6, 4), result.attempts.reshape(6, 4)
    for function, name in enumerate(result.functions):
        for sample in range(6):
            expected = Status.CRASHED if sample in crashed[name] else Status.OK
            assert status[sample, function] == expected, (name, sample)
            assert attempts[sample, function] == (2 if expected else 1), (name, sample)
    words = "exited with status 3" if how == "exit" else f"was killed by {how}"
    for failure in result.failures():
        assert re.search(words, failure.reason), failure.reason
    assert again.status.max() == Status.OK


@pytest.mark.filterwarnings("ignore:.*is not known to leave out samples")
def test_a_failed_cell_makes_its_sample_unscorable() -> None:
    """Not an abstained one: a failure must never look like a worse answer (invariant 3)."""
    functions = [reward(behaviours.end, name="main"), reward(lambda how: 0.25, name="other")]
    hows = ["", "error", "", "none", "", "", "invalid", "exit"]
    with Dispatcher(functions, weights=[1, 2], workers=2) as made:
        result = made.score(completions=["c"] * 8, how=hows, num_generations=4)
        columns = [column(prompts=["p"] * 8, completions=["c"] * 8, how=hows) for column in made.reward_funcs]
    np.testing.assert_array_equal(result.rewards[:, :, 0], [[1, NAN, 1, NAN], [1, 1, NAN, NAN]])
    # the true cells stay
    np.testing.assert_array_equal(result.rewards[:, :, 1], np.full((2, 4), 0.25))
    np.testing.assert_array_equal(result.total, np.float32([[1.5, NAN, 1.5, 0.5], [1.5, 1.5, NAN, NAN]]))
    assert result.advantages()[0, 1] == result.advantages()[1, 2] == 0
    first = np.array([1.5, 1.5, 0.5])
    expected = (first - first.mean()) / (first.std(ddof=1) + 1e-4)
    np.testing.assert_allclose(result.advantages()[0, [0, 2, 3]], expected, atol=1e-5)
    assert columns == [
        [1, None, 1, None, 1, 1, None, None],
        [0.25, None, 0.25, 0.25, 0.25, 0.25, None, None],
    ]


@pytest.mark.parametrize("how", ["error", "invalid", "exit", "hang"])
def test_on_failure_says_what_a_failure_becomes(how: str) -> None:
    def of(name: str, **options: Any) -> Any:
        return reward(behaviours.end, name=name, timeout=3.0, grace=0.2, **options)

    functions = [of("nan"), of("abstain", on_failure="abstain"), of("number", on_failure=-2.5)]
    failed = {"exit": Status.CRASHED, "hang": Status.TIMEOUT}.get(how, Status.ERROR)
    with Dispatcher(functions, workers=3) as made:
        result = made.score(completions=["c"] * 4, how=["", how, "", ""])
    np.testing.assert_array_equal(result.status[1, 0], [failed, Status.ABSTAINED, failed])
    np.testing.assert_array_equal(result.rewards[1, 0], np.float32([NAN, NAN, -2.5]))
    np.testing.assert_array_equal(result.rewards[[0, 2, 3], 0], np.ones((3, 3)))
    assert [failure.function for failure in result.failures()] == ["nan", "abstain", "number"]
    assert {failure.status for failure in result.failures()} == {failed}
    assert np.isnan(result.total[1, 0])  # for the cell of "nan"


@pytest.mark.parametrize("on_failure", ["nan", "abstain", 0.5])
def test_every_failure_counts_whatever_became_of_it(on_failure: Any) -> None:
    with Dispatcher([reward(behaviours.end, on_failure=on_failure, name="main")], workers=1) as made:
        with pytest.raises(RewardFailureError, match="'main' failed on 33 of 64 samples") as caught:
            made.score(completions=["c"] * 64, how=["error"] * 33 + [""] * 31)
        assert caught.value.result is not None
        assert len(caught.value.result.failures()) == 33
        # all of it was scored first
        assert caught.value.result.rewards[33:].ravel().tolist() == [1.0] * 31
        made.score(completions=["c"] * 64, how=["error"] * 32 + [""] * 32)
        made.score(completions=["c"] * 8, how=["none"] * 8)  # abstaining is no failure
        with pytest.raises(RewardFailureError, match="'main' failed on 8 of 8 samples"):
            made.score(completions=["c"] * 8, how=["error"] * 8)
        made.score(completions=["c"] * 7, how=["error"] * 7)  # too few to tell


def test_one_hard_group_ends_nothing_and_many_do() -> None:
    """Batches of one group, as a trainer's defaults make them, in each of which 5 of 8 fail."""
    with Dispatcher([reward(behaviours.end, name="main")], workers=1) as made:
        hard: dict[str, Any] = {"completions": ["c"] * 8, "how": ["error"] * 5 + [""] * 3}
        for _ in range(7):
            pending = made.submit(**hard)
            assert pending.result() is pending.result()  # asked twice, it counts once
        with pytest.raises(RewardFailureError, match=r"'main' failed on 40 of its last 64.*in this batch on 5 of 8"):
            made.score(**hard)
        made.score(completions=["c"] * 12, how=[""] * 12)  # a batch without a failure counts too
        for _ in range(6):
            made.score(**hard)
        with pytest.raises(RewardFailureError, match="'main' failed on 35 of its last 68"):
            made.score(**hard)


def test_on_failure_raise_raises_after_the_batch_is_complete() -> None:
    functions = [reward(behaviours.end, on_failure="raise", name="main"), reward(behaviours.sleep, lane="thread")]
    with Dispatcher(functions, workers=1) as made:
        with pytest.raises(RewardFailureError, match="'main' failed on 1 of 2 samples") as caught:
            made.score(completions=["c"] * 2, how=["", "error"], seconds=[0.3, 0.0])
        assert caught.value.result is not None
        assert caught.value.result.status[:, 0, 1].tolist() == [Status.OK] * 2


def test_a_functions_own_fraction_goes_first() -> None:
    strict = reward(behaviours.end, name="strict", max_failure_rate=0.0)
    lax = reward(behaviours.end, name="lax", max_failure_rate=1.0)
    with Dispatcher([lax], workers=1) as made:
        assert len(made.score(completions=["c"] * 8, how=["error"] * 8).failures()) == 8
    with Dispatcher([strict, lax], workers=1) as made, pytest.raises(RewardFailureError) as caught:
        made.score(completions=["c"] * 64, how=["error"] + [""] * 63)
    assert "'strict'" in str(caught.value)
    assert "'lax'" not in str(caught.value)


@pytest.mark.parametrize("lane", ["process", "thread", "asyncio"])
def test_a_failed_batch_or_group_call_fails_all_its_cells(lane: str) -> None:
    async def whole(how: list[str], **kwargs: Any) -> list[float]:
        return behaviours.end_all(how)

    functions = [on_lane(behaviours.end_all, lane, group_reward, name="group")]
    functions += {"process": [behaviours.end_all], "thread": [], "asyncio": [whole]}[lane]
    with Dispatcher(functions, workers=1, max_failure_rate=1.0) as made:
        result = made.score(
            prompts=["p"] * 6, completions=["c"] * 6, how=["", "", "", "error", "", ""], num_generations=2
        )
    assert result.status[:, :, 0].tolist() == [[0, 0], [Status.ERROR] * 2, [0, 0]]
    assert (result.status[:, :, 1:] == Status.ERROR).all()
    assert {failure.reason for failure in result.failures()} == {"ValueError: wrong"}
    assert [failure.sample for failure in result.failures() if failure.function == "group"] == [2, 3]

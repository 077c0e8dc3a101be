"""A limit holds for the calls of one dispatcher: rates, tokens, answers that ask to come back."""

from __future__ import annotations

import itertools
import re
import time
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from guerdon import DataError, Dispatcher, Limit, RegistrationError, RetryAfter, Status, reward
from tests.clock import eventually
from tests.limits import functions
from tests.simple import on_lane

LANES = ("process", "thread", "asyncio")


def took(made: Dispatcher, calls: int, **columns: Any) -> float:
    begun = time.monotonic()
    result = made.score(completions=["c"] * calls, **{name: [value] * calls for name, value in columns.items()})
    assert set(result.status.ravel().tolist()) == {Status.OK}
    return time.monotonic() - begun


@pytest.mark.parametrize("lane", LANES)
def test_calls_come_at_a_steady_rate(lane: str) -> None:
    with Dispatcher([on_lane(functions.one, lane, limit=Limit(rpm=3000))], workers=2) as made:
        # 20 ms between two, less what timers may be late.
        assert took(made, 50) >= 49 * 0.02 - 0.05


def test_waiting_is_queueing_and_never_run_time() -> None:
    with Dispatcher([on_lane(functions.one, "asyncio", timeout=1.5, limit=Limit(rpm=600))]) as made:
        result = made.score(completions=["c"] * 25)
    assert result.status.ravel().tolist() == [Status.OK] * 25
    assert result.timings["one"]["run_max_s"] < 1.5
    assert result.timings["one"]["queue_max_s"] > 2.0


def test_functions_of_all_lanes_share_a_key() -> None:
    limits = [Limit(rpm=3000, key="lanes"), Limit(key="lanes"), Limit(rpm=3000, key="lanes")]
    made = [on_lane(functions.one, lane, name=lane, limit=limit) for lane, limit in zip(LANES, limits, strict=True)]
    with Dispatcher(made, workers=2) as dispatcher:
        assert took(dispatcher, 20) >= 59 * 0.02 - 0.05


def test_functions_that_disagree_about_a_key_are_refused() -> None:
    one = reward(functions.one, name="one", limit=Limit(rpm=10, key="judge"))
    two = reward(functions.one, name="two", limit=Limit(rpm=20, key="judge"))
    with pytest.raises(RegistrationError, match=r"'one' and 'two' give different limits for the key 'judge'"):
        Dispatcher([one, two])


@pytest.mark.parametrize("lane", LANES)
def test_a_call_that_is_to_come_later_is_put_off_without_retries(lane: str, tmp_path: Path) -> None:
    path = tmp_path / "attempts"
    with Dispatcher([on_lane(functions.busy_at_first, lane)], workers=1) as made:
        result = made.score(completions=["c"], path=[str(path)], times=[2])
    assert result.status.ravel().tolist() == [Status.OK]
    assert result.attempts.ravel().tolist() == [3]
    begun = [float(line) for line in path.read_text().splitlines()]
    assert all(later - earlier >= 0.14 for earlier, later in itertools.pairwise(begun))


def test_a_dump_says_that_calls_are_put_off_though_there_is_no_limit() -> None:
    async def later(completion: str) -> float:
        raise RetryAfter(60.0)

    with Dispatcher([reward(later)]) as made:
        pending = made.submit(completions=["c"])
        eventually(lambda: made.dump().throttled)
        assert "'later': 1 sample waiting: put off by its server (429) or RetryAfter until " in str(made.dump())
        pending.cancel()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_hopeless_starts_are_not_retried(status: int) -> None:
    class RefusedError(Exception):
        response = SimpleNamespace(status_code=status, headers={})

    async def refused(completion: str) -> float:
        raise RefusedError("no")

    with Dispatcher([reward(refused, retries=5)]) as made:
        result = made.score(completions=["c"])
    assert result.attempts.ravel().tolist() == [1]


@pytest.mark.parametrize("lane", LANES)
def test_tokens_are_those_that_the_result_tells(lane: str) -> None:
    # 50 tokens a call, 49 ms each; before the first told, they counted as many more.
    with Dispatcher([on_lane(functions.telling, lane, limit=Limit(tpm=62_500))], workers=1) as made:
        assert 30 * 0.048 - 0.1 <= took(made, 30) < 30  # 1000 tokens each: 29 s


def test_tokens_are_logged_as_a_number() -> None:
    with Dispatcher([reward(functions.telling, lane="thread")]) as made:
        result = made.score(completions=["c"])
    assert result.extra["telling/usage"] == [50.0]


@pytest.mark.parametrize("lane", LANES)
def test_tokens_are_those_that_a_function_counts(lane: str) -> None:
    texts = ["x" * 10, "x" * 90] * 15
    limit = Limit(tpm=62_500, tokens=lambda completion: len(completion))
    with Dispatcher([on_lane(functions.one, lane, limit=limit)], workers=1) as made:
        begun = time.monotonic()
        assert made.score(completions=texts).rewards.ravel().tolist() == [1.0] * 30
        # 50 tokens a call on average, 48 ms each, the last one's not counted; 1000 for each would
        # be 28 s.
        assert 29 * 0.048 - 0.1 <= time.monotonic() - begun < 20


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.fault(
    "a call would take more tokens than its limit has in a minute (1e308 of them, say)",
    sees="`error` of its samples at once, not tried; the others are scored and don't wait behind it",
)
def test_tokens_that_can_never_be_had_fail_at_once(lane: str) -> None:
    counts = {"a": 10.0, "b": 1e308, "c": 1001.0, "d": 10.0}
    limit = Limit(tpm=1000, tokens=lambda completion: counts[completion])
    with Dispatcher([on_lane(functions.one, lane, limit=limit, retries=3)], workers=1) as made:
        result = made.submit(completions=list(counts)).result(timeout=100)
    assert result.status.ravel().tolist() == [Status.OK, Status.ERROR, Status.ERROR, Status.OK]
    assert [(failure.sample, failure.attempts) for failure in result.failures()] == [(1, 1), (2, 1)]
    reason = result.failures()[1].reason
    assert "this request takes 1001 tokens, as Limit(tokens=) counts them, and tpm=1000 allows fewer" in reason
    says = r"tokens=1001, tpm=1000\): one call needs more tokens than a minute allows"
    with pytest.raises(RegistrationError, match=says):
        Limit(tpm=1000, tokens=1001)
    known = reward(functions.one, limit=Limit(key="tokens", tpm=1000), name="known")
    with pytest.raises(RegistrationError, match=r"tokens=1001, tpm=1000\)"):
        Dispatcher([known, reward(functions.one, limit=Limit(key="tokens", tokens=1001), name="other")])


def test_counts_are_corrected_by_what_calls_tell() -> None:
    limit = Limit(tpm=62_500, tokens=lambda completion: 1000)
    with Dispatcher([on_lane(functions.telling, "asyncio", limit=limit)]) as made:
        assert 30 * 0.048 - 0.1 <= took(made, 30) < 20  # 1000 tokens each: 29 s


def test_tokens_are_counted_from_columns_of_all_kinds_and_in_an_open_batch() -> None:
    seen: list[tuple[str, int]] = []

    def count(text: str, allowance: int, *, more: int = 0) -> float:
        seen.append((text, allowance))
        return 1.0

    limited = on_lane(functions.one, "asyncio", limit=Limit(tpm=1e9, tokens=count))
    with Dispatcher([limited]) as made:
        pending = made.stream(num_generations=1)
        pending.add(completions=["a", [{"role": "assistant", "content": "b"}]], allowance=[1, 2])
        pending.add(completions=["c"], allowance=[3])
        pending.finish()
        assert pending.result().rewards.ravel().tolist() == [1.0] * 3
        assert seen == [("a", 1), ("b", 2), ("c", 3)]
        with pytest.raises(DataError, match=r"'allowance', which this batch doesn't have"):
            made.score(completions=["a"])


def test_uncountable_tokens_are_refused_before_any_call() -> None:
    def made(tokens: Any) -> Dispatcher:
        return Dispatcher([on_lane(functions.one, "asyncio", limit=Limit(tpm=100, tokens=tokens))])

    def score(tokens: Any) -> None:
        with made(tokens) as dispatcher:
            dispatcher.score(completions=["a"])

    for counted in (None, float("nan"), -1, True, "7"):
        says = re.escape(f"'one', Limit(tokens=), gave {counted!r} for sample 0")
        with pytest.raises(DataError, match=says):
            score(lambda completion, counted=counted: counted)
    with pytest.raises(DataError, match=r"gave (no repr|<int instance.*) for sample 0"):
        score(lambda completion: 10**5000)  # too long to be shown
    with pytest.raises(DataError, match=r"'one, Limit\(tokens=\)' asks for"):
        score(lambda nothing: 1)
    with pytest.raises(DataError, match="sample 0: ZeroDivisionError"):
        score(lambda completion: 1 // 0)
    with pytest.raises(RegistrationError, match="log_metric: it only counts"):
        made(lambda completion, log_metric: 1.0)
    with pytest.raises(RegistrationError, match="takes \\*columns"):
        made(lambda *columns: 1.0)


def test_later_may_be_any_real_number() -> None:
    assert str(RetryAfter(Fraction(1, 3))) == "try again after 0.333333 s"  # type: ignore[arg-type]  # as it comes from arithmetic


def test_one_call_that_tells_of_impossible_tokens_holds_up_none() -> None:
    """A server reports a wrong use."""
    function = reward(
        lambda completion: {"score": 1.0, "usage": 1e308}, name="f", lane="thread", limit=Limit(tpm=6e6, tokens=10)
    )
    with Dispatcher([function]) as made:
        assert (made.submit(completions=["x"] * 10).result(timeout=60).status == Status.OK).all()

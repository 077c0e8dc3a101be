"""Tokens, prices, caps and kept answers of judges, against a server that sends a bill."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guerdon import Dispatcher, Limit, RegistrationError, Status, http_reward, reward
from guerdon._functions.build import spec_of
from guerdon._system.launcher import run_id
from tests.clock import eventually
from tests.http.billing import PRICE, Billing
from tests.http.published_forms import answered
from tests.http.scoring import asked, judging, scored
from tests.http.server import chat_completion, serving, silent
from tests.lanes.lane_helpers import ours

ROOT = Path(__file__).parents[2]
FAULTS = ("500", "429", "words", "hang", "cut")
NOWHERE = "http://127.0.0.1:9/v1"


asks = partial(judging, pure=False)


@pytest.mark.parametrize(
    "body", [{"max_tokens": 20}, {"parameters": {"max_tokens": 20}}, {"extra_body": {"max_completion_tokens": 20.0}}]
)
def test_a_request_bounds_its_answer_at_any_depth(body: dict[str, Any]) -> None:
    [plan] = spec_of(judging(NOWHERE, body=body, price=PRICE)).plans
    assert plan.cost.longest_answer == 20


def test_usage_of_a_judge_is_in_result_stats_and_log() -> None:
    logged: dict[str, float] = {}
    billing = Billing()
    with (
        serving(billing) as server,
        Dispatcher([asks(server.url, price=PRICE), reward(lambda text: 1.0, name="own")], log_metrics="all") as one,
    ):
        result = one.score(completions=[str(n) for n in range(8)], num_generations=4)
        used = result.usage["judge"]
        assert list(result.usage) == ["judge"], "the other makes no requests"
        assert used == {
            "requests": 8,
            "unknown": 0,
            **{name: billing.tokens[name] for name in ("prompt_tokens", "cached_tokens", "completion_tokens")},
            "reasoning_tokens": 8,
            "cost": pytest.approx(billing.cost()),
        }
        assert "8 requests: 828 prompt + 64 completion tokens, 428 cached, 8 of reasoning, cost 0.001654" in repr(
            result
        )
        assert pickle.loads(pickle.dumps(result)).usage == result.usage
        batch: dict[str, Any] = {"prompts": ["p"] * 2, "completions": ["20", "21"], "log_metric": logged.__setitem__}
        for column in one.reward_funcs:
            column(**batch)  # type: ignore[operator]
        assert logged["guerdon/judge/prompt_tokens"] == 241
        assert logged["guerdon/judge/requests"] == 2
        assert "guerdon/own/requests" not in logged
        assert logged["guerdon/judge/cost"] + used["cost"] == pytest.approx(billing.cost())
        assert one.stats()["usage"]["judge"]["cost"] == pytest.approx(billing.cost()), "of the run"
        assert "own" not in one.stats()["usage"]


@pytest.mark.parametrize(("votes", "each"), [(1, 1), (3, 2)])  # two votes that agree decide
@pytest.mark.fault(
    "the dispatcher is closed while judges are being asked",
    sees="`cancelled`; answers count by their tokens, requests in flight as `unknown`",
)
def test_requests_in_flight_at_close_are_counted_as_unknown(votes: int, each: int) -> None:
    billing = Billing()
    unanswered: list[str] = []

    def answer(path: str, body: dict[str, Any]) -> Any:
        if "stuck" in body["messages"][0]["content"]:
            unanswered.append(path)
            return silent
        return billing(path, body)

    with serving(answer) as server:
        dispatcher = Dispatcher([asks(server.url, price=PRICE, votes=votes, temperature=0.7)], max_failure_rate=1.0)
        pending = dispatcher.submit(completions=["1", "2", "3 stuck", "4 stuck", "5 stuck"])
        eventually(lambda: len(unanswered) >= 3 * each)
        eventually(lambda: dispatcher.stats()["usage"]["judge"]["requests"] >= 2 * each)
        dispatcher.close()
        result = pending.result()
    used = result.usage["judge"]
    assert (used["requests"], used["unknown"]) == (5 * each, 3 * each)
    assert used["prompt_tokens"] == billing.tokens["prompt_tokens"]
    assert used["cost"] == pytest.approx(billing.cost())
    assert result.status.ravel().tolist() == [Status.OK] * 2 + [Status.CANCELLED] * 3


def test_without_a_price_there_is_no_cost() -> None:
    with serving(Billing()) as server:
        result = scored(asks(server.url), ["1"])
        assert math.isnan(result.usage["judge"]["cost"])
        assert result.usage["judge"]["prompt_tokens"] == 101
        assert "cost" not in repr(result)


def test_a_reward_service_may_report_too() -> None:
    def answer(path: str, body: dict[str, Any]) -> Any:
        count = len(body["completions"])
        return {"rewards": [1.0] * count, "usage": {"prompt_tokens": 10 * count, "total_tokens": 10 * count}}

    service = partial(http_reward, columns=["completion"])
    result, _ = asked(answer, ["a"] * 8, make=service, batch_size=4, price={"input": 1e6, "output": 0})
    used = result.usage["http_reward"]
    assert result.rewards.ravel().tolist() == [1.0] * 8
    assert (used["requests"], used["prompt_tokens"], used["cost"]) == (2, 80, 80.0)
    result, _ = asked(lambda path, body: {"score": 1.0}, make=service)
    used = result.usage["http_reward"]
    assert (used["requests"], used["unknown"], used["prompt_tokens"]) == (1, 1, 0)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(st.sampled_from(FAULTS), max_size=3), min_size=1, max_size=12), st.integers(0, 3))
def test_counted_tokens_equal_billed_ones(faults: list[list[str]], retries: int) -> None:
    """Each request counts once: retries, unparsable answers, timeouts and broken answers too."""
    billing = Billing()
    texts = [" ".join([str(sample), *kinds]) for sample, kinds in enumerate(faults)]
    with serving(billing) as server:
        result = scored(asks(server.url, price=PRICE, retries=retries, timeout=1.5), texts)
    used, bill = result.usage["judge"], billing.tokens
    assert used["requests"] == sum(billing.requests.values())
    assert used["unknown"] == billing.requests["hang"] + billing.requests["cut"]
    for name in ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens"):
        assert used[name] == bill[name], name
    assert used["cost"] == pytest.approx(billing.cost())


def test_calls_beyond_the_cap_fail_at_once_and_the_policy_says_what_happens() -> None:
    billing = Billing()
    with serving(billing) as server:
        one = {"input": 1e4, "output": 0.0}  # 1.01 a call
        limit = Limit(rpm=240, concurrency=1)
        capped = asks(server.url, price=one, max_cost=4.0, on_failure=-1.0, limit=limit)
        with Dispatcher([capped], max_failure_rate=1.0) as dispatcher:
            start = time.monotonic()
            result = dispatcher.score(completions=["1"] * 500)
            assert time.monotonic() - start < 30, "at 240 a minute 500 would take two"
            values = result.rewards.ravel()
            assert (values == 1).sum() == 3 == sum(billing.requests.values())
            assert (values == -1).sum() == 497
            failures = result.failures()
            assert len(failures) == 497
            assert {one.status for one in failures} == {Status.ERROR}
            reason = failures[0].reason
            assert "max_cost=4 of 'judge' is reached: 3.030000 spent on 3 requests, about 1.010000 each" in reason
            assert failures[0].attempts == 1
            assert result.usage["judge"]["cost"] == pytest.approx(3.03)
            again = dispatcher.score(completions=["1"] * 4)
            assert len(again.failures()) == 4, "it is the run's cap"


@pytest.mark.fault(
    "a judge under `max_cost` hangs, or its answers name no tokens",
    sees="what such requests cost counts by estimate: the cap is reached, and says so",
)
def test_requests_whose_cost_nobody_knows_count_toward_the_cap() -> None:
    with serving(Billing()) as server:
        one = {"input": 1e4, "output": 0.0}  # 1.01 a call
        capped = asks(server.url, price=one, max_cost=4.0, limit=Limit(concurrency=1), timeout=1.5, retries=0)
        result = scored(capped, ["1", *[f"{number} hang" for number in range(2, 6)]])
    reasons = [failure.reason for failure in result.failures()]
    assert sum("no answer within" in reason for reason in reasons) == 2
    assert "1.010000 spent on 1 requests and about 2.020000 on 2 of unknown cost, about 1.010000 each" in reasons[-1]
    assert result.usage["judge"]["cost"] == pytest.approx(1.01)


def test_the_cap_is_passed_by_no_more_than_what_is_in_flight_costs_beyond_the_mean() -> None:
    def answer(path: str, body: dict[str, Any]) -> Any:
        tokens = 1 + len(body["messages"][0]["content"]) % 7
        return {**chat_completion("1"), "usage": {"prompt_tokens": tokens, "completion_tokens": 0}}

    with serving(answer, delay=0.002) as server:
        capped = asks(server.url, price={"input": 1e6, "output": 0}, max_cost=300, limit=Limit(concurrency=16))
        result = scored(capped, ["x" * (n % 50) for n in range(400)])
    cost = result.usage["judge"]["cost"]
    assert 300 - 16 * 7 <= cost <= 300 + 16 * (7 - 4 + 1), cost


@pytest.mark.parametrize("reports", [True, False], ids=["with usage", "without"])
@pytest.mark.parametrize("max_tokens", [50, None])
def test_a_cap_is_exceeded_by_no_more_than_one_request(reports: bool, max_tokens: int | None) -> None:
    bill: list[int] = []

    def answer(path: str, body: dict[str, Any]) -> Any:
        # The first ones are cheap, so that a mean of them says little of the others.
        tokens = 2 if len(bill) < 20 else 5 + len(bill) * 7 % 4
        bill.append(tokens)
        usage = {"prompt_tokens": 0, "completion_tokens": tokens} if reports else None
        return {**chat_completion("1"), "usage": usage}

    with serving(answer, delay=0.002) as server, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        price = {"input": 0, "output": 1e6}
        capped = asks(server.url, price=price, max_cost=400, limit=Limit(concurrency=64), max_tokens=max_tokens)
        result = scored(capped, ["x"] * 300)
    assert sum(bill) <= 400 + 50, sum(bill)
    assert len(bill) == result.usage["judge"]["requests"] < 300
    if reports:
        assert sum(bill) >= 400 - 50, "the cap is used"
    said = [str(each.message) for each in ours(caught)]
    assert sum("report no tokens" in each for each in said) == (not reports)
    assert sum("max_cost= of 'judge' without max_tokens=" in each for each in said) == (max_tokens is None)


def test_cache_writes_have_their_price() -> None:
    cached = {"cache_creation_input_tokens": 1000, "cache_read_input_tokens": 100}
    reply = {**answered("anthropic", "Score: 7"), "usage": {"input_tokens": 10, **cached, "output_tokens": 5}}
    plain = {"input": 3.0, "output": 15.0}
    for price, cost in (({**plain, "cached": 0.3, "cache_write": 3.75}, 30 + 30 + 3750 + 75), (plain, 3330 + 75)):
        result, _ = asked(lambda path, body: reply, api="anthropic", price=price)
        assert result.usage["judge"]["cost"] == pytest.approx(cost / 1e6)


def test_a_dispatchers_cap_is_for_all_its_functions() -> None:
    with serving(Billing()) as server:
        one, two = (asks(server.url, price={"input": 1e4, "output": 0}, name=name) for name in ("one", "two"))
        free = asks(server.url, name="free")
        with Dispatcher([one, two, free], max_cost=6.0, max_failure_rate=1.0) as dispatcher:
            result = dispatcher.score(completions=["1"] * 1, num_generations=1)
            result = dispatcher.score(completions=["1"] * 40, num_generations=4)
            stats = dispatcher.stats()["usage"]
        spent = stats["one"]["cost"] + stats["two"]["cost"]
        assert 4.0 < spent <= 6.0
        assert {failure.function for failure in result.failures()} == {"one", "two"}
        assert "max_cost=6 of the dispatcher is reached" in result.failures()[0].reason
        assert stats["free"]["requests"] == 41


def test_the_answers_of_a_judge_are_kept_also_where_it_has_no_score() -> None:
    result, _ = asked(Billing(), ["7", "8 words", "9 500"], keep_answers=True)
    extra = result.extra
    assert extra["judge/answer"] == ["Score: 7", "no idea", None]
    assert extra["judge/request_id"] == ["answer-7-1", "answer-8-1", None]
    assert extra["judge/model"] == ["judge-2026", "judge-2026", None]
    assert extra["judge/prompt_tokens"] == [107, 108, None]
    assert extra["judge/finish_reason"] == [None] * 3
    np.testing.assert_array_equal(result.status.ravel(), [Status.OK, Status.ERROR, Status.ERROR])


def test_a_dispatcher_needs_a_price_for_its_cap() -> None:
    with pytest.raises(RegistrationError, match="none of the functions has a price="):
        Dispatcher([judging(NOWHERE)], max_cost=1.0)
    with pytest.raises(RegistrationError, match="max_cost=-1"):
        Dispatcher([judging(NOWHERE, price=PRICE)], max_cost=-1)


def ranks(url: str, folder: Path, count: int, **environment: str) -> tuple[list[int], list[subprocess.Popen[str]]]:
    """Ranks that share a cap, started together: their requests, and the processes, still alive."""
    env = {**os.environ, "GUERDON_LIMITS_DIR": str(folder), "CAP": "8", **environment}
    for name in ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"):
        env.pop(name, None)
    command = [sys.executable, "-m", "tests.http.billing", url, "100"]
    pipe = subprocess.PIPE
    started = [subprocess.Popen(command, env=env, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) for _ in range(count)]
    return [int(process.stdout.readline()) for process in started if process.stdout], started


def end(processes: list[subprocess.Popen[str]], kill: bool = False) -> None:
    for process in processes:
        if kill:
            process.kill()
        process.communicate("\n", timeout=60)


@pytest.mark.fault(
    "a rank that shares a cap on costs is killed",
    sees="what it had spent counts; its requests in flight are forgotten",
)
def test_ranks_share_a_cap_as_long_as_one_of_them_lives(tmp_path: Path) -> None:
    billing = Billing()
    with serving(billing, delay=0.02) as server:
        requests, processes = ranks(server.url, tmp_path, 2)
        assert sum(requests) == sum(billing.requests.values())
        assert 6.5 < sum(requests) * 0.201 <= 8.0, "0.201 a call, 8 in flight"
        end(processes[:1], kill=True)
        later, more = ranks(server.url, tmp_path, 1)
        assert later == [0], "one lives: it is the same run"
        end([*processes[1:], *more])
        later, more = ranks(server.url, tmp_path, 1)
        end(more)
        assert later[0] > 0, "a run of its own"


def test_a_run_with_a_name_keeps_its_cap_when_all_ranks_start_again(tmp_path: Path) -> None:
    with serving(Billing()) as server:
        first, processes = ranks(server.url, tmp_path, 1, GUERDON_RUN_ID="run-1")
        end(processes, kill=True)
        again, processes = ranks(server.url, tmp_path, 1, GUERDON_RUN_ID="run-1")
        end(processes)
        other, processes = ranks(server.url, tmp_path, 1, GUERDON_RUN_ID="run-2")
        end(processes)
    assert first[0] > 0
    assert again == [0]
    assert other[0] > 0


def test_the_name_of_a_run() -> None:
    assert run_id({}) == run_id({"TORCHELASTIC_RUN_ID": "none"}) == ""
    assert run_id({"TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "17"}) == "17"
    assert run_id({"TORCHELASTIC_RUN_ID": "a", "SLURM_JOB_ID": "17"}) == "a"
    assert run_id({"GUERDON_RUN_ID": "mine", "TORCHELASTIC_RUN_ID": "a"}) == "mine"


def test_a_run_of_ray_is_its_session_and_job(monkeypatch: pytest.MonkeyPatch) -> None:
    session = "session_2026-11-23_07-14-05_123456_1"
    context = SimpleNamespace(get_session_name=lambda: session, get_job_id=lambda: "01000000")
    ray: Any = SimpleNamespace(is_initialized=lambda: True, get_runtime_context=lambda: context)
    monkeypatch.setitem(sys.modules, "ray", ray)
    assert run_id({}) == "2026-11-23_07-14-05_123456_1-01000000"
    assert run_id({"SLURM_JOB_ID": "17", "TORCHELASTIC_RUN_ID": "none"}).endswith("-01000000")
    assert run_id({"TORCHELASTIC_RUN_ID": "a"}) == "a"
    assert run_id({"GUERDON_RUN_ID": "mine"}) == "mine"
    ray.is_initialized = lambda: False
    assert run_id({"SLURM_JOB_ID": "17"}) == "17"
    # An older Ray has no session's name; another module of that name has nothing.
    ray.is_initialized = lambda: True
    del context.get_session_name
    assert run_id({}) == ""
    monkeypatch.setitem(sys.modules, "ray", object())
    assert run_id({"SLURM_JOB_ID": "17"}) == "17"

"""The measured costs of a function: waiting, memory, lanes, groups; services whose servers fail;
the clocks of the check `clock`."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from guerdon import Limit, StatefulReward, Status, http_reward, reward
from guerdon._functions.build import spec_of
from guerdon.profile import Case, Score, measurement
from guerdon.profile.advice import advise
from guerdon.profile.checks.stability import CHECKS
from guerdon.profile.finding import Finding
from guerdon.profile.function_profile import times_of
from guerdon.profile.measurement import Measurement
from guerdon.profile.measurement_findings import measurement_findings
from guerdon.profile.stand_in import CLOCKS
from guerdon.profile.subject import Subject
from tests.clock import one_of_three
from tests.http.server import serving
from tests.profile.functions import (
    LoadedReward,
    awaits,
    blocks,
    of_a_batch,
    ranks,
    remembers,
    sleeps,
    spins,
    waits_and_blocks,
)
from tests.profile.measuring import measured

ROWS = [{"prompt": str(row), "completion": "x" * (row % 7)} for row in range(24)]


@pytest.mark.parametrize(
    ("function", "computes", "lane"),
    [
        (spins, True, "process"),
        (sleeps, False, "thread"),
        (awaits, False, "asyncio"),
        (remembers, None, "asyncio"),
        (blocks, True, "process"),
        (waits_and_blocks, False, "thread"),
    ],
)
def test_calls_are_measured_and_a_coroutine_that_blocks_its_loop_is_found(
    function: Any, computes: bool | None, lane: str
) -> None:
    def check() -> None:
        spec = reward(function).spec
        found = measured(reward(function), ROWS)
        assert len(found.seconds) == len(ROWS)
        assert found.worker_bytes > 1_000_000
        times = times_of(found.seconds)
        assert times is not None
        if computes is not None:
            assert found.cpu_s is not None
            assert (found.cpu_s > 0.5) is computes
            assert 0.003 < times["p50_s"] < 1.0
        said = [each.message for each in measurement_findings(spec, found) if each.check == "blocking"]
        assert len(said) == (function in (blocks, waits_and_blocks))
        assert all("4 calls at once took as long as one after another" in message for message in said)
        assert all(f'lane="{lane}"' in message for message in said)
        assert [advise(spec, found, p99).lane for p99 in (times["p99_s"], 0.01)] == [lane] * 2

    one_of_three(check)  # where others have the cores, a computing function waits


def test_a_coroutine_whose_calls_wait_for_each_other_does_not_block_its_loop() -> None:
    one_at_a_time = asyncio.Semaphore(1)

    async def limited(completion: str) -> float:
        async with one_at_a_time:
            return await awaits(completion)

    def check() -> None:
        found = measured(reward(limited), ROWS)
        assert len(found.seconds) == len(ROWS)
        assert not found.blocks

    one_of_three(check)


def test_a_stateful_reward_and_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement, "_MOST_REPEATS", 16)  # its calls are short
    found = measured(reward(LoadedReward()), ROWS, memory_limit=500_000_000)
    assert found.worker_bytes > 60_000_000
    assert not found.failures


def test_groups_and_batches() -> None:
    rows = [{"prompt": f"p{row // 4}", "completion": "x"} for row in range(24)]
    grouped = measured(ranks, rows)
    assert (grouped.calls, len(grouped.seconds)) == ("group", 6)
    whole = measured(of_a_batch, rows)
    assert (whole.calls, len(whole.seconds), whole.rows_of_call) == ("batch", 1, 24)


class AsyncRanked(StatefulReward):
    async def score(self, completion: str) -> float:
        await asyncio.sleep(0.01)
        return float(len(completion))

    def finish_group(self, scores: list[float], **columns: object) -> list[float | None]:
        return [score - min(scores) for score in scores]


def test_an_async_function_that_finishes_groups_is_measured() -> None:
    rows = [{"prompt": f"p{row // 4}", "completion": "x" * row} for row in range(8)]
    found = measured(AsyncRanked(), rows)
    assert (len(found.seconds), found.blocks, found.failures) == (8, False, [])


def test_a_signal_while_its_folder_is_made_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = os.mkdir

    def interrupted(path: str, mode: int) -> None:
        make(path, mode)
        raise KeyboardInterrupt

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "mkdir", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measured(reward(sleeps), ROWS)
    assert list(tmp_path.iterdir()) == []


def test_after_some_hangs_the_rest_is_left_out() -> None:
    def never(completion: str) -> float:
        while True:
            time.sleep(0.01)

    found = measured(reward(never), [{"completion": "x"}] * 200, timeout=0.2)
    assert found.seconds == []
    assert found.counts()["timeout"] >= 3
    assert found.unmeasured > 100


@pytest.mark.parametrize("step", ["_time", "_is_over"])
def test_calls_count_for_whose_repetition_there_is_no_time(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    run = getattr(measurement, step)

    def too_late(*given: Any) -> Any:
        subject = next(each for each in given if isinstance(each, Subject))
        subject.deadline = time.monotonic()
        return run(*given)

    monkeypatch.setattr(measurement, step, too_late)
    found = measured(reward(sleeps), ROWS)
    assert 0 < found.answered == len(found.seconds) == len(ROWS) - found.unmeasured
    assert min(found.seconds) >= 0.01
    assert not found.failures


@pytest.mark.parametrize("whole_batch", [False, True])
def test_a_first_call_that_fails_or_has_one_row_of_a_batch_stands_for_no_other(
    monkeypatch: pytest.MonkeyPatch, whole_batch: bool
) -> None:
    def fails(completion: str) -> float:
        raise ValueError("the first row")

    def together(completions: list[str], **columns: Any) -> list[float]:
        return [1.0] * len(completions)

    def too_late(found: Any, subject: Subject, cases: Any, run: Any = measurement._time) -> None:
        subject.deadline = time.monotonic()
        run(found, subject, cases)

    monkeypatch.setattr(measurement, "_time", too_late)
    found = measured(together if whole_batch else reward(fails), ROWS)
    assert (found.seconds, found.failures, found.unmeasured) == ([], [], len(ROWS))


@pytest.mark.parametrize(("seconds", "workers"), [(0.01, 2), (0.55, 8)])
def test_checks_of_calls_that_wait_for_long_have_more_workers(seconds: float, workers: int) -> None:
    def waits(completion: str) -> float:
        time.sleep(seconds)
        return 0.0

    with Subject(reward(waits), ROWS[:4]) as subject:
        assert not measurement.measure(subject, subject.samples()).failures
        assert subject.workers == workers


@pytest.mark.parametrize("status", [Status.ERROR, Status.TIMEOUT, Status.CRASHED])
@pytest.mark.parametrize("function", [awaits, sleeps])
def test_advice_waits_for_a_function_that_works(function: Any, status: Status) -> None:
    spec = spec_of(reward(function))
    found = Measurement("sample", failures=[(Case(0, "x"), Score(None, status, "no"))] * 3, cpu_s=0.9)
    advice = advise(spec, found, None)
    assert (advice.lane, advice.timeout, advice.decorator) == (spec.lane, None, None)
    assert "every call failed" in advice.lane_reason


def test_the_line_to_paste_keeps_other_options() -> None:
    slow = reward(sleeps, retries=3, limit=Limit(concurrency=4), memory_limit="1GB", timeout=9)
    found = Measurement("sample", seconds=[0.5] * 9, cpu_s=0.01)
    advice = advise(spec_of(slow), found, 0.5)
    assert advice.decorator is not None
    assert advice.decorator.startswith('@reward(lane="thread", timeout=5, retries=3, limit=Limit(concurrency=4')
    assert "memory_limit" not in advice.decorator
    assert advice.timeout_reason == "10 × p99 of 0.5 s, rounded up"


@pytest.mark.parametrize(("own", "slowest", "advised"), [(0.5, 0.00004, 0.5), (0.5, 0.3, 1.0), (30, 0.00004, 1.0)])
def test_a_shorter_timeout_with_room_stays(own: float, slowest: float, advised: float) -> None:
    found = Measurement("sample", seconds=[slowest / 2] * 8 + [slowest], cpu_s=0.9)
    advice = advise(spec_of(reward(sleeps, timeout=own)), found, slowest / 10)
    assert advice.timeout == advised
    assert advice.decorator is not None
    assert f"timeout={advised:g}" in advice.decorator


LETTERS = [{"prompt": "p", "completion": f"{row} words"} for row in range(8)]


def found(answer: Any) -> list[Finding]:
    with serving(answer) as server, Subject(http_reward(server.url, retries=0, name="service"), LETTERS) as subject:
        return [finding for check in CHECKS for finding in check.run(subject)]


def test_random_faults_of_a_service_are_its_servers() -> None:
    asked = []

    def answer(path: str, body: dict[str, Any]) -> Any:
        asked.append(body["completion"])
        if body["completion"] == "3 words" and asked.count("3 words") == 2:
            return 503, {"error": "restarting"}
        return {"score": float(body["completion"][0])}

    (finding,) = found(answer)
    assert (finding.check, finding.severity) == ("fails", "warning")
    assert "failed on 1 of 8 samples in one of two runs" in finding.message
    assert [example.row for example in finding.examples] == [3]


def test_a_service_that_changes_its_mind_is_found() -> None:
    asked = []

    def answer(path: str, body: dict[str, Any]) -> Any:
        asked.append(body["completion"])
        return {"score": float(asked.count(body["completion"]))}

    assert [(finding.check, finding.severity) for finding in found(answer)] == [("repeat", "error")]


DAY = 86400
MIDNIGHT = 1_795_478_400
ASKED: dict[str, Callable[[datetime], object]] = {
    "parity of the day": lambda at: int(at.timestamp() // DAY % 2),
    "day of the month and hour": lambda at: (at.day, at.hour),
    "weekday": lambda at: at.weekday(),
    "month": lambda at: at.month,
}


@pytest.mark.parametrize("asked", ASKED)
def test_no_minute_hides_what_depends_on_the_time(asked: str) -> None:
    look = ASKED[asked]
    for minute in range(2 * 24 * 60):
        now = MIDNIGHT + 60 * minute
        shown = {look(datetime.fromtimestamp(now + ahead, UTC)) for ahead in (0.0, *CLOCKS.values())}
        assert len(shown) > 1, f"minute {minute}: every clock shows the same"

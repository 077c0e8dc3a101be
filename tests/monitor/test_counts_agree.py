"""The trainer's log, the journal, Prometheus, the report and the result give the same counts of one
run."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from guerdon import Cache, Dispatcher, Journal, read_journal, reward
from guerdon._batch.trainer.metrics import metrics_of
from guerdon._insight.journal.parts import find_parts
from guerdon._insight.report.aggregates import aggregates
from guerdon._insight.report.summary import summarise
from guerdon.results.status import Status
from tests.monitor import reading

GROUPS, SIZE, BATCHES = 4, 4, 3
FRACTIONS = {f"{status}_frac": status for status in ("timeout", "error", "crashed", "abstained", "skipped")}
NAMES = ("fails", "hangs", "crashes", "shared", "retried", "gated", "kept")

Counts = dict[str, dict[str, int]]


@reward(lane="thread", max_failure_rate=1.0)
def fails(completion: str) -> float | None:
    """An error for each fourth sample, no opinion on each second."""
    number = int(completion)
    if number % 4 == 1:
        raise ValueError("no number")
    return None if number % 2 == 0 else float(number)


@reward(lane="process", timeout=0.3, grace=0.1, max_failure_rate=1.0)
def hangs(completion: str) -> float:
    if int(completion) % 8 == 3:
        time.sleep(60)
    return 1.0


@reward(lane="thread", pure=True)
def shared(completion: str) -> float:
    """Called once for all equal completions of a batch."""
    return float(len(completion))


@reward(lane="process", max_failure_rate=1.0)
def crashes(completion: str) -> float:
    if int(completion) == 5:
        os._exit(1)
    return 1.0


_tried: set[str] = set()


@reward(lane="thread", retries=1)
def retried(completion: str, row: str) -> float:
    """The first attempt of each eighth sample fails."""
    if int(completion) == 6 and row not in _tried:
        _tried.add(row)
        raise ValueError("once more")
    return float(completion)


@reward(lane="thread", run_if={"retried": "> 3"})
def gated(completion: str) -> float:
    return 1.0


def length(completion: str) -> float:
    return float(len(completion))


def of_log(logs: list[dict[str, float]]) -> Counts:
    samples = GROUPS * SIZE
    return {
        name: {
            status: sum(round(log[f"guerdon/{name}/{key}"] * samples) for log in logs)
            for key, status in FRACTIONS.items()
            if status != "skipped" or name == "gated"
        }
        for name in NAMES
    }


def without_zeros(counts: Counts, *, ok: bool = True) -> Counts:
    return {
        name: {status: int(count) for status, count in sorted(each.items()) if count and (ok or status != "ok")}
        for name, each in counts.items()
    }


@pytest.mark.parametrize("steps", [True, False], ids=["with steps", "without steps"])
def test_all_five_give_the_same_counts(tmp_path: Path, steps: bool) -> None:
    result_counts: Counts = {name: Counter() for name in NAMES}
    attempts: Counter[str] = Counter()
    unmade: dict[str, Counter[str]] = {"shared": Counter(), "cached": Counter()}
    logs = []
    kept = reward(length, name="kept", lane="thread", pure=True, cache=Cache(tmp_path / "cache"))
    functions = [fails, hangs, crashes, shared, retried, gated, kept]
    journal = Journal(tmp_path / "journal", run="one")
    with Dispatcher(functions, workers=2, journal=journal, metrics_port=0) as dispatcher:
        for batch in range(BATCHES):
            completions = [str(number % 8) for number in range(GROUPS * SIZE)]
            rows = [f"{steps} {batch} {number}" for number in range(GROUPS * SIZE)]
            state: dict[str, Any] = {"trainer_state": {"global_step": batch}} if steps else {}
            result = dispatcher.score(completions=completions, row=rows, num_generations=SIZE, **state)
            logs.append(metrics_of(result))
            for place, name in enumerate(result.functions):
                attempts[name] += int(result.attempts[:, :, place].sum())
                for how, counted in unmade.items():
                    counted[name] += int(result.timings[name][how])
                for status in result.status[:, :, place].ravel().tolist():
                    result_counts[name][Status(status).label] += 1
        series = reading.series(reading.families(reading.text(dispatcher)))
    journal_counts: Counts = {name: Counter() for name in NAMES}
    journal_attempts: Counter[str] = Counter()
    for row in read_journal(tmp_path / "journal", columns=["function", "status", "attempts"]).to_pylist():
        journal_counts[row["function"]][row["status"]] += 1
        journal_attempts[row["function"]] += row["attempts"]
    prometheus: Counts = {name: {} for name in NAMES}
    prometheus_unmade: dict[str, Counter[str]] = {"shared": Counter(), "cached": Counter()}
    for (metric, labels), count in series.items():
        known = dict(labels)
        if metric == "guerdon_calls_total":
            prometheus[known["function"]][known["status"]] = int(count)
        elif metric in ("guerdon_cache_shared_total", "guerdon_cache_hits_total"):
            how = "shared" if metric == "guerdon_cache_shared_total" else "cached"
            prometheus_unmade[how][known["function"]] = int(count)
    report = aggregates(summarise(find_parts(tmp_path / "journal")))["functions"]
    expected = without_zeros(result_counts)
    assert expected["fails"] == {"abstained": 24, "error": 12, "ok": 12}
    assert expected["hangs"] == {"ok": 42, "timeout": 6}
    assert expected["crashes"] == {"crashed": 6, "ok": 42}
    assert expected["gated"] == {"ok": 24, "skipped": 24}
    assert [expected[name] for name in ("shared", "retried", "kept")] == [{"ok": 48}] * 3
    assert without_zeros(journal_counts) == expected
    assert without_zeros({name: each["status"] for name, each in report.items()}) == expected
    assert without_zeros(prometheus) == expected
    assert without_zeros(of_log(logs)) == without_zeros(result_counts, ok=False)
    assert journal_attempts == attempts
    assert attempts["retried"] == 48 + 6
    assert unmade["shared"]["shared"] == 24
    assert unmade["cached"]["kept"] >= 16
    for how, counted in unmade.items():
        in_log = {
            name: sum(round(log.get(f"guerdon/{name}/{how}_frac", 0) * GROUPS * SIZE) for log in logs) for name in NAMES
        }
        assert +counted == +prometheus_unmade[how] == +Counter(in_log), how

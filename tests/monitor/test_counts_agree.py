"""The trainer's log, the journal, Prometheus, the report and the result give the same counts of one
run."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from guerdon import Dispatcher, Journal, read_journal, reward
from guerdon._batch.trainer.metrics import metrics_of
from guerdon._insight.journal.parts import find_parts
from guerdon._insight.report.aggregates import aggregates
from guerdon._insight.report.summary import summarise
from guerdon.results.status import Status
from tests.monitor import reading

GROUPS, SIZE, BATCHES = 4, 4, 3
FRACTIONS = {"timeout_frac": "timeout", "error_frac": "error", "crashed_frac": "crashed", "abstained_frac": "abstained"}

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


def of_log(logs: list[dict[str, float]]) -> Counts:
    samples = GROUPS * SIZE
    return {
        name: {
            status: sum(round(log[f"guerdon/{name}/{key}"] * samples) for log in logs)
            for key, status in FRACTIONS.items()
        }
        for name in ("fails", "hangs", "shared")
    }


def without_zeros(counts: Counts, *, ok: bool = True) -> Counts:
    return {
        name: {status: int(count) for status, count in sorted(each.items()) if count and (ok or status != "ok")}
        for name, each in counts.items()
    }


@pytest.mark.parametrize("steps", [True, False], ids=["with steps", "without steps"])
def test_all_five_give_the_same_counts(tmp_path: Path, steps: bool) -> None:
    result_counts: Counts = {name: Counter() for name in ("fails", "hangs", "shared")}
    logs = []
    journal = Journal(tmp_path / "journal", run="one")
    with Dispatcher([fails, hangs, shared], workers=2, journal=journal, metrics_port=0) as dispatcher:
        for batch in range(BATCHES):
            completions = [str(number % 8) for number in range(GROUPS * SIZE)]
            state = {"trainer_state": {"global_step": batch}} if steps else {}
            result = dispatcher.score(completions=completions, num_generations=SIZE, **state)
            logs.append(metrics_of(result))
            for place, name in enumerate(result.functions):
                for status in result.status[:, :, place].ravel().tolist():
                    result_counts[name][Status(status).label] += 1
        series = reading.series(reading.families(reading.text(dispatcher)))
    rows = read_journal(tmp_path / "journal", columns=["function", "status"]).to_pylist()
    journal_counts: Counts = {name: Counter() for name in result_counts}
    for row in rows:
        journal_counts[row["function"]][row["status"]] += 1
    prometheus: Counts = {name: {} for name in result_counts}
    for (metric, labels), count in series.items():
        if metric == "guerdon_calls_total":
            known = dict(labels)
            prometheus[known["function"]][known["status"]] = int(count)
    report = aggregates(summarise(find_parts(tmp_path / "journal")))["functions"]
    expected = without_zeros(result_counts)
    assert expected["fails"] == {"abstained": 24, "error": 12, "ok": 12}
    assert expected["hangs"] == {"ok": 42, "timeout": 6}
    assert expected["shared"] == {"ok": 48}
    assert without_zeros(journal_counts) == expected
    assert without_zeros({name: each["status"] for name, each in report.items()}) == expected
    assert without_zeros(prometheus) == expected
    assert without_zeros(of_log(logs)) == without_zeros(result_counts, ok=False)

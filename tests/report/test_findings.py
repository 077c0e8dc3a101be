"""The sentences with which a report opens: which of them a journal brings forth."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from guerdon._insight.report.findings import findings, seconds
from tests.journal_files import START, row, table, training, write_journal, write_part
from tests.report.conftest import figures


def sentences(folder: Path, rows: Iterable[dict[str, Any]], **dispatcher: Any) -> dict[str, str]:
    """The findings on these rows: message to severity."""
    journal = write_journal(folder, rows, dispatcher=dispatcher)
    return {each["message"]: each["severity"] for each in findings(figures(journal))}


def some(found: dict[str, str], beginning: str) -> tuple[str, str]:
    [(message, severity)] = [each for each in found.items() if each[0].startswith(beginning)]
    return message, severity


def steps(count: int = 20, groups: int = 2, generations: int = 4) -> list[dict[str, Any]]:
    """The places of `count` steps."""
    return [
        {"batch": step, "step": step, "group": sample // generations, "sample": sample}
        for step in range(count)
        for sample in range(groups * generations)
    ]


def test_the_truths_of_a_run_are_sentences(tmp_path: Path) -> None:
    found = sentences(tmp_path, training())
    message, severity = some(found, "quality failed on 2.3 % of its samples, most of all at step 1")
    assert message.endswith("Most common (60): TimeoutError: no answer within 30 s.")
    assert severity == "warning"
    assert some(found, "format no longer tells samples of a group apart: 100 % of its groups")[1] == "warning"
    assert "careful gave 7 to every sample: it tells nothing apart." in found
    assert some(found, "From step 0 to 39, the total reward rose: from 1.81 to 2.46")[1] == "info"
    assert some(found, "correct and correct_strict say nearly the same")[1] == "info"
    assert some(found, "format has 2 versions in this journal; the latest begins at step 20")[1] == "info"
    assert some(found, "Judges cost 2.50 in all, 0.98 for each thousand")[1] == "info"
    assert list(found.values()) == sorted(found.values(), reverse=True)  # warnings first


def test_function_that_abstains_on_most_samples_is_named(tmp_path: Path) -> None:
    rows = [
        row(**each, **({"value": None, "reward": None, "status": "abstained"} if each["sample"] else {"value": 1.0}))
        for each in steps()
    ]
    assert some(sentences(tmp_path, rows), "correct abstained on 88 % of its samples")[1] == "warning"


@pytest.mark.parametrize("groups", [4, 16])
def test_one_step_of_a_few_groups_does_not_lose_its_spread(tmp_path: Path, groups: int) -> None:
    rows = [row(**each, value=float(each["sample"] % 2 and each["step"] < 11)) for each in steps(12, groups)]
    found = sentences(tmp_path, rows)
    assert any("no longer tells samples" in message for message in found) == (groups == 16), found


def test_answers_of_identical_calls_are_no_latencies(tmp_path: Path) -> None:
    rows = [row(**each, run_s=0.0 if each["sample"] % 2 else 2.0) for each in steps()]
    assert some(sentences(tmp_path, rows), "correct has the longest calls: half of them take over 2")


def test_batches_of_a_run_without_steps_are_numbered_from_0(tmp_path: Path) -> None:
    rows = [row(**{**each, "batch": 7 * 10**8 + each["step"] * 1000, "step": None}) for each in steps()]
    for each in rows:
        each["value"] = each["reward"] = float(each["batch"] % 3 or each["sample"] % 2)
    found = sentences(tmp_path, rows)
    assert any(message.startswith("From batch 0 to 19, ") for message in found), found


def test_a_falling_reward_is_a_warning(tmp_path: Path) -> None:
    rows = [row(**each, value=1 - each["step"] / 20 + each["sample"] % 2) for each in steps()]
    assert some(sentences(tmp_path, rows), "From step 0 to 19, correct fell: from 1.48 to 0.575")[1] == "warning"


def test_a_short_run_moves_by_chance(tmp_path: Path) -> None:
    """Four steps of eight samples: their means differ by half a standard deviation."""
    rows = [row(**each, value=float(each["sample"] % 2) - each["step"] / 12) for each in steps(4)]
    found = sentences(tmp_path, rows)
    assert some(found, "From step 0 to 3, correct stayed about the same")[1] == "info"
    assert "the longest over" in some(found, "correct has the longest calls")[0]


def test_a_reward_that_stays_is_no_news(tmp_path: Path) -> None:
    found = sentences(tmp_path, [row(**each, value=float(each["sample"] % 2)) for each in steps()])
    assert some(found, "From step 0 to 19, correct stayed about the same: near 0.5")[1] == "info"
    assert "No call failed." in found
    assert "Every group tells its samples apart: none has the same total reward throughout." in found


def test_groups_that_are_too_hard_or_too_easy_are_separated(tmp_path: Path) -> None:
    """One of the two groups of a step has only zeros, or in the second half only ones."""
    rows = [row(**each, value=float(each["sample"] % 2 if each["group"] else each["step"] >= 10)) for each in steps()]
    message, severity = some(sentences(tmp_path, rows), "50 % of the groups teach nothing")
    assert "Of these 50 % have all samples at the highest reward (too easy), 50 % at the lowest (too hard)." in message
    assert severity == "warning"


def test_functions_that_work_against_each_other_are_named(tmp_path: Path) -> None:
    rows = [row(**each, value=float(each["sample"] % 3)) for each in steps()]
    rows += [row(**each, function="short", value=-float(each["sample"] % 3)) for each in steps()]
    found = sentences(tmp_path, rows)
    assert found["correct and short pull in opposite directions (correlation -1.00)."] == "warning"


@pytest.mark.parametrize(
    ("lane", "attempts", "why"),
    [
        (None, 1, "for a free worker or thread: "),
        ("process", 1, "for a free worker (workers=3): "),
        ("thread", 1, "for a free thread: "),
        ("asyncio", 1, "because it blocks its event loop ("),
        ("asyncio", 3, "and 67 % of its attempts were repeats: its server refuses them (429), or "),
    ],
)
def test_calls_that_mostly_wait_are_named(tmp_path: Path, lane: str | None, attempts: int, why: str) -> None:
    waits = {"run_s": 0.2, "queue_s": 3.0, "attempts": attempts}
    rows = [row(**each, value=float(each["sample"] % 2), **waits) for each in steps()]
    found = sentences(tmp_path, rows, **({} if lane is None else {"lanes": {"correct": lane}, "workers": 3}))
    message, severity = some(found, "Calls of correct wait longer than they run")
    assert severity == "warning"
    assert f" medians), {why}" in message


def test_calls_that_wait_for_workers_are_named_beside_longer_ones(tmp_path: Path) -> None:
    rows = []
    for each in steps():
        rows.append(row(**each, value=float(each["sample"] % 3), run_s=2.0))
        rows.append(row(**each, function="short", value=float(each["sample"] % 2), run_s=0.1, queue_s=1.5))
    message, severity = some(sentences(tmp_path, rows), "Calls of short wait longer than they run")
    assert severity == "warning"
    assert "for a free worker or thread" in message


def test_a_judge_that_is_held_back_is_named_beside_longer_calls(tmp_path: Path) -> None:
    rows = []
    for each in steps():
        rows.append(row(**each, value=float(each["sample"] % 3), run_s=2.0))
        judged = {"run_s": 0.05, "queue_s": 15.0, "prompt_tokens": 100, "completion_tokens": 5}
        rows.append(row(**each, function="helpful", value=float(each["sample"] % 2), **judged))
    found = sentences(tmp_path, rows)
    assert some(found, "Requests of helpful wait longer than they run (15 s and 4")[1] == "warning"
    assert not [message for message in found if message.startswith("Calls of helpful wait")]


@pytest.mark.parametrize(("run_s", "queue_s"), [(4e-5, 0.3), (None, 3.0)])
def test_two_rows_that_wait_for_workers_to_start_are_no_news(
    tmp_path: Path, run_s: float | None, queue_s: float
) -> None:
    rows = [row(batch=0, step=0, sample=each, value=1.0, run_s=run_s, queue_s=queue_s) for each in range(2)]
    assert not [message for message in sentences(tmp_path, rows) if "wait longer" in message]


def restarted(folder: Path, later: float) -> list[str]:
    """Findings on two processes of one rank: the second begins `later`, and writes steps 3 to 7."""
    folder.mkdir()
    for pid, first, begin in ((41, 0, 0.0), (42, 3, later)):
        rows = [
            row(batch=step, step=step, sample=sample, submitted=START + timedelta(seconds=begin + step))
            for step in range(first, first + 5)
            for sample in range(2)
        ]
        write_part(folder, table(rows), rank=0, pid=pid, part=0, run="run-1")
    return [each["message"] for each in findings(figures(folder)) if "processes" in each["message"]]


def test_steps_that_a_run_wrote_twice_are_named_and_concurrent_processes_share_a_step(tmp_path: Path) -> None:
    (message,) = restarted(tmp_path / "again", 100.0)
    assert message.startswith("Steps 3 to 4 were written by 2 processes, one after another (run 'run-1', rank 0)")
    assert restarted(tmp_path / "shared", 0.0) == []


def test_several_runs_and_damage_are_findings(tmp_path: Path) -> None:
    write_journal(tmp_path, [row(), row(run="other")])
    (tmp_path / "run-1-r0-1-00001.parquet").write_bytes(b"damaged")
    found = findings(figures(tmp_path))
    assert found[0]["message"].startswith("Not all of the journal could be read: run-1-r0-1-00001.parquet")
    assert any(each["message"].startswith("2 runs are shown together") for each in found)


def test_a_reward_that_is_nearly_always_the_same_is_a_warning(tmp_path: Path) -> None:
    rows = [row(**each, function="known", value=float(place > 0)) for place, each in enumerate(steps())]
    message, severity = some(sentences(tmp_path, rows), "known gave the reward 1 to ")
    assert message.endswith(" % of the samples: it hardly distinguishes them.")
    assert severity == "warning"


def test_of_many_alike_a_few_are_shown(tmp_path: Path) -> None:
    rows = [row(**each, function=f"f{number}", value=1.0) for each in steps() for number in range(9)]
    found = sentences(tmp_path, rows)
    constant = [message for message in found if "gave 1 to every sample" in message]
    assert len(constant) == 3
    assert constant[-1].endswith("The same holds for 6 more, see the tables or --json.")
    assert len(found) <= 12


def test_times_have_two_digits() -> None:
    shown = [seconds(value) for value in (2e-6, 0.00999, 0.999, 1.26, 119, 600, 1e4)]
    assert shown == ["2 µs", "10 ms", "1 s", "1.3 s", "2 min", "10 min", "2.8 h"]


def test_function_that_always_abstains_is_a_warning(tmp_path: Path) -> None:
    rows = [row(**each, status="abstained", reward=None) for each in steps()]
    message, severity = some(sentences(tmp_path, rows), "correct abstained on all of its 160 samples")
    assert severity == "warning"
    assert "forget a return" in message


def test_the_function_with_the_most_time_is_named(tmp_path: Path) -> None:
    rows = [row(batch=0, sample=each, run_s=1.0 + each / 100) for each in range(4)]
    rows += [row(batch=0, sample=each, function="quick", run_s=0.1 + each / 100) for each in range(4)]
    message, severity = some(sentences(tmp_path, rows), "correct has the longest calls")
    assert message.endswith(" It takes 90 % of the time of all calls (4.1 s of 4.5 s).")
    assert severity == "info"

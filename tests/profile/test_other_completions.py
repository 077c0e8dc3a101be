"""Completions that are neither texts nor conversations are checked like others."""

from __future__ import annotations

from typing import Any

import pytest

from guerdon import DataError
from guerdon.profile import Subject, audit, measurement, profile
from guerdon.profile.checks import CHECKS
from guerdon.profile.finding import Check
from tests.profile.functions import by_the_clock, empties, of_texts, shared_state, sizes, sound, sound_batch

INSPECTED = {"clock", "threads", "arguments"}
NUMBERS = [*range(40, 48)]
TEXTS = [str(number) for number in NUMBERS]
BYTES = [str(number).encode() for number in NUMBERS]


def rows(completions: list[Any]) -> list[dict[str, Any]]:
    return [{"prompt": f"row {place}", "completion": each} for place, each in enumerate(completions)]


def inspecting() -> list[Check]:
    return [check for check in CHECKS if check.id in INSPECTED]


@pytest.mark.parametrize(
    ("function", "completions", "found"),
    [
        pytest.param(sound, BYTES, set(), id="sound"),
        pytest.param(by_the_clock, NUMBERS, {"clock"}, id="clock"),
        pytest.param(shared_state, BYTES, {"threads"}, id="threads"),
        pytest.param(sound_batch, NUMBERS, set(), id="sound batch"),
        pytest.param(empties, BYTES, {"arguments"}, id="arguments"),
    ],
)
def test_findings_of_the_checks_are_reported(function: object, completions: list[Any], found: set[str]) -> None:
    assert {finding.check for finding in audit(function, rows(completions), checks=inspecting())} == found


def test_a_profile_leaves_no_check_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement, "_MOST_REPEATS", 16)  # no subject of this
    found = profile([sound], rows(NUMBERS), checks=inspecting()).functions["sound"]
    assert set(found.checks) >= INSPECTED
    assert not [finding for finding in found.findings if "Not checked" in finding.message]


def test_a_function_of_texts_says_what_it_needs() -> None:
    with pytest.raises(DataError, match="an int; `text` needs a str or a list of messages"):
        audit(of_texts, rows(NUMBERS), checks=inspecting())


def test_rows_without_a_completion_are_left_out_and_counted() -> None:
    data: list[dict[str, Any]] = [{"prompt": f"p{n // 4}", "completion": f"{n}"} for n in range(16)]
    data[5]["completion"] = None
    del data[6]["completion"]
    data.append({"prompt": "of its own"})
    found = profile([sound, sizes], data, checks=[])
    assert (found.rows, found.left_out, found.to_dict()["left_out"]) == (17, 3, 3)
    # calls of samples, and of groups
    assert [len(found.functions[name].seconds) for name in ("sound", "sizes")] == [14, 3]
    measured = {name: each.measurement for name, each in found.functions.items()}
    assert [each and each.unmeasured for each in measured.values()] == [0, 2]
    with Subject(sizes, data) as subject:
        assert [score.value for score in subject.score(subject.samples(), group=subject.group_size)] == [4.0] * 12

"""A report finds the votes, panels and comparisons among functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journal_files import row, write_journal
from tests.report.conftest import figures


def test_comparisons_that_contradict_themselves_are_counted(tmp_path: Path) -> None:
    rows = [
        row(sample=sample, function="better", value=0.5, extra={"comparisons": 4.0, "ties": 1.0, "flips": flips})
        for sample, flips in enumerate([0.0, 1.0, 2.0, 1.0])
    ]
    [judge] = figures(write_journal(tmp_path, rows))["judges"].values()
    assert judge["kind"] == "comparisons"
    assert judge["agreement"] == pytest.approx(0.75)


@pytest.mark.parametrize(
    "extra", ["", "{", "[1]", "null", '"x"', "1, 2", '{"agreement": "much"}', '{"a": 1e999, "b": 1}']
)
def test_odd_extra_is_passed_over(tmp_path: Path, extra: str) -> None:
    voted = '{"agreement": 1, "votes": [1]}'
    rows = [row(sample=place, function="careful", extra=extra if place else voted) for place in range(3)]
    [judge] = figures(write_journal(tmp_path, rows))["judges"].values()
    assert judge["samples"] == 1


def test_only_the_members_that_the_journal_names_are_a_panel(tmp_path: Path) -> None:
    """Other numbers around the reward are none, and members may all lie on one side of it."""
    rows = []
    for place in range(50):
        other = {"precision": 0.0, "recall": 1.0}
        rows.append(row(sample=place, value=0.5, extra=other))
        members = {"small": 1.0, "large": 2.0 if place % 2 else 1.0, "words": 3.0 * place}
        rows.append(row(sample=place, function="quality", value=9.0, extra=members))
    [(name, judge)] = figures(write_journal(tmp_path, rows))["judges"].items()
    assert (name, judge["kind"], judge["samples"], judge["agreement"]) == ("quality", "panel", 50, 0.5)
    assert [pair["members"] for pair in judge["pairs"]] == [["small", "large"]]


def test_a_function_that_records_an_agreement_is_no_vote(tmp_path: Path) -> None:
    rows = [row(sample=place, extra={"agreement": 0.5}) for place in range(8)]
    assert figures(write_journal(tmp_path, rows))["judges"] == {}

"""Combinations that tests show to work, recorded for docs/compatibility.md.

A test notes the cell of a table that it speaks for, with the fixture `compatibility`. With
``--record-compatibility`` the outcomes go into tests/compatibility/<table>.json, row by row: rows
that the run doesn't touch stay. `scripts/compatibility-table` makes the page of these files.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent
NOTHING = "–"
FAILS = "fails"

Note = Callable[..., None]


@pytest.fixture
def compatibility(record_property: Callable[[str, object], None]) -> Note:
    """Notes what the test shows if it passes; several tests may note the same cell."""

    def note(table: str, row: str, column: str, cell: str = "works", packages: tuple[str, ...] = ()) -> None:
        """Notes a cell.

        Args:
            table: The name of its file.
            row: Of the table, such as a version.
            column: What the test is about.
            cell: What the page says if all tests of the cell pass.
            packages: Whose versions the page names.
        """
        versions = {name: metadata.version(name) for name in packages}
        record_property("compatibility", [table, row, column, cell, versions])

    return note


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-compatibility", action="store_true", help="write what the tests show into tests/compatibility/"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record-compatibility") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(FOLDER))


class Recorder:
    """Collects the notes of a run and writes them at its end.

    Args:
        folder: Where the tables are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cells: dict[tuple[str, str, str], list[str]] = {}
        self._versions: dict[tuple[str, str], dict[str, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        for name, value in report.user_properties:
            if name == "compatibility":
                table, row, column, cell, versions = value  # type: ignore[misc]
                found = cell if report.passed else NOTHING if report.skipped else FAILS
                self._cells.setdefault((table, row, column), []).append(found)
                self._versions.setdefault((table, row), {}).update(versions)

    def pytest_sessionfinish(self) -> None:
        for table in sorted({table for table, _, _ in self._cells}):
            path = self._folder / f"{table}.json"
            rows: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            rows.update(self._rows(table))
            rows = dict(sorted(rows.items()))
            path.write_text(json.dumps(rows, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def _rows(self, table: str) -> Mapping[str, Any]:
        rows: dict[str, Any] = {}
        for (its, row, column), found in self._cells.items():
            if its == table:
                made = rows.setdefault(
                    row,
                    {
                        "cells": {},
                        "recorded": datetime.date.today().isoformat(),
                        "versions": self._versions[table, row],
                    },
                )
                made["cells"][column] = _together(found)
        return rows


def _together(found: list[str]) -> str:
    """The text of a cell, made of those of its tests."""
    shown = sorted(set(found) - {NOTHING})
    if FAILS in shown:
        return FAILS
    return ", ".join(shown) or NOTHING

"""Tables of what a run of the benches measured, in units that the targets are given in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass
class Row:
    """One line of a table: named quantities of one contender."""

    name: str
    cells: dict[str, float]
    target: str = ""


@dataclass
class Tables:
    """Tables by title, rows in the order of the run."""

    rows: dict[str, list[Row]] = field(default_factory=dict)

    def add(self, title: str, name: str, cells: dict[str, float], target: str = "") -> None:
        self.rows.setdefault(title, []).append(Row(name, cells, target))

    def lines(self) -> Iterator[str]:
        for title, rows in self.rows.items():
            heads = list(rows[0].cells)
            yield f"### {title}"
            yield ""
            yield "| | " + " | ".join([*heads, "target"]) + " |"
            yield "| --- |" + " ---: |" * len(heads) + " --- |"
            for row in rows:
                cells = [f"{row.cells[head]:.3g}" if head in row.cells else "" for head in heads]
                yield f"| {row.name} | " + " | ".join([*cells, row.target]) + " |"
            yield ""


_TABLES = Tables()


@pytest.fixture(scope="session")
def tables() -> Tables:
    return _TABLES


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for line in _TABLES.lines():
        terminalreporter.write_line(line)

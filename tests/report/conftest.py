"""A report with hostile texts, and the browser, for the tests of ``guerdon report``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from guerdon._insight.journal.parts import find_parts
from guerdon._insight.report.aggregates import aggregates
from guerdon._insight.report.html import render
from guerdon._insight.report.summary import summarise

# Fixtures, which pytest takes from here by their names.
from tests.browser import browser, open_page  # noqa: F401
from tests.journal_files import training, write_journal


def figures(folder: Path, *, recover: bool = True, **options: Any) -> dict[str, Any]:
    return aggregates(summarise(find_parts(folder, recover=recover), **options))


def make_page(folder: Path, page: Path, **options: Any) -> Path:
    """The report on the journal in `folder`, written to `page`."""
    summary = summarise(find_parts(str(folder)), **options)
    page.write_text(render(summary, aggregates(summary), "0"), encoding="utf-8")
    return page


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report on `tests.journal_files.training`, with hostile texts."""
    folder = tmp_path_factory.mktemp("report")
    journal = write_journal(folder / "journal", training(texts=True), texts=True, columns=["answer"])
    return make_page(journal, folder / "report.html", texts=True)

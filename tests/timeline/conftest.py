"""What the tests of timelines share: one run with something of everything, and the browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from guerdon.cli import main

# Fixtures, which pytest takes from here by their names.
from tests.browser import browser, open_page  # noqa: F401
from tests.timeline.example_run import record


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The timeline of `example_run`: timeouts, a crash, retries, a limit."""
    path = tmp_path_factory.mktemp("example") / "run.pftrace"
    record(path, samples=24, pause_s=0.05)
    return path


@pytest.fixture(scope="session")
def example_page(example: Path) -> Path:
    """The page of it."""
    page = example.with_name("timeline.html")
    assert main(["trace", str(example), "--html", str(page)]) == 0
    return page

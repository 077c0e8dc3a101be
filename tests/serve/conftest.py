"""One server for the tests that change nothing in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serve.serving import RunningServer, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with serving(tmp_path_factory.mktemp("served")) as one:
        yield one

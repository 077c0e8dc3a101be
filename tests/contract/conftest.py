"""What the searches of batches and of streams have in common."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from guerdon import Dispatcher
from tests.contract.scripted_functions import EVERY_LANE


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def every_lane() -> Iterator[Dispatcher]:
    with Dispatcher(EVERY_LANE, workers=2, max_failure_rate=1.0) as made:
        yield made

"""What the searches of batches and of streams have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.scripted_functions import EVERY_LANE
from tests.simple import shared_dispatcher

every_lane = shared_dispatcher(EVERY_LANE, workers=2, max_failure_rate=1.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")

"""All tests with trainers need an environment that is set before any test module imports the
libraries that read it, and trainers that leave nothing running.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is looked up or reported
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # else a thread that stays


@pytest.fixture
def trainers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ends the event loops of trainers that a test makes, and hides TRL's experimental warnings."""
    from tests.integrations.trl.tiny_trainer import end_loops

    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    yield
    end_loops()

"""Fixtures of several tests of code rewards."""

from __future__ import annotations

import pytest

from guerdon.rewards.code.trusted import judge


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trusted side has half a second beside a program's time."""
    monkeypatch.setattr(judge, "BESIDE_S", 0.5)
    monkeypatch.setattr(judge, "REFERENCE_S", 0.5)

"""Fixtures of several tests of code rewards."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from guerdon.rewards.code.factory import CodeReward
from guerdon.rewards.code.trusted import judge
from tests.code.programs import judged


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that others may enter, which they may not do with pytest's."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trusted side has half a second beside a program's time."""
    monkeypatch.setattr(judge, "BESIDE_S", 0.5)
    monkeypatch.setattr(judge, "REFERENCE_S", 0.5)


@pytest.fixture(scope="module")
def every() -> Iterator[CodeReward]:
    """A reward with the usual options, whose sandbox is warm."""
    with judged() as reward:
        yield reward


@pytest.fixture(scope="module")
def tested() -> Iterator[CodeReward]:
    """One that judges by the tests of a row, each for its share."""
    with judged(check="test", prelude="starter", score="share") as reward:
        yield reward


@pytest.fixture(scope="module")
def all_tested() -> Iterator[CodeReward]:
    """One that judges by the tests of a row, which must all pass."""
    with judged(check="test", prelude="starter") as reward:
        yield reward

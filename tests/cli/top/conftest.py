"""Folders for sockets, dispatchers to look at, and terminals; nothing of them is left."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.top.fake_dispatcher import FakeDispatcher
from tests.cli.top.terminal import Terminal


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's runtime folder; its path is short, as that of a socket must be."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="top") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder) / "guerdon"


@pytest.fixture
def fake(runtime: Path) -> Iterator[Callable[..., FakeDispatcher]]:
    """Makes dispatchers."""
    made: list[FakeDispatcher] = []

    def make(pid: int, answer: object = None, number: int = 0) -> FakeDispatcher:
        made.append(FakeDispatcher(runtime, pid, answer, number))
        return made[-1]

    yield make
    for one in made:
        if one.path.exists():
            one.close()


@pytest.fixture
def terminal(runtime: Path) -> Iterator[Callable[..., Terminal]]:
    """Starts `guerdon top` in terminals."""
    made: list[Terminal] = []

    def make(*arguments: str, **options: object) -> Terminal:
        made.append(Terminal(*arguments, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.close()

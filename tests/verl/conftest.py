"""What differs where Ray runs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ray keeps its log files open in the process that drove it, and its folder: so here only
    test_reward_loop.py looks, for processes. Temporary files go where pytest removes them.
    """
    patch = pytest.MonkeyPatch()
    patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("t")))  # short: Ray makes sockets below
    patch.setattr(tempfile, "tempdir", None)
    yield
    patch.undo()

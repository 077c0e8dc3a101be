"""What differs where Ray runs: its own files and descriptors stay; of Guerdon nothing does."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ray keeps its log files open in the process that drove it, and its folder: so here each
    cluster looks for processes. Temporary files go where pytest removes them."""
    patch = pytest.MonkeyPatch()
    # short: Ray makes sockets below
    patch.setenv("TMPDIR", tempfile.mkdtemp(prefix="g", dir="/tmp"))
    patch.setattr(tempfile, "tempdir", None)
    patch.setenv("GUERDON_LIMITS_DIR", str(tmp_path_factory.mktemp("limits")))
    yield
    shutil.rmtree(tempfile.gettempdir(), ignore_errors=True)
    patch.undo()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A `Nodes` for all tests: it takes a while to start."""
    pytest.importorskip("ray")
    from tests.ray.nodes import Nodes, wait_until_gone

    found = Nodes()
    yield found
    found.close()
    wait_until_gone()

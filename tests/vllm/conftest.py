"""Tests with a real vLLM server, which `make test-vllm` runs in an environment of its own; elsewhere they are not collected."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from importlib.util import find_spec
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.vllm.server import Server

collect_ignore_glob = [] if find_spec("vllm") else ["*"]


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left() -> Iterator[None]:
    """In place of the whole suite's: no process. TRL's trainer and vLLM leave threads, and with them the queues that these
    hold, to the exit."""
    yield
    gc.collect()
    resource_tracker._resource_tracker._stop()  # what a spawned process needs, and multiprocessing keeps
    left = {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}
    assert not left, f"the tests left processes behind: {left}"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model made on the spot, in a folder that trainer and server read."""
    from tests.vllm.server import make_model

    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests. A test that kills it starts it again."""
    from tests.vllm.server import Server

    server = Server(model, tmp_path_factory.mktemp("server") / "log")
    try:
        server.start()
        yield server
    finally:
        server.stop()

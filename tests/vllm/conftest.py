"""Tests with a real vLLM server, which `make test-vllm` runs in an environment of its own;
elsewhere they are not collected.

There is one server for all of them. It starts before the tests are collected, because it takes as
long to be ready as this process takes to import what they need.
"""

from __future__ import annotations

import gc
import importlib
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.vllm.server import Server

collect_ignore_glob = [] if find_spec("vllm") else ["*"]

_SERVER = pytest.StashKey["Server"]()


def pytest_sessionstart(session: pytest.Session) -> None:
    if not collect_ignore_glob and not session.config.option.collectonly:
        _launch(session.config)
        # An import in a test's module would make its warnings errors
        with warnings.catch_warnings(action="ignore"):
            importlib.import_module("tests.vllm.training")


def pytest_unconfigure(config: pytest.Config) -> None:
    _end(config)


def _launch(config: pytest.Config) -> Server:
    from tests.vllm.model import make_model
    from tests.vllm.server import Server

    folder = Path(tempfile.mkdtemp(prefix="vllm-model-"))
    server = Server(make_model(folder / "model"), folder / "log")
    config.stash[_SERVER] = server
    server.launch()
    return server


def _end(config: pytest.Config) -> None:
    server = config.stash.get(_SERVER, None)
    if server is not None:
        del config.stash[_SERVER]
        server.stop()
        shutil.rmtree(server.model.parent)


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Replaces the suite's check: no process is left. TRL's trainer and vLLM leave threads, and
    the queues that these hold, to the exit.
    """
    yield
    server = request.config.stash.get(_SERVER, None)
    if server is not None and request.session.testsfailed:
        sys.stderr.write(f"The end of the server's log:\n{server.tail()}\n")
    _end(request.config)
    gc.collect()
    left = {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}
    # Multiprocessing's own, which ends with this process
    left.discard(str(resource_tracker._resource_tracker._pid))
    assert not left, f"the tests left processes behind: {left}"


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Server:
    """One server for all tests, ready. A test that kills it starts it again."""
    server = request.config.stash.get(_SERVER, None) or _launch(request.config)
    server.wait()
    return server


@pytest.fixture(scope="session")
def model(server: Server) -> Path:
    """The folder of the server's model and its tokenizer."""
    return server.model

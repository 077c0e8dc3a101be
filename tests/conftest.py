"""Settings of the whole run: hypothesis searches alike, and the suite leaves nothing behind.

``pytest --hypothesis-profile=search tests/contract`` looks for new examples, many of them; the
default is the same few in every run, so that a red run means a change and not luck.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, find, settings, strategies

from tests import reruns, warm_programs
from tests.compatibility import recorder
from tests.compatibility.recorder import compatibility  # noqa: F401
from tests.processes import descriptors

# the machine may be busy with other things
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("default", derandomize=True, deadline=None, suppress_health_check=SLOW)
settings.register_profile("search", max_examples=1000, deadline=None, suppress_health_check=SLOW, print_blob=True)
settings.load_profile("default")

# Longer than what any test leaves running in an abandoned thread.
PATIENCE_S = 40.0
# Descriptors that may stay open, by kind. The engine's runtime lives as long as the process: its
# poller, twice, and what wakes it. The client of Jupyter's kernels has an event loop, a poller and
# a pair of sockets (tests/serialization/test_notebooks.py).
MAY_STAY = {"eventpoll": 2 + 1, "eventfd": 1, "socket": 2}


def pytest_addoption(parser: pytest.Parser) -> None:
    recorder.pytest_addoption(parser)
    reruns.pytest_addoption(parser)


def pytest_configure(config: pytest.Config) -> None:
    recorder.pytest_configure(config)
    reruns.pytest_configure(config)
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", 0):  # who collects
        gc.disable()  # importing and collecting leave next to no garbage


def pytest_collection_finish() -> None:
    # Hypothesis makes its random generator here. Later it would find no reference to it, and warn:
    # since Python 3.14 the dictionary that has it is frozen too.
    find(strategies.none(), lambda _: True)
    _freeze()
    gc.enable()


def _freeze() -> None:
    """Excludes imported modules from later garbage collections: with trl each takes 400 ms."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begins with the long tests, which are marked with a timeout, where several processes run.

    A process that began one of them last would run alone at the end.
    """
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("timeout") is None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keeps tests with a costly set-up in one process: a file whose two ranks train, all warm
    programs. Others go where there is room."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if _runs_warm_programs(config.rootpath / file):
                return warm_programs.__name__
            return file if _shares_fixtures(config.rootpath / file) else nodeid

    return Scheduling(config, log)


@cache
def _shares_fixtures(path: Path) -> bool:
    """Returns whether a file of tests, or its folder, has fixtures for all of its tests."""
    return any(
        re.search(r'scope="module"|= shared_dispatcher\(', source.read_text(encoding="utf-8"))
        for source in (path, path.with_name("conftest.py"))
        if source.is_file()
    )


@cache
def _runs_warm_programs(path: Path) -> bool:
    """Returns whether tests of a file run programs in forks of `warm_programs`."""
    return re.search(r"warm_programs|run_warm_ranks|trains=True", path.read_text(encoding="utf-8")) is not None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Drops references to a test's arguments, which pytest keeps until all fixtures have ended.

    Those of the last test in a process would look like leftovers to `nothing_is_left`.
    """
    getattr(item, "funcargs", {}).clear()


@pytest.fixture(autouse=True, scope="module")
def _frozen_imports() -> Iterator[None]:
    """Excludes what a module imported when it ran, a trainer for example."""
    imported = len(sys.modules)
    yield
    if len(sys.modules) > imported + 200:
        _freeze()


@pytest.fixture(scope="session", autouse=True)
def ctrl_c() -> None:
    """A shell starts what stands in its background with SIGINT ignored, and programs that tests
    start inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fails the run if it leaves a process, a thread, a descriptor or a temporary file.

    Not one in which a test has failed: its traceback holds on to what it had in hand.
    """
    folder = tmp_path_factory.mktemp("tempfile")
    patch = pytest.MonkeyPatch()
    patch.setenv("TMPDIR", str(folder))
    patch.setattr(tempfile, "tempdir", None)
    # Made by importing torch, and meant to stay: not ours.
    patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("torch")))
    # A short path: that of a socket has a bound. Programs that tests kill leave theirs behind.
    runtime = tempfile.mkdtemp(prefix="rt", dir="/tmp")
    patch.setenv("XDG_RUNTIME_DIR", runtime)
    # Tests share no limits with what else runs on this machine.
    patch.setenv("GUERDON_LIMITS_DIR", str(tmp_path_factory.mktemp("limits")))
    threads, open_before = set(threading.enumerate()), descriptors()
    yield
    warm_programs.stop()
    gc.unfreeze()
    shutil.rmtree(runtime, ignore_errors=True)
    if request.session.testsfailed:
        patch.undo()
        return
    deadline = time.monotonic() + PATIENCE_S
    left = _left(folder, threads, open_before)
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        gc.collect()
        left = _left(folder, threads, open_before)
    patch.undo()
    assert not left, "the tests left behind: " + "; ".join(left)


def _left(folder: Path, threads: set[threading.Thread], open_before: dict[int, str]) -> list[str]:
    left = [f"process {line}" for line in _children(os.getpid())]
    left += [f"thread {thread.name}" for thread in threading.enumerate() if thread not in threads]
    left += [f"file {path}" for path in folder.iterdir()]
    new = Counter(_kind(target) for fd, target in descriptors().items() if open_before.get(fd) != target)
    left += [f"{count} descriptors of {kind}" for kind, count in new.items() if count > MAY_STAY.get(kind, 0)]
    return left


def _kind(target: str) -> str:
    """A file, or what a descriptor without one is: "socket", "eventfd", "pidfd", …"""
    kind, _, name = target.partition(":")
    return name.strip("[]") if kind == "anon_inode" else kind


def _children(pid: int) -> list[str]:
    """Processes below `pid`, each with its state (Z: ended, but not waited for)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:  # it ended meanwhile
            continue
        name, fields = text[: text.rindex(")") + 1], text[text.rindex(")") + 2 :].split()
        if int(fields[1]) == pid:
            found += [f"{name} in state {fields[0]}", *_children(int(path.parent.name))]
    return found

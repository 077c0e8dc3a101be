"""The process at the other end of a connection to a shared engine."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from guerdon._lanes.remote.shared_engine import peer
from guerdon._lanes.remote.shared_engine.meeting import JoinError
from guerdon._lanes.remote.shared_engine.peer import Peer
from tests.clock import eventually
from tests.processes import started_python

_CONNECTS = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print('yes', flush=True); "


class OldKernel:
    """A connection as Linux before 6.5 has it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        if option != socket.SO_PEERCRED:
            raise OSError(errno.ENOPROTOOPT, "no such option")
        return self._connection.getsockopt(level, option, size)


@contextmanager
def connected(tmp_path: Path, then: str) -> Iterator[tuple[socket.socket, subprocess.Popen[str]]]:
    path = os.fspath(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(1)
        with started_python(_CONNECTS + then, path, says="yes") as process, listener.accept()[0] as connection:
            yield connection, process


def assert_ends_with(handle: int, process: subprocess.Popen[str]) -> None:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    assert not poll.poll(0)
    process.kill()
    assert poll.poll(10_000)
    os.close(handle)


@pytest.mark.parametrize("old", [False, True])
def test_its_handle_tells_of_its_end(tmp_path: Path, old: bool) -> None:
    with connected(tmp_path, "s.recv(1)") as (connection, process):
        with Peer(OldKernel(connection) if old else connection) as found:  # type: ignore[arg-type]
            handle = found.detach()
        assert found.process == process.pid
        assert handle is not None
        assert_ends_with(handle, process)


def test_one_that_has_ended_is_nobody(tmp_path: Path) -> None:
    with connected(tmp_path, "pass") as (connection, process):
        process.wait()
        # A JoinError, where the kernel says so.
        with contextlib.suppress(JoinError), Peer(connection) as found:
            assert found.detach() is None, "its number means nobody"


def test_another_process_of_its_number_is_not_taken_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Linux 6.5: the number is given to another while the handle is opened."""
    read, asked = peer._fields, []

    def fields(process: int) -> list[str]:
        asked.append(process)
        found = read(process)
        found[19] = str(int(found[19]) + len(asked))
        return found

    monkeypatch.setattr(peer, "_fields", fields)
    with connected(tmp_path, "s.recv(1)") as (connection, _):
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(JoinError, match="has ended"):
            Peer(OldKernel(connection))  # type: ignore[arg-type]
        assert len(os.listdir("/proc/self/fd")) == before


def test_only_a_stopped_one_is_killed(tmp_path: Path) -> None:
    with connected(tmp_path, "s.recv(1)") as (connection, process), Peer(connection) as found:
        assert not found.kill_if_stopped()
        process.send_signal(signal.SIGSTOP)
        eventually(found.kill_if_stopped, seconds=10)
        assert process.wait(10) == -signal.SIGKILL

"""The port where metrics are served is held while the dispatcher lives, and no longer."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

import pytest

from guerdon import Dispatcher, GuerdonWarning, RegistrationError, reward
from tests.monitor import reading
from tests.monitor.reading import scripted, value
from tests.processes import descriptors, started_python


@reward
async def awaited(text: str) -> float:
    return 1.0


@pytest.mark.fault(
    "`metrics_port` is in use",
    sees="one warning with the reason; scores as without metrics",
)
def test_a_port_in_use_is_warned_of_once_and_nothing_else_happens() -> None:
    with Dispatcher([scripted], metrics_port=0) as first:
        first.score(completions=["a"])
        taken = reading.address(first)
        with Dispatcher([scripted], metrics_port=taken) as second:
            with pytest.warns(GuerdonWarning, match=r"metrics are not served: .*in use.* Choose another port") as shown:
                assert second.score(completions=["abc"]).rewards.item() == 3.0
            # Python's own may be among them, of what other tests left.
            assert len([one for one in shown if one.category is GuerdonWarning]) == 1
            assert second.score(completions=["abc"]).rewards.item() == 3.0  # without another word
            assert "in use" in second.stats()["metrics_address"]
            assert second.options["metrics_port"] == taken
        found = reading.series(reading.families(reading.text(first)))
        assert value(found, "guerdon_calls_total", function="scripted", status="ok") == 1


def test_two_dispatchers_have_ports_of_their_own() -> None:
    with Dispatcher([scripted], metrics_port=0) as first, Dispatcher([awaited], metrics_port=0) as second:
        first.score(completions=["a"])
        second.score(completions=["a", "b"])
        for dispatcher, name, count in ((first, "scripted", 1), (second, "awaited", 2)):
            found = reading.series(reading.families(reading.text(dispatcher)))
            assert value(found, "guerdon_calls_total", function=name, status="ok") == count
            assert {dict(labels)["function"] for _, labels in found if "function" in dict(labels)} == {name}


def test_each_rank_has_the_next_port_and_its_own_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("LOCAL_RANK", "3")
    # Bound here, so that nobody else gets it; who names it may listen there.
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        with Dispatcher([scripted], metrics_port=port - 3) as dispatcher:
            dispatcher.score(completions=["a"])
            assert reading.address(dispatcher) == f"127.0.0.1:{port}"
            found = reading.series(reading.families(reading.text(dispatcher)))
    assert found["guerdon_open_batches", frozenset({("rank", "5")})] == 0


@pytest.mark.parametrize(
    "wrong", [-1, 65536, "9100", "host", "host:", ":9100", "host:99999", "a b:1", 1.5, True, b"x", ""]
)
def test_invalid_addresses_are_refused(wrong: object) -> None:
    with pytest.raises(RegistrationError, match=r"metrics_port=.*expected a port from 0"):
        Dispatcher([scripted], metrics_port=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("there", ["127.0.0.1:0", "localhost:0", "0.0.0.0:0"])
def test_addresses_are_kept_and_logged(there: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="guerdon"), Dispatcher([scripted], metrics_port=there) as dispatcher:
        dispatcher.score(completions=["a"])
        assert not reading.address(dispatcher).startswith("none")
        assert f"metrics at http://{reading.address(dispatcher)}/metrics" in caplog.text
        assert dispatcher.replace(workers=1).options["metrics_port"] == there


@pytest.mark.parametrize("host", ["nowhere.invalid", "a..b", "a" * 300], ids=["unknown", "empty", "long"])
@pytest.mark.fault(
    "the host of `metrics_port` can't be found",
    sees="one warning with the reason; scores as without metrics",
)
def test_a_host_that_is_not_found_is_warned_of(host: str) -> None:
    with (
        Dispatcher([scripted], metrics_port=f"{host}:0") as dispatcher,
        pytest.warns(GuerdonWarning, match="metrics are not served"),
    ):
        assert dispatcher.score(completions=["abc"]).rewards.item() == 3.0


def test_only_asking_starts_a_thread_and_closing_ends_it_and_frees_the_port() -> None:
    before = _metrics_threads()
    with Dispatcher([scripted]) as unasked:
        unasked.score(completions=["a"])
        assert "metrics_address" not in unasked.stats()
        assert not _metrics_threads() - before
    dispatcher = Dispatcher([scripted], metrics_port=0)
    dispatcher.score(completions=["a"])
    there = reading.address(dispatcher)
    with _connected(there) as kept:
        # A thread names itself: that it has answered says that it has begun.
        assert len(_metrics_threads() - before) == 1
        dispatcher.close()
        while kept.recv(1 << 16):
            pass
    assert not _metrics_threads() - before
    with pytest.raises(ConnectionRefusedError):
        reading.connection_to(there)


@pytest.mark.fault(
    "a process that serves metrics is forked",
    sees="the child holds neither port nor socket: both are free once the parent's dispatcher is closed",
)
def test_a_forked_child_holds_nothing_of_it() -> None:
    dispatcher = Dispatcher([scripted], metrics_port=0)
    dispatcher.score(completions=["a"])
    there, path = reading.address(dispatcher), dispatcher.stats()["state_socket"]
    (reader, writer), (forked_reader, forked_writer) = os.pipe(), os.pipe()
    with _connected(there):
        child = os.fork()
        if child == 0:
            os.close(writer)
            os.write(forked_writer, b"1")
            os.read(reader, 1)  # until the parent has looked
            os._exit(0)
    try:
        os.read(forked_reader, 1)  # what follows a fork is done there
        assert "guerdon_calls_total" in reading.text(dispatcher)
        dispatcher.close()
        # Would be accepted by the kernel if the child still had the listener.
        with pytest.raises(ConnectionRefusedError):
            reading.connection_to(there)
        assert not os.path.exists(path)
        theirs = {os.readlink(fd) for fd in Path(f"/proc/{child}/fd").iterdir()}
        assert not theirs & _listening_inodes(int(there.rpartition(":")[2]))
    finally:
        for fd in (reader, writer, forked_reader, forked_writer):
            os.close(fd)
        os.waitpid(child, 0)


@pytest.mark.fault(
    "a process is forked while connections to its metrics port are opened and closed",
    sees="the child holds none of them, not even one that was just accepted",
)
def test_children_forked_while_connections_come_hold_none() -> None:
    with Dispatcher([scripted], metrics_port=0) as dispatcher:
        dispatcher.score(completions=["a"])
        ours = set(descriptors().values())
        with started_python(_BURSTS, *reading.address(dispatcher).rsplit(":", 1), says="begun"):
            left = [_sockets_of_a_child() - ours for _ in range(100)]
        assert not set().union(*left)
        assert "guerdon_calls_total" in reading.text(dispatcher)


# More at a time than the server keeps: it also closes some all the time.
_BURSTS = """
import contextlib, socket, sys
there = sys.argv[1], int(sys.argv[2])
print("begun", flush=True)
while True:
    with contextlib.ExitStack() as burst:
        for _ in range(40):
            burst.enter_context(socket.create_connection(there, timeout=20))
"""


def _sockets_of_a_child() -> set[str]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            held = [target for target in descriptors().values() if target.startswith("socket:")]
            os.write(writer, " ".join(held).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as answer:
        found = set(answer.read().split())
    os.waitpid(child, 0)
    return found


def _connected(there: str) -> socket.socket:
    """A connection that the server has taken."""
    made = reading.connection_to(there)
    made.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert made.recv(1 << 16)
    return made


def _listening_inodes(port: int) -> set[str]:
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return {f"socket:[{line.split()[9]}]" for line in lines if line.split()[1].endswith(f":{port:04X}")}


def _metrics_threads() -> set[int]:
    """Threads of this process that serve metrics; a thread that was joined is listed for a moment
    longer, as one that exits."""
    found = set()
    for path in Path("/proc/self/task").glob("*/stat"):
        try:
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
        except OSError:  # it has ended
            continue
        if name == "guerdon-metrics" and not int(rest.split()[6]) & _EXITING:
            found.add(int(path.parent.name))
    return found


_EXITING = 0x4
"""Linux's PF_EXITING, in the flags of a thread's ``stat``."""

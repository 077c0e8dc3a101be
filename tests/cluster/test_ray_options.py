"""Addresses, options and nodes of a Ray cluster, without Ray: what is refused, in which words."""

from __future__ import annotations

import contextlib
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from guerdon import Ray, RegistrationError
from guerdon._lanes.remote.ray import connection
from guerdon._lanes.remote.ray.versions import differences, installed
from tests.processes import run_python


def test_omitted_options_are_left_to_the_cluster() -> None:
    ray = Ray()
    assert (ray.address, ray.nodes, ray.cpus_per_node, ray.reserve, ray.idle_timeout) == (None, None, None, True, None)
    assert ray.start_timeout == 60.0


def test_values_are_kept_as_plain_ones() -> None:
    ray = Ray(nodes=["a", "10.0.0.2"], cpus_per_node=np.int64(4), start_timeout=np.float32(2))
    assert ray.nodes == ("a", "10.0.0.2")
    assert (type(ray.cpus_per_node), type(ray.start_timeout)) == (int, float)
    assert pickle.loads(pickle.dumps(ray)) == ray
    with pytest.raises(FrozenInstanceError):
        ray.nodes = None  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"address": ""}, "an address such as"),
        ({"address": 6379}, "an address such as"),
        ({"address": "ray://head:10001"}, "Ray Client"),
        ({"nodes": 0}, "from 1 to"),
        ({"nodes": True}, "how many nodes, or a list"),
        ({"nodes": "node-1"}, "how many nodes, or a list"),
        ({"nodes": []}, "how many nodes, or a list"),
        ({"nodes": ["a", 3]}, "how many nodes, or a list"),
        ({"nodes": ["a", "a"]}, "each node once"),
        ({"cpus_per_node": 0}, "from 1 to 4096"),
        ({"cpus_per_node": 1.5}, "from 1 to 4096"),
        ({"cpus_per_node": 5000}, "from 1 to 4096"),
        ({"reserve": 1}, "True or False"),
        ({"reserve": False}, "Give cpus_per_node="),
        ({"start_timeout": 0}, "seconds"),
        ({"start_timeout": float("inf")}, "seconds"),
        ({"idle_timeout": -1}, "seconds"),
    ],
)
def test_a_wrong_value_is_refused_with_what_would_do(options: dict[str, object], expected: str) -> None:
    with pytest.raises(RegistrationError, match=r"Ray\(") as caught:
        Ray(**options)  # type: ignore[arg-type]
    assert expected in str(caught.value)


def test_importing_it_loads_neither_ray_nor_numpy() -> None:
    code = "import sys, guerdon; guerdon.Ray(nodes=2); print({'ray', 'numpy', 'cloudpickle'} & set(sys.modules))"
    assert run_python(code).stdout.strip() == "set()"


@contextlib.contextmanager
def listening(answer: bytes, *, closes: bool) -> Iterator[str]:
    """The address of what answers so."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            accepted, _ = server.accept()
            with accepted, contextlib.suppress(ConnectionError):
                accepted.recv(1 << 16)
                accepted.sendall(answer)
                while not closes and accepted.recv(1 << 16):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(10)


@pytest.mark.fault(
    "Ray(address=…) names a port of something else, or a head that is stopped",
    sees="RegistrationError before any call, within 10 s",
)
@pytest.mark.parametrize(
    ("answer", "closes", "reason"),
    [
        (b"", False, "says nothing for 0.5 s"),
        (b"\0\0", False, "says nothing for 0.5 s"),
        (b"", True, "is no Ray: it answers b''"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", True, "is no Ray: it answers b'HTTP/1.1 '"),
        (b"-ERR unknown command\r\n", False, "is no Ray"),
    ],
    ids=["silent", "half", "closes", "http", "redis"],
)
def test_other_servers_than_ray_are_refused(
    monkeypatch: pytest.MonkeyPatch, answer: bytes, closes: bool, reason: str
) -> None:
    monkeypatch.setattr(connection, "_ANSWER_S", 0.5)
    begun = time.monotonic()
    with listening(answer, closes=closes) as address, pytest.raises(OSError, match=reason):
        connection._knock(address)
    assert time.monotonic() - begun < 10, "bounded"


def test_http_2_servers_may_be_ray() -> None:
    with listening(b"\0\0\6\4\0\0\0\0\0" + b"\0\3\0\0\0\x64", closes=False) as address:  # settings
        connection._knock(address)
    connection._knock("auto")
    connection._knock("localhost")


LACKS = "(ModuleNotFoundError: No module named 'guerdon')"


def test_differences_between_interpreters_are_clauses_and_small_steps_are_none() -> None:
    assert differences(installed(), installed()) == []
    here = {
        "Python": "3.11.2",
        "implementation": "cpython",
        "executable": "/usr/bin/python3",
        "numpy": "2.1.0",
        "cloudpickle": "3.1.0",
        "guerdon": "0.5.0",
    }
    for package, version, clauses in [
        ("Python", "3.11.9", []),
        ("numpy", "2.3.1", []),
        ("cloudpickle", "3.0.0", []),
        ("Python", "3.12.1", ["/usr/bin/python3 is cpython 3.12.1, here it is cpython 3.11.2"]),
        ("implementation", "pypy", ["/usr/bin/python3 is pypy 3.11.2, here it is cpython 3.11.2"]),
        ("guerdon", "0.5.1", ["it has guerdon 0.5.1, here it is 0.5.0"]),
        ("numpy", "1.26.4", ["it has numpy 1.26.4, here it is 2.1.0"]),
        ("guerdon", LACKS, [f"/usr/bin/python3 can't import guerdon {LACKS}"]),
    ]:
        assert differences(here, {**here, package: version}) == clauses

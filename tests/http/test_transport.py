"""How requests travel: proxies, peers that are gone, certificates, keys without TLS."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, GuerdonWarning, RegistrationError, Status, judge
from tests.clock import eventually
from tests.http.scoring import judging, only, score, scored
from tests.http.server import chat_completion, serving
from tests.http.wire import ANSWER, Handle, Wire, good, request_of, wired
from tests.lanes.lane_helpers import ours

HTTPS = "https://127.0.0.1:9/v1"


@pytest.mark.fault(
    "a firewall forgets the connections to a judge that rest",
    sees="one `timeout`: the others of these connections are not used again; all values with a retry",
)
def test_pooled_connections_that_lead_nowhere() -> None:
    count = 8
    forgotten, over, rest = threading.Event(), threading.Event(), threading.Barrier(count)

    def forgets(connection: socket.socket) -> None:
        request_of(connection)
        rest.wait(60)  # all at once, so that each has a connection of its own
        connection.sendall(ANSWER)
        forgotten.wait(60)
        request_of(connection)  # it comes, and nobody answers
        over.wait(60)

    with wired(*[forgets] * count, good) as wire:
        with Dispatcher([judging(wire.url, pure=False, timeout=6, retries=1)]) as dispatcher:
            dispatcher.score(completions=["x"] * count)
            assert wire.connections == count
            forgotten.set()
            for _ in range(2):
                result = dispatcher.score(completions=["x"])
                assert result.rewards.item() == 7.0
        over.set()
        assert result.attempts.item() == 1, "the first timeout was enough"
        assert wire.connections == count + 1


@contextmanager
def proxy(handle: Handle, no_proxy: str = "") -> Iterator[Wire]:
    """A proxy for all hosts but those of `no_proxy`."""
    with wired(handle) as wire, pytest.MonkeyPatch.context() as patch:
        patch.setenv("http_proxy", wire.url)
        for name in ("no_proxy", "NO_PROXY"):
            patch.delenv(name, raising=False)
        if no_proxy:
            patch.setenv("no_proxy", no_proxy)
        yield wire


def test_http2_is_not_spoken_to_a_proxy_that_forwards() -> None:
    requests: list[bytes] = []

    def forwards(connection: socket.socket) -> None:
        while True:
            requests.append(request_of(connection))
            connection.sendall(ANSWER)

    with proxy(forwards):
        result = score("http://judge.example/v1", http2=True)
    assert result.rewards.item() == 7.0
    assert requests[0].startswith(b"POST http://judge.example/v1/chat/completions HTTP/1.1\r\n")
    assert re.search(rb"\r\nuser-agent: guerdon/\d+\.\d+\.\d+\r\n", requests[0])


@pytest.mark.fault(
    "a proxy refuses the requests to a judge", sees="`error` that names the proxy: the judge never saw the request"
)
def test_a_proxy_that_refuses_is_named() -> None:
    def refuses(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    with proxy(refuses) as wire:
        failure = only(score("http://judge.example/v1", retries=0))
    assert failure.reason.endswith(f"(through the proxy 127.0.0.1:{wire.port})"), failure.reason


def test_no_proxy_for_all_hosts_holds_for_addresses_too() -> None:
    with wired(good) as wire, proxy(good, no_proxy="*") as unused:
        result = score(wire.url)
        assert (wire.connections, unused.connections) == (1, 0)
    assert result.rewards.item() == 7.0


def test_an_authority_of_ca_file_is_trusted_and_no_other(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made_by = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=judge.test"
    with_names = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*made_by.split(), *with_names, *files], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    with serving(lambda path, body: chat_completion("Score: 8")) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        url = server.url.replace("http", "https")
        trusting = judging(url, retries=0, ca_file=str(certificate), name="trusting")
        result = scored([trusting, judging(url, retries=0, name="other")])
    (failure,) = result.failures()
    assert result.rewards[0, 0, 0] == 8.0
    assert failure.function == "other"
    assert "ca_file" in failure.reason


@pytest.mark.fault(
    "SSL_CERT_FILE names a file that can't be used",
    sees="RegistrationError that names it; public authorities are not trusted in its place",
)
def test_authorities_of_the_system_that_can_not_be_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for path in (tmp_path / "no-such.pem", empty):
        monkeypatch.setenv("SSL_CERT_FILE", str(path))
        with pytest.raises(ValueError, match="the certificates in SSL_CERT_FILE can't be used"):
            scored(judging(HTTPS))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"ca_only": True}, "ca_only=True needs ca_file="),
        ({"client_key": "key.pem"}, "client_key= is the key of client_cert=, which is not given"),
        ({"client_cert": "/no/such"}, "client_cert='/no/such' can't be read"),
        ({"client_cert": "text", "client_key": "text"}, "client_cert= can't be used: there are none in PEM form"),
        ({"base_url": "http://127.0.0.1:9", "client_cert": "text"}, "need an https:// address"),
        ({"ca_only": 1}, "ca_only"),
    ],
)
def test_options_of_tls_that_do_not_hold_are_refused(
    options: dict[str, Any], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("hello")
    with pytest.raises(RegistrationError, match="reward function 'judge'") as raised:
        judging(HTTPS, **options)
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    ("url", "key", "warning"),
    [
        ("http://judge.example/v1", "SOME_KEY", "its API key goes to judge.example"),
        ("http://10.0.0.7:8000/v1", "SOME_KEY", "its API key goes to 10.0.0.7"),
        (
            ["http://10.0.0.7:8000/v1", "http://10.0.0.8:8000/v1", "http://127.0.0.1/v1", "https://judge.example/v1"],
            "SOME_KEY",
            "its API key goes to 10.0.0.7 and 1 more over plain http",
        ),
        ("http://judge.example/v1", None, None),
        ("https://judge.example/v1", "SOME_KEY", None),
        ("http://localhost:8000/v1", "SOME_KEY", None),
        ("http://127.0.0.2:8000/v1", "SOME_KEY", None),
        ("http://[::1]:8000/v1", "SOME_KEY", None),
    ],
)
def test_a_key_that_goes_without_tls_is_warned_of_once(url: Any, key: str | None, warning: str | None) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        judge(base_url=url, model="m", prompt="{completion}", api_key_env=key)
    assert [each.category for each in caught] == [GuerdonWarning] * (warning is not None)
    if warning is not None:
        assert warning in str(caught[0].message)
        assert caught[0].filename == __file__


@contextmanager
def taking_no_connections() -> Iterator[str]:
    """A server whose backlog is full: the kernel drops what comes now."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            one = stack.enter_context(socket.socket())
            one.settimeout(0.2)
            if one.connect_ex(listener.getsockname()):
                break
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.fault(
    "a judge's server takes no more connections",
    sees="`timeout` or `error` after `retries`: the reason says that there was no connection",
)
def test_a_server_that_takes_no_connections() -> None:
    with taking_no_connections() as url:
        failure = only(score(url, timeout=1, retries=0))
    assert failure.status is Status.TIMEOUT
    assert failure.reason.startswith("can't connect within the timeout of 1 s; ")
    assert "had not taken the connection" in failure.reason


@pytest.mark.parametrize("http2", [False, True])
def test_a_server_without_connections_is_not_reported_to_hang(http2: bool) -> None:
    """The circuit breaker opens; "the endpoint hangs" would have its user look at the judge."""
    with taking_no_connections() as url, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = score(url, [str(number) for number in range(5)], timeout=0.5, total_timeout=2, retries=0, http2=http2)
        eventually(lambda: ours(caught), "the warning comes from another thread")
    assert (result.status == Status.TIMEOUT).all()
    (message,) = {str(one.message) for one in ours(caught)}
    assert "circuit breaker open" in message
    assert "hangs" not in message
    usage = result.usage["judge"]
    assert (usage["requests"], usage["unknown"]) == (0, 0), "nothing was sent that could cost"

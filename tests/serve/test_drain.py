"""The end of a server: SIGTERM drains it, a second signal ends it at once."""

from __future__ import annotations

import asyncio
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from guerdon._serve.drain import Drain
from tests.clock import eventually as until
from tests.serve.serving import REWARDS, RunningServer, answer_of, serving
from tests.serve.test_transport import connect, read_all, request, sample

# Takes as many seconds as the text says, or until the file is there that it names.
SLOW = """
import asyncio, os
from guerdon import reward

@reward(timeout=250)
async def slow(text: str) -> float:
    if text.startswith("/"):
        while not os.path.exists(text):
            await asyncio.sleep(0.02)
    else:
        await asyncio.sleep(float(text))
    return 1.0
"""


def in_flight(one: RunningServer, count: int) -> None:
    until(lambda: one.metric("guerdon_serve_samples_in_flight") == count)


def refuses(one: RunningServer) -> bool:
    """Whether it drains: it accepts no connection."""
    try:
        connect(one).close()
    except ConnectionError:
        return True
    return False


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.fault(
    "SIGTERM while requests are in flight", sees="they are answered; no connection is accepted; exit code 0"
)
def test_requests_in_flight_are_answered(tmp_path: Path, sign: int) -> None:
    go = tmp_path / "go"
    with serving(tmp_path, functions="", text=SLOW) as one, ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(one.post, "/score", {"text": str(go)}) for _ in range(8)]
        in_flight(one, 8)
        with connect(one) as idle:
            one.process.send_signal(sign)
            until(lambda: refuses(one))
            assert not any(answer.done() for answer in asked)
            go.touch()
            code, printed = one.wait()
            assert idle.recv(1) == b"", "an idle connection is closed"
        assert [answer.result().json["reward"] for answer in asked] == [1.0] * 8
        with pytest.raises(ConnectionRefusedError):
            connect(one)
    assert code == 0
    assert "draining: 8 samples are in flight, and have 30 s" in printed
    assert len(printed.splitlines()) == 1


def test_a_body_that_is_still_to_come_holds_up_no_answer(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with serving(tmp_path, functions="", text=SLOW) as one, connect(one) as busy, connect(one) as other:
        busy.sendall(request(sample(str(go))))
        # A request is under way here, so the connection outlives the listener.
        other.sendall(request(b"{", length=1000))
        in_flight(one, 1)
        one.process.send_signal(signal.SIGTERM)
        until(lambda: refuses(one))
        go.touch()
        answer = b""
        while b'"reward":1.0' not in answer:  # head and body may come apart
            part = busy.recv(1 << 16)
            assert part, answer
            answer += part


def test_a_draining_server_is_not_ready_and_takes_nothing() -> None:
    drain = Drain()
    drain.begin()
    dispatcher = SimpleNamespace(names=("one",), _submitter=SimpleNamespace(group_function=None))
    ready, _ = asyncio.run(answer_of(dispatcher, "/ready", b"", method="GET", drain=drain))
    assert (ready.status, ready.json) == (503, {"status": "draining"})
    refused, _ = asyncio.run(answer_of(dispatcher, "/score", b'{"completion": "a"}', drain=drain))
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert "shutting down" in refused.json["error"]


@pytest.mark.fault(
    "SIGTERM, and a request takes longer than `--drain-timeout`",
    sees="it is answered by 503, its call is cancelled; exit code 0",
)
def test_late_requests_are_answered_by_503(tmp_path: Path) -> None:
    with serving(tmp_path, "--drain-timeout", "0.5", functions="", text=SLOW) as one, ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(one.post, "/score", body) for body in ({"text": "500"}, {"texts": ["500", "500"]})]
        in_flight(one, 3)
        code, _ = one.end()
        for answer in asked:
            assert answer.result().status == 503
            assert answer.result().headers["retry-after"] == "1"
    assert code == 0


@pytest.mark.fault(
    "SIGTERM, and a request's body has not come by the end of `--drain-timeout`", sees="503 at once; exit code 0"
)
def test_a_body_that_has_not_come_in_time_is_answered_by_503(tmp_path: Path) -> None:
    with serving(tmp_path, "--drain-timeout", "0.5", functions="", text=SLOW) as one, connect(one) as slow:
        slow.sendall(request(b"{", length=1000))
        until(lambda: one.metric("guerdon_serve_body_bytes") > 0)
        code, _ = one.end()
        answer = read_all(slow)
    assert answer.split(b" ", 2)[1] == b"503"
    assert b"shutting down" in answer
    assert code == 0


def test_work_that_begins_after_the_drain_is_cancelled() -> None:
    async def begin() -> bool:
        drain = Drain()
        drain.expire()
        work = asyncio.ensure_future(asyncio.sleep(30))
        drain.add(work)
        await asyncio.wait((work,), timeout=25)
        return work.cancelled()

    assert asyncio.run(begin())


@pytest.mark.fault("a second signal while a server drains", sees="it ends at once: exit code 128 + the signal")
def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with serving(tmp_path, functions="", text=SLOW) as one, connect(one) as busy:
        busy.sendall(request(sample("200")))
        in_flight(one, 1)
        one.process.send_signal(signal.SIGTERM)
        until(lambda: refuses(one))
        assert one.process.poll() is None
        code, _ = one.end(signal.SIGTERM)
    assert code == 128 + signal.SIGTERM


def test_workers_end_with_the_server(tmp_path: Path) -> None:
    with serving(tmp_path, text=REWARDS) as one:
        assert one.post("/score", {"text": "a", "label": "a"}).status == 200
        children = psutil.Process(one.process.pid).children(recursive=True)
        assert children
        assert one.end()[0] == 0
        until(lambda: not any(child.is_running() for child in children))


def test_requests_are_never_lost_by_a_drain(tmp_path: Path) -> None:
    """Each connection that was accepted is answered, or closed before its request was read."""
    answered = 0
    stop = threading.Event()
    with serving(tmp_path, functions="", text=SLOW) as one:

        def ask() -> None:
            nonlocal answered
            while not stop.is_set():
                try:
                    assert one.post("/score", {"text": "0.01"}).status in (200, 503)
                    answered += 1
                except (TimeoutError, ConnectionError, OSError):
                    return

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: answered > 20)
        code, _ = one.end()
        stop.set()
        for thread in threads:
            thread.join(20)
    assert code == 0

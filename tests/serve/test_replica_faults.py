"""Servers behind one `http_reward` on bad days: samples that kill, one that is slow, comes late or
comes back, and a trainer that is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from guerdon import Dispatcher, Limit
from tests.clock import eventually as until
from tests.serve.replicas import assert_as_serial, behind, replica
from tests.serve.serving import RunningServer

TEXTS = [f"text {index}" for index in range(400)]


def requests(one: RunningServer) -> float:
    return one.metric("guerdon_serve_requests_total")


@pytest.mark.parametrize("batch_size", [None, 8])
@pytest.mark.fault(
    "samples kill their workers on a server behind `http_reward(url=[…])`, whichever of them that is",
    sees="`crashed`, by the server's word and without another attempt; no other sample is, the servers live on",
)
def test_poison_samples(tmp_path: Path, batch_size: int | None) -> None:
    texts = [*TEXTS[:50], "poison 1", *TEXTS[50:99], "poison 2", *TEXTS[99:200]]
    with ExitStack() as stack:
        servers = [replica(stack, tmp_path / str(index)) for index in range(2)]
        with Dispatcher([behind(*(one.url for one in servers), batch_size=batch_size)]) as dispatcher:
            result = dispatcher.score(completions=texts)
        assert_as_serial(result, texts)
        assert set(result.attempts.ravel().tolist()) == {1}
        reasons = [failure.reason for failure in result.failures()]
        assert len(reasons) == 2
        assert all("SIGKILL" in reason for reason in reasons), reasons
        assert all(one.ask("GET", "/health").status == 200 for one in servers)


@pytest.mark.fault(
    "one of two servers behind `http_reward(url=[…])` is a hundred times slower than the other",
    sees="nothing: it gets few requests, each sample is scored once",
)
def test_a_slow_server(tmp_path: Path) -> None:
    with ExitStack() as stack:
        fast = replica(stack, tmp_path / "fast")
        slow = replica(stack, tmp_path / "slow", SLOW_S="1.0")
        begun = time.monotonic()
        with Dispatcher([behind(fast.url, slow.url)]) as dispatcher:
            result = dispatcher.score(completions=TEXTS)
        assert time.monotonic() - begun < 60.0, "half of them at the slow one take 100 s"
        assert_as_serial(result, TEXTS)
        assert requests(slow) < 100 < requests(fast)


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.fault(
    "a server behind `http_reward(url=[…])` is started, or killed and started again, in mid-batch at its address",
    sees="nothing: all values; it gets its share as soon as it answers",
)
def test_a_server_that_comes_in_mid_batch(tmp_path: Path, before: bool) -> None:
    texts = [f"text {index}" for index in range(2000)]  # 100 s of the first server alone
    haste = tmp_path / "haste"
    with ExitStack() as stack:
        port = stack.enter_context(kept_port())
        slow = {"SLOW_S": "0.1", "HASTE": str(haste)}
        first = replica(stack, tmp_path / "first", **slow)
        comes = replica(stack, tmp_path / "before", "--port", port, **slow) if before else None
        address = f"http://127.0.0.1:{port}"
        with Dispatcher([behind(first.url, address, limit=Limit(concurrency=4))]) as dispatcher:
            pending = dispatcher.submit(completions=texts)
            if comes is not None:
                until(lambda: requests(comes) > 10)
                comes.process.kill()
                comes.process.wait()
            until(lambda: requests(first) > 20)
            late = replica(stack, tmp_path / "late", "--port", port, HASTE=str(haste))
            until(lambda: requests(late) > 10)
            assert not pending.done, "it came in mid-batch"
            haste.touch()
            result = pending.result()
        assert_as_serial(result, texts)


@pytest.mark.fault(
    "the trainer of servers behind `http_reward(url=[…])` is killed in mid-batch",
    sees="its calls are cancelled on each of them, and another trainer is served at once",
)
def test_the_trainer_is_killed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        servers = [replica(stack, tmp_path / str(index)) for index in range(2)]
        urls = [one.url + "/score" for one in servers]
        program = (
            "from guerdon import Dispatcher, http_reward\n"
            f"served = http_reward({urls!r}, columns=['text'], name='served', timeout=60.0)\n"
            "Dispatcher([served]).score(completions=['nap'] * 16)\n"
        )
        trainer = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "GUERDON_TOP": "0"})
        try:
            until(lambda: all(in_flight(one) > 0 for one in servers))
        finally:
            trainer.send_signal(signal.SIGKILL)
            trainer.wait()
        until(lambda: all(in_flight(one) == 0 for one in servers))
        with Dispatcher([behind(*(one.url for one in servers))]) as dispatcher:
            assert_as_serial(dispatcher.score(completions=TEXTS[:40]), TEXTS[:40])


def in_flight(one: RunningServer) -> float:
    return one.metric("guerdon_serve_samples_in_flight")


@contextmanager
def kept_port() -> Iterator[int]:
    """A port that nobody else gets meanwhile; who names it may listen there."""
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        yield int(reserved.getsockname()[1])

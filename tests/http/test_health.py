"""Judges on hostile days, over real sockets: what a server does to some requests costs the others
nothing. How much it may cost is shown on a paused clock
(`rust/core/tests/core/endpoint_health`)."""

from __future__ import annotations

import socket
import threading
import time
import warnings
from typing import Any

import pytest

from guerdon import Dispatcher, Limit, Status
from tests.clock import eventually
from tests.http.scoring import judging
from tests.http.server import Handler, chat_completion, question, serving, silent
from tests.lanes.lane_helpers import ours

GOOD = chat_completion("Score: 7")
fault = pytest.mark.fault


def graded(url: str, **options: Any) -> Any:
    options = {"name": "graded", "limit": Limit(concurrency=16), **options}
    # The texts repeat, and requests are counted.
    return judging(url, max_failure_rate=1.0, pure=False, **options)


def reset(handler: Handler) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


@fault(
    "some samples make a judge's server answer 500 at every attempt, or break the connection",
    sees="`error` of these after `retries`; the others are scored meanwhile, the circuit breaker stays closed",
)
def test_samples_that_always_fail_hold_up_no_others() -> None:
    bad = {"poison 0": (500, {}), "poison 1": reset}
    texts = [*bad, *(f"good {number}" for number in range(254))]
    with (
        serving(lambda path, body: bad.get(question(body), GOOD), delay=0.01) as server,
        Dispatcher([graded(server.url)]) as dispatcher,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        result = dispatcher.submit(completions=texts).result(timeout=60)
    assert result.status.ravel().tolist() == [Status.ERROR] * 2 + [Status.OK] * 254
    assert result.attempts.ravel().tolist()[:2] == [4, 4]
    counts = result.timings["graded"]
    assert (counts["retries"], counts["deferrals"], counts["excused"]) == (6, 0, 0)
    # They are tried again behind the others.
    asked = [question(body) for body in server.bodies]
    assert max(asked[:200].count(text) for text in bad) == 1


@fault(
    "a server answers 429 without `Retry-After`, far more often than a call has retries",
    sees="all scores: the limit pauses, longer each time, and deferrals use up no retries",
)
def test_too_many_requests_without_a_time_lose_nothing() -> None:
    seconds, lock, taken = 1.0, threading.Lock(), list[float]()

    def limited(path: str, body: Any) -> Any:
        with lock:
            taken[:] = [at for at in taken if at > time.monotonic() - seconds]
            if len(taken) >= 20:
                return 429, {}
            taken.append(time.monotonic())
            return GOOD

    with serving(limited) as server, Dispatcher([graded(server.url, retries=0)]) as dispatcher:
        result = dispatcher.submit(completions=["x"] * 60).result(timeout=100)
    assert (result.status == Status.OK).all()
    counts = result.timings["graded"]
    assert counts["retries"] == 0
    assert counts["deferrals"] == result.attempts.sum() - 60 > 0


@fault(
    "a judge's server takes all requests and answers none (it hangs)",
    sees="a warning that names it after three timeouts; the circuit breaker opens after more",
)
def test_a_hung_endpoint_is_named() -> None:
    with serving(lambda path, body: silent) as server, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function = graded(server.url, timeout=0.3, retries=0, limit=Limit(concurrency=3))
        with Dispatcher([function]) as dispatcher:
            result = dispatcher.submit(completions=["x"] * 3).result(timeout=60)
            eventually(lambda: ours(caught), "the warning comes from another thread")
    assert (result.status == Status.TIMEOUT).all()
    message = str(ours(caught)[0].message)
    assert "the endpoint hangs" in message
    assert server.url.removeprefix("http://") in message

"""A judge's server as an endpoint: its limits, with the default options too."""

from __future__ import annotations

import re
import threading
import time
import warnings
from typing import Any

import pytest

from guerdon import Dispatcher, GuerdonWarning, Limit, Status, http_reward
from tests.clock import eventually
from tests.http.scoring import judging
from tests.http.server import chat_completion, free_port, serving


def test_the_tokens_of_a_judge_are_those_that_its_server_tells() -> None:
    def answer(path: str, body: dict[str, Any]) -> Any:
        return {**chat_completion("1"), "usage": {"prompt_tokens": 40, "completion_tokens": 10, "total_tokens": 50}}

    limit = Limit(tpm=62_500)  # 50 tokens a call, 49 ms each; unknown ones count as 1000, a second
    with serving(answer) as server, Dispatcher([judging(server.url, limit=limit)]) as dispatcher:
        begun = time.monotonic()
        result = dispatcher.score(completions=[f"x{index}" for index in range(30)])
        assert set(result.status.ravel().tolist()) == {Status.OK}
        assert 30 * 0.048 - 0.1 <= time.monotonic() - begun < 20


def test_calls_of_batches_in_turn_wait_for_no_other_to_end() -> None:
    at_once = 32
    all_here = threading.Barrier(at_once)

    def answer(path: str, body: dict[str, Any]) -> dict[str, Any]:
        all_here.wait(20)  # nothing is answered before all have come
        return chat_completion("7")

    with serving(answer) as server:
        limit = Limit(concurrency=at_once)
        with Dispatcher([judging(server.url, limit=limit, pure=False, timeout=20, retries=0)]) as dispatcher:
            for _ in range(60):
                result = dispatcher.score(completions=["a"] * at_once)
                assert result.rewards.ravel().tolist() == [7.0] * at_once


@pytest.mark.parametrize("batch", [None, 1])
def test_a_server_that_says_later_is_left_alone_with_the_default_options(batch: int | None) -> None:
    """What one request is told holds for all of them, though nobody set a limit."""
    came: list[float] = []

    def busy(path: str, body: dict[str, Any]) -> Any:
        came.append(time.monotonic())
        if len(came) > 1:
            return chat_completion("1") if batch is None else [1.0]

        def later(handler: Any) -> None:
            handler.wfile.write(b"HTTP/1.1 429 -\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n")

        return later

    with serving(busy) as server:
        if batch is None:
            one = judging(server.url)
        else:
            one = http_reward(server.url, columns=["completion"], batch_size=batch, name="judge")
        with Dispatcher([one]) as dispatcher:
            first = dispatcher.submit(completions=["x"])
            eventually(lambda: came and not len(dispatcher.dump()))
            time.sleep(1.0)  # its answer was read; what it says is kept some microseconds later
            dump = dispatcher.dump()
            where, seconds = dump.throttled["judge"]
            assert where.startswith(server.url)
            assert 0 < seconds <= 1.1
            said = rf"'judge': 1 sample waiting: waits for the limit of {where} until \d\d:\d\d:\d\d \(in "
            assert re.search(said, str(dump))
            (endpoint,) = dispatcher.endpoints("judge")
            assert (endpoint.deferred, endpoint.failed) == (1, 0)
            second = dispatcher.submit(completions=["y"])
            assert second.result().rewards.item() == first.result().rewards.item() == 1.0
    assert min(came[1:]) - came[0] >= 1.9


@pytest.mark.fault(
    "nothing listens at a judge's address when a batch begins, and the server starts late",
    sees="a warning that names the function and what its calls say; all values, once the server answers",
)
def test_a_server_that_starts_late_costs_no_sample_with_the_default_options() -> None:
    port = free_port()
    graded = judging(f"http://127.0.0.1:{port}", name="graded")
    with warnings.catch_warnings(record=True) as caught, Dispatcher([graded]) as dispatcher:
        warnings.simplefilter("always")
        pending = dispatcher.submit(completions=[f"x{index}" for index in range(40)])
        eventually(lambda: caught)
        with serving(lambda path, body: chat_completion("1"), port=port) as server:
            result = pending.result(timeout=100)
            assert len(server.bodies) == 40
    assert set(result.status.ravel().tolist()) == {Status.OK}
    (warning,) = (each for each in caught if issubclass(each.category, GuerdonWarning))
    message = str(warning.message)
    assert message.startswith("reward function 'graded': circuit breaker open after several failed requests")
    assert f"can't connect to 127.0.0.1:{port}" in message

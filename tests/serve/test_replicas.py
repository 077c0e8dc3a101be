"""Several servers behind one `http_reward`, which are killed, stopped and drained."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from guerdon import Dispatcher, Limit, Status, http_reward
from tests.clock import eventually as until
from tests.serve.replicas import TEXT, assert_as_serial, behind, replica
from tests.serve.serving import RunningServer, serving


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[RunningServer]]:
    with ExitStack() as stack:
        yield [replica(stack, tmp_path / str(index), text=TEXT) for index in range(3)]


@pytest.mark.parametrize("batch_size", [None, 16])
@pytest.mark.fault(
    "of three servers one is killed, one stopped and one drained in mid-batch, until none is left for a while",
    sees="nothing: every sample has the value of a serial loop; the requests in hand go to the others",
)
def test_servers_that_go_lose_nothing(three: list[RunningServer], batch_size: int | None, tmp_path: Path) -> None:
    killed, stopped, drained = three
    go = tmp_path / "go"
    # The last one is not done before all the harm is.
    texts = [*(f"text {index}" for index in range(1999)), f"wait for {go}"]
    urls = [one.url for one in three]
    served = behind(*urls, batch_size=batch_size, retries=12, limit=Limit(concurrency=64))

    def harm() -> None:
        until(lambda: count(stopped) > 50)
        killed.process.kill()
        stopped.process.send_signal(signal.SIGSTOP)
        until(lambda: count(drained) > 250)
        drained.process.send_signal(signal.SIGTERM)
        harmed.append(pending.done)
        go.touch()
        threading.Event().wait(1.5)  # nobody is left for a while
        stopped.process.send_signal(signal.SIGCONT)

    def count(one: RunningServer) -> float:
        return one.metric("guerdon_serve_requests_total") * (batch_size or 1)

    harmed: list[bool] = []
    harming = threading.Thread(target=harm)
    with Dispatcher([served]) as dispatcher:
        pending = dispatcher.submit(completions=texts)
        harming.start()
        result = pending.result()
    harming.join(60)
    assert harmed == [False], "all of it came in mid-batch"
    assert_as_serial(result, texts)
    assert drained.wait()[0] == 0


STATUSES = ["ok", "abstained", "timeout", "error", "crashed"]


@pytest.mark.parametrize("batch_size", [None, 8])
def test_http_reward_reads_statuses_as_what_they_are(served: RunningServer, batch_size: int | None) -> None:
    texts = ["a", "none", "hang", "raise", "die"]
    url = served.url + "/score?function=correct"
    reward = http_reward(url, columns=["text", "label"], batch_size=batch_size, name="served", retries=3)
    with Dispatcher([reward]) as dispatcher:
        result = dispatcher.score(completions=texts, label=["a"] * 5)
        assert [Status(status).label for status in result.status.ravel()] == STATUSES
        reasons = {failure.sample: failure.reason for failure in result.failures()}
        assert sorted(reasons) == [2, 3, 4]
        assert reasons[3].endswith("ValueError: odd text")
        assert reasons[2].startswith(served.url.removeprefix("http://") + ": no answer within the timeout of 3 s")
        assert result.attempts.ravel().tolist() == [1] * 5, "the server has tried again where that was worth it"


def test_skipped_is_skipped(tmp_path: Path) -> None:
    text = """
from guerdon import Dispatcher, reward

@reward(lane="thread")
def format(text: str) -> float:
    return float(text.startswith("<"))

@reward(lane="thread", run_if={"format": ">= 1"})
def costly(text: str) -> float:
    return 5.0

dispatcher = Dispatcher([format, costly])
"""
    with serving(tmp_path, functions="", text=text) as one:
        answer = one.post("/score?function=costly", {"texts": ["<a", "a"]}).json
        assert answer == {"rewards": [5.0, None], "status": ["ok", "skipped"], "reasons": [None, None]}
        reward = http_reward(one.url + "/score?function=costly", columns=["text"], batch_size=4, name="costly")
        with Dispatcher([reward]) as dispatcher:
            status = dispatcher.score(completions=["<a", "a"]).status.ravel()
        assert [Status(one).label for one in status] == ["ok", "skipped"]
    assert json.dumps(answer)

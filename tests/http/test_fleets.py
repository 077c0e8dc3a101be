"""Judges with several endpoints: real servers that die, hang, are slow, come and go."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import guerdon
from guerdon import Dispatcher, GuerdonWarning, Limit, RegistrationError, Status, http_reward, judge
from tests.clock import eventually as wait_for
from tests.http.scoring import reached
from tests.http.server import Server, chat_completion, free_port, question, serving

ROOT = Path(__file__).parents[2]


def length(path: str, body: dict[str, Any]) -> Any:
    return chat_completion(str(len(question(body))))


@contextmanager
def replicas(delays: list[float]) -> Iterator[tuple[list[str], list[subprocess.Popen[str]]]]:
    """Servers that are processes of their own, each with its delay."""
    with ExitStack() as stack:
        ports = [free_port() for _ in delays]
        running = []
        for port, delay in zip(ports, delays, strict=True):
            command = [sys.executable, "-m", "tests.http.server", str(port), str(delay)]
            one = stack.enter_context(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
            stack.callback(one.kill)
            running.append(one)
        for one in running:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        yield [f"http://127.0.0.1:{port}/v1" for port in ports], running


def asked(addresses: object, **options: Any) -> Any:
    # The texts repeat, and requests are counted.
    given = {"base_url": addresses, "model": "m", "prompt": "{completion}", "pure": False, **options}
    return judge(**reached(given))


@pytest.mark.fault(
    "of eight servers of a judge one is killed, one is stopped (SIGSTOP) and one is slow, in mid-batch",
    sees="every sample's score; `dispatcher.endpoints()` and `dump()` show the endpoints' states",
)
def test_one_of_eight_dies_one_hangs_and_one_is_slow() -> None:
    completions = ["x" * (1 + index % 50) for index in range(800)]
    with replicas([0.02] * 7 + [0.4]) as (addresses, processes):
        made = asked(addresses, limit=Limit(concurrency=64), timeout=6.0, retries=10)
        with Dispatcher([made]) as dispatcher:
            endpoints = dispatcher.endpoints("judge")
            pending = dispatcher.submit(completions=completions, num_generations=8)
            wait_for(lambda: sum(one.answered for one in endpoints) > 100, "nothing is answered")
            processes[0].kill()
            processes[1].send_signal(signal.SIGSTOP)
            result = pending.result()
            assert [failure.reason for failure in result.failures()] == []
            assert result.rewards.ravel().tolist() == [float(len(one)) for one in completions]
            left = {one.address: one for one in endpoints}
            healthy = [left[address].answered for address in addresses[2:7]]
            assert max(left[addresses[place]].answered for place in (0, 1, 7)) < min(healthy), str(endpoints)
            assert str(dispatcher.dump()).count("breaker") == 8


@pytest.mark.fault(
    "nothing listens at one of a judge's endpoints",
    sees="every sample's score, by the others, without a retry; that endpoint's breaker is open",
)
def test_a_server_that_refuses_connections_is_left_out() -> None:
    nowhere = f"http://127.0.0.1:{free_port()}/v1"
    with serving(length) as server:
        made = asked([nowhere, server.url + "/v1"], retries=0)
        with Dispatcher([made]) as dispatcher:
            result = dispatcher.score(completions=["abc"] * 50)
            assert set(result.status.ravel().tolist()) == {Status.OK}
            dead, alive = dispatcher.endpoints("judge")
            assert (dead.address, dead.answered, dead.breaker != "closed") == (nowhere, 0, True)
            assert (alive.answered, alive.failed, alive.breaker) == (50, 0, "closed")
            assert dispatcher.stats()["failovers"] >= 5
        assert len(server.bodies) == 50


@pytest.mark.parametrize("refusal", [(401, {}), (404, {}), (308, {})], ids=["401", "404", "308"])
@pytest.mark.fault(
    "one of four replicas of a judge answers 401, 404 or 308 at once",
    sees="at least 99 % of the scores, in at most 1.6 times the time that the other three take alone",
)
def test_a_replica_that_refuses_at_once_draws_no_traffic(refusal: Any) -> None:
    texts = ["x" * (1 + index % 50) for index in range(512)]

    def scored(servers: list[Server]) -> tuple[float, Any]:
        made = asked([server.url for server in servers], limit=Limit(concurrency=24))
        with Dispatcher([made], max_failure_rate=1.0) as dispatcher:
            dispatcher.score(completions=["x"] * 3)
            begun = time.monotonic()
            result = dispatcher.score(completions=texts, num_generations=8)
            return time.monotonic() - begun, result

    with ExitStack() as stack:
        healthy = [stack.enter_context(serving(length, delay=0.1)) for _ in range(3)]
        refuses = stack.enter_context(serving(lambda path, body: refusal))
        alone, _ = scored(healthy)
        seconds, result = scored([*healthy, refuses])
    right = result.rewards.ravel() == [float(len(text)) for text in texts]
    assert right.mean() >= 0.99, f"{len(refuses.bodies)} requests were refused"
    assert (result.status.ravel()[~right] == Status.ERROR).all()
    assert seconds <= 1.6 * alone


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.fault(
    "every endpoint of a judge refuses a sample's request (400, 422)",
    sees="`error` of that sample alone, after a second endpoint was asked; all endpoints go on",
)
def test_a_request_that_all_endpoints_refuse_is_its_samples_error(status: int) -> None:
    def answer(path: str, body: dict[str, Any]) -> Any:
        return (status, {"error": "no"}) if question(body) == "bad" else length(path, body)

    with ExitStack() as stack:
        servers = [stack.enter_context(serving(answer)) for _ in range(4)]
        made = asked([server.url for server in servers], retries=3)
        with Dispatcher([made], max_failure_rate=1.0) as dispatcher:
            result = dispatcher.score(completions=["good"] * 32 + ["bad"] + ["good"] * 31)
            assert {one.breaker for one in dispatcher.endpoints("judge")} == {"closed"}
        tries = sum(question(body) == "bad" for server in servers for body in server.bodies)
    (failure,) = result.failures()
    assert (failure.sample, failure.status) == (32, Status.ERROR)
    assert f"answered {status}" in failure.reason
    assert 1 <= tries <= 2


@pytest.mark.parametrize("endpoints", [1, 4])
@pytest.mark.parametrize("status", [308, 401, 403, 404, 405])
@pytest.mark.fault(
    "every endpoint of a judge refuses every request from the start (308, 401, 403, 404, 405)",
    sees="`error` with the server's words, after one try, or two in all where there are several endpoints",
)
def test_endpoints_that_never_answered_are_asked_twice_in_all(status: int, endpoints: int) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(lambda path, body: (status, {"error": "no"}))) for _ in range(endpoints)]
        made = asked([server.url for server in servers], retries=3)
        with Dispatcher([made], max_failure_rate=1.0) as dispatcher:
            result = dispatcher.score(completions=["x"] * 16)
        tries = sum(len(server.bodies) for server in servers)
    assert (result.status == Status.ERROR).all()
    assert all(f"answered {status}" in failure.reason for failure in result.failures())
    assert tries == 16 * min(endpoints, 2)


@pytest.mark.fault(
    "nothing listens at any endpoint of a judge", sees="`error`: can't connect, with one of the addresses"
)
def test_reason_names_one_endpoint_if_all_are_down() -> None:
    nowhere = [f"http://127.0.0.1:{free_port()}/v1" for _ in range(2)]
    with Dispatcher([asked(nowhere, retries=0, total_timeout=20.0)], max_failure_rate=1.0) as dispatcher:
        result = dispatcher.score(completions=["abc"])
        (failure,) = result.failures()
        assert "can't connect to 127.0.0.1:" in failure.reason


def test_the_samples_of_a_group_go_to_one_server() -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(length, delay=0.05)) for _ in range(4)]
        made = asked([server.url for server in servers], limit=Limit(concurrency=64))
        with Dispatcher([made]) as dispatcher:
            completions = [f"{group:04d}" for group in range(64) for _ in range(8)]
            dispatcher.score(completions=completions, num_generations=8)
        together = 0
        for group in range(64):
            counts = [sum(question(body) == f"{group:04d}" for body in server.bodies) for server in servers]
            assert sum(counts) == 8
            together += max(counts)
        # Some 45 % of eight samples that go anywhere are together; the simulation has the figure.
        assert together / 512 > 0.6, together


def test_endpoints_are_replaced_in_mid_batch() -> None:
    with serving(length, delay=0.05) as first, serving(length, delay=0.05) as second:
        made = asked(first.url + "/v1", limit=Limit(concurrency=8))
        with Dispatcher([made]) as dispatcher:
            endpoints = dispatcher.endpoints("judge")
            assert [one.address for one in endpoints] == [first.url + "/v1"]
            pending = dispatcher.submit(completions=["abc"] * 80)
            wait_for(lambda: len(first.bodies) > 10, "no request came")
            endpoints.set({second.url + "/v1": 2.0})
            result = pending.result()
            assert set(result.status.ravel().tolist()) == {Status.OK}
            assert len(first.bodies) + len(second.bodies) == 80
            assert len(second.bodies) > 20
            (left,) = endpoints
            assert (left.address, left.weight, left.failed) == (second.url + "/v1", 2.0, 0)
            with pytest.raises(RegistrationError, match="base_url"):
                endpoints.set([])
            with pytest.raises(RegistrationError, match="is not an address"):
                endpoints.set("nowhere")
            assert [one.address for one in endpoints] == [second.url + "/v1"]


def test_a_pickled_dispatcher_has_the_configured_endpoints() -> None:
    configured = {"http://127.0.0.1:1/v1": 1.0, "http://127.0.0.1:2/v1": 3.0}
    with Dispatcher([asked(configured)]) as dispatcher:
        dispatcher.endpoints("judge").set("http://127.0.0.1:3/v1")
        assert [one.address for one in dispatcher.endpoints("judge")] == ["http://127.0.0.1:3/v1"]
        copy = pickle.loads(pickle.dumps(dispatcher))
        assert [(one.address, one.weight) for one in copy.endpoints("judge")] == list(configured.items())
        copy.close()


def test_a_host_names_addresses_are_endpoints() -> None:
    with serving(length) as server:
        made = asked(server.url.replace("127.0.0.1", "localhost"), resolve="all")
        with Dispatcher([made]) as dispatcher:
            result = dispatcher.score(completions=["abc"] * 20)
            assert set(result.status.ravel().tolist()) == {Status.OK}
            found = {one.ip: one for one in dispatcher.endpoints("judge")}
            assert found["127.0.0.1"].answered == 20


class Stuck:
    """Answers nothing until it is let go, or only the first time."""

    def __init__(self) -> None:
        self.go_on, self.first = threading.Event(), threading.Lock()

    def __call__(self, path: str, body: dict[str, Any]) -> Any:
        if self.first.acquire(blocking=False):
            self.go_on.wait(30)
        return length(path, body)


@contextmanager
def two_of_which_the_first_asked_hangs() -> Iterator[tuple[Stuck, list[Server]]]:
    stuck = Stuck()
    with serving(stuck) as one, serving(stuck) as two:
        try:
            yield stuck, [one, two]
        finally:
            stuck.go_on.set()


@pytest.mark.fault(
    "the endpoint of a request hangs (`hedge_after`)",
    sees="the score, from a second request to another endpoint; `stats()` counts it",
)
def test_a_second_request_is_sent_to_another_endpoint() -> None:
    with two_of_which_the_first_asked_hangs() as (_, servers):
        made = asked(
            [one.url for one in servers], hedge_after=0.2, hedge_share=1.0, limit=Limit(rpm=6000, concurrency=1)
        )
        with Dispatcher([made]) as dispatcher:
            assert dispatcher.score(completions=["abc"]).rewards.item() == 3.0
            assert [len(one.bodies) for one in servers] == [1, 1]
            stats = dispatcher.stats()
            assert (stats["hedges"], stats["hedges_won"]) == (1, 1)
            assert [one.in_flight for one in dispatcher.endpoints("judge")] == [0, 0]


def test_no_second_request_beyond_the_rate() -> None:
    with two_of_which_the_first_asked_hangs() as (stuck, servers):
        made = asked([one.url for one in servers], hedge_after=0.1, hedge_share=1.0, limit=Limit(rpm=6))
        with Dispatcher([made]) as dispatcher:
            pending = dispatcher.submit(completions=["abc"])
            wait_for(lambda: sum(len(one.bodies) for one in servers) == 1, "no request came")
            time.sleep(0.5)
            assert sum(len(one.bodies) for one in servers) == 1
            stuck.go_on.set()
            assert pending.result().rewards.item() == 3.0
            assert dispatcher.stats()["hedges"] == 0


@pytest.mark.parametrize("how", ["close", "cancel"])
def test_both_requests_end_with_their_call(how: str) -> None:
    stuck = threading.Event()

    def never(path: str, body: dict[str, Any]) -> Any:
        stuck.wait(100)
        return length(path, body)

    with serving(never) as one, serving(never) as two:
        with Dispatcher([asked([one.url, two.url], hedge_after=0.1, hedge_share=1.0)]) as dispatcher:
            pending = dispatcher.submit(completions=["abc"])
            wait_for(lambda: len(one.bodies) + len(two.bodies) == 2, "no second request")
            if how == "close":
                dispatcher.close()
            else:
                pending.cancel()
                wait_for(lambda: not len(dispatcher.dump()), "a request is left")
            assert pending.result().status.item() == Status.CANCELLED
        stuck.set()


def test_a_reward_service_may_have_several_endpoints() -> None:
    with serving(lambda path, body: [1.0] * len(body["completions"])) as one:
        made = http_reward([one.url, f"http://127.0.0.1:{free_port()}"], columns=["completion"], batch_size=4, name="s")
        with Dispatcher([made]) as dispatcher:
            assert dispatcher.score(completions=["x"] * 40).rewards.ravel().tolist() == [1.0] * 40
        assert repr(made).startswith(f"<reward function 's': {one.url} and 1 other, timeout")


def test_hedging_without_another_endpoint_warns() -> None:
    with pytest.warns(GuerdonWarning, match=r"hedge_after='p95' .* it does nothing until"):
        judge(server=guerdon.Server("http://a", hedge_after="p95"), model="m", prompt="{completion}")


def test_only_functions_with_endpoints_have_them() -> None:
    with (
        Dispatcher([asked("http://127.0.0.1:1/v1")]) as dispatcher,
        pytest.raises(ValueError, match="those with endpoints: 'judge'"),
    ):
        dispatcher.endpoints("helpful")

"""Judges with several endpoints: real servers that die, hang, are slow, come and go."""

from __future__ import annotations

import pickle
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest

from guerdon import Dispatcher, GuerdonWarning, Limit, RegistrationError, Status, http_reward
from tests.clock import eventually as wait_for
from tests.http.scoring import judging, only, scored
from tests.http.server import Answer, Server, free_port, length, question, server_process, serving, silent

# The texts repeat, and requests are counted.
asked = partial(judging, pure=False)


@contextmanager
def several(count: int, answer: Answer = length, delay: float = 0.0) -> Iterator[list[Server]]:
    with ExitStack() as stack:
        yield [stack.enter_context(serving(answer, delay)) for _ in range(count)]


def urls(servers: list[Server]) -> list[str]:
    return [server.url for server in servers]


@pytest.mark.fault(
    "of eight servers of a judge one is killed, one is stopped (SIGSTOP) and one is slow, in mid-batch",
    sees="every sample's score; `dispatcher.endpoints()` and `dump()` show the endpoints' states",
)
def test_one_of_eight_dies_one_hangs_and_one_is_slow() -> None:
    completions = ["x" * (1 + index % 50) for index in range(800)]
    ports = [free_port() for _ in range(8)]
    addresses = [f"http://127.0.0.1:{port}/v1" for port in ports]
    with ExitStack() as stack:
        delays = [0.02] * 7 + [0.4]
        processes = [stack.enter_context(server_process(*one)) for one in zip(ports, delays, strict=True)]
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

    def timed(servers: list[Server]) -> tuple[float, Any]:
        with Dispatcher([asked(urls(servers), limit=Limit(concurrency=24))], max_failure_rate=1.0) as dispatcher:
            dispatcher.score(completions=["x"] * 3)
            begun = time.monotonic()
            result = dispatcher.score(completions=texts, num_generations=8)
            return time.monotonic() - begun, result

    with several(3, delay=0.1) as healthy, serving(lambda path, body: refusal) as refuses:
        alone, _ = timed(healthy)
        seconds, result = timed([*healthy, refuses])
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

    with several(4, answer) as servers:
        with Dispatcher([asked(urls(servers), retries=3)], max_failure_rate=1.0) as dispatcher:
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
    with several(endpoints, lambda path, body: (status, {"error": "no"})) as servers:
        result = scored(asked(urls(servers), retries=3), ["x"] * 16)
        tries = sum(len(server.bodies) for server in servers)
    assert (result.status == Status.ERROR).all()
    assert all(f"answered {status}" in failure.reason for failure in result.failures())
    assert tries == 16 * min(endpoints, 2)


@pytest.mark.fault(
    "nothing listens at any endpoint of a judge", sees="`error`: can't connect, with one of the addresses"
)
def test_reason_names_one_endpoint_if_all_are_down() -> None:
    nowhere = [f"http://127.0.0.1:{free_port()}/v1" for _ in range(2)]
    failure = only(scored(asked(nowhere, retries=0, total_timeout=20.0)))
    assert "can't connect to 127.0.0.1:" in failure.reason


def test_the_samples_of_a_group_go_to_one_server() -> None:
    completions = [f"{group:04d}" for group in range(64) for _ in range(8)]
    with several(4, delay=0.05) as servers:
        result = scored(asked(urls(servers), limit=Limit(concurrency=64)), completions, num_generations=8)
        assert (result.status == Status.OK).all()
        together = 0
        for group in range(64):
            counts = [sum(question(body) == f"{group:04d}" for body in server.bodies) for server in servers]
            assert sum(counts) == 8
            together += max(counts)
        # Some 45 % of eight samples that go anywhere are together; the simulation has the figure.
        assert together / 512 > 0.6, together


def test_endpoints_are_replaced_in_mid_batch() -> None:
    with (
        several(2, delay=0.05) as (first, second),
        Dispatcher([asked(first.url + "/v1", limit=Limit(concurrency=8))]) as dispatcher,
    ):
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
    with several(2, stuck) as servers:
        try:
            yield stuck, servers
        finally:
            stuck.go_on.set()


@pytest.mark.fault(
    "the endpoint of a request hangs (`hedge_after`)",
    sees="the score, from a second request to another endpoint; `stats()` counts it",
)
def test_a_second_request_is_sent_to_another_endpoint() -> None:
    with two_of_which_the_first_asked_hangs() as (_, servers):
        limit = Limit(rpm=6000, concurrency=1)
        with Dispatcher([asked(urls(servers), hedge_after=0.2, hedge_share=1.0, limit=limit)]) as dispatcher:
            assert dispatcher.score(completions=["abc"]).rewards.item() == 3.0
            assert [len(one.bodies) for one in servers] == [1, 1]
            stats = dispatcher.stats()
            assert (stats["hedges"], stats["hedges_won"]) == (1, 1)
            assert [one.in_flight for one in dispatcher.endpoints("judge")] == [0, 0]


def test_no_second_request_beyond_the_rate() -> None:
    with two_of_which_the_first_asked_hangs() as (stuck, servers):
        made = asked(urls(servers), hedge_after=0.1, hedge_share=1.0, limit=Limit(rpm=6))
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
    with (
        several(2, lambda path, body: silent) as (one, two),
        Dispatcher([asked([one.url, two.url], hedge_after=0.1, hedge_share=1.0)]) as dispatcher,
    ):
        pending = dispatcher.submit(completions=["abc"])
        wait_for(lambda: len(one.bodies) + len(two.bodies) == 2, "no second request")
        if how == "close":
            dispatcher.close()
        else:
            pending.cancel()
            wait_for(lambda: not len(dispatcher.dump()), "a request is left")
        assert pending.result().status.item() == Status.CANCELLED


def test_a_reward_service_may_have_several_endpoints() -> None:
    with serving(lambda path, body: [1.0] * len(body["completions"])) as one:
        made = http_reward([one.url, f"http://127.0.0.1:{free_port()}"], columns=["completion"], batch_size=4, name="s")
        assert scored(made, ["x"] * 40).rewards.ravel().tolist() == [1.0] * 40
        assert repr(made).startswith(f"<reward function 's': {one.url} and 1 other, timeout")


def test_hedging_without_another_endpoint_warns() -> None:
    with pytest.warns(GuerdonWarning, match=r"hedge_after='p95' .* it does nothing until"):
        judging("http://a", hedge_after="p95")


def test_only_functions_with_endpoints_have_them() -> None:
    with (
        Dispatcher([asked("http://127.0.0.1:1/v1")]) as dispatcher,
        pytest.raises(ValueError, match="those with endpoints: 'judge'"),
    ):
        dispatcher.endpoints("helpful")

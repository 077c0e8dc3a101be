"""Retries and timeouts of requests to the vLLM server, by the trainer and by the rollout loop."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
pytest.importorskip("aiohttp")
pytest.importorskip("requests")

import aiohttp

from guerdon import RegistrationError
from guerdon.errors import VLLMServerError
from guerdon.integrations.trl import VLLMCalls
from tests.integrations.trl.async_grpo import rollout_loops
from tests.integrations.trl.async_grpo.fake_vllm import FakeVLLM, Fault, wait_until
from tests.integrations.trl.async_grpo.rollout_loops import (
    Attempts,
    CompletionRequests,
    FailedAttempt,
    RetryingVLLMClient,
    VLLMClient,
)

pytestmark = pytest.mark.filterwarnings("error::guerdon.GuerdonWarning")

UNAVAILABLE = Fault(status=500, headers={"Retry-After": "0"})
REQUESTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "get_max_model_len": ("/v1/models", lambda client: client.get_max_model_len()),
    "get_server_info": ("/server_info", lambda client: client.get_server_info()),
    "get_dtype": ("/server_info", lambda client: client.get_dtype()),
    "get_world_size": ("/get_world_size", lambda client: client.get_world_size()),
    "pause": ("/pause", lambda client: client.pause()),
    "resume": ("/resume", lambda client: client.resume()),
    "load_lora_adapter": ("/v1/load_lora_adapter", lambda client: client.load_lora_adapter("v1", "/nowhere")),
    "unload_lora_adapter": ("/v1/unload_lora_adapter", lambda client: client.unload_lora_adapter("v1")),
}
ONCE: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "init_weight_transfer_engine": (
        "/init_weight_transfer_engine",
        lambda client: client.init_weight_transfer_engine({}),
    ),
    "start_weight_update": ("/start_weight_update", lambda client: client.start_weight_update()),
    "update_weights": ("/update_weights", lambda client: client.update_weights({})),
    "finish_weight_update": ("/finish_weight_update", lambda client: client.finish_weight_update()),
}


@pytest.fixture
def fake() -> Iterator[FakeVLLM]:
    fake = FakeVLLM()
    fake.start()
    yield fake
    fake.stop()


def client_of(fake: FakeVLLM, **calls: Any) -> RetryingVLLMClient:
    return RetryingVLLMClient(fake.url, 20.0, replace(rollout_loops.QUICK, **calls))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_server_that_is_away_is_waited_for_so_long_and_no_longer() -> None:
    clock = Clock()
    attempts = Attempts(VLLMCalls(restart_timeout=60.0, retries=0), "GET /health", clock)

    def wait_for_it() -> None:
        while True:
            clock.now += max(attempts.next_wait(FailedAttempt("refused")), 0.1)

    with pytest.raises(
        VLLMServerError, match=r"GET /health failed after \d+ attempts in 60\.\d s.*unreachable for 60 s"
    ):
        wait_for_it()
    assert clock.now == pytest.approx(60.0, abs=1.0)


def test_answers_count_as_tries_and_what_comes_back_starts_anew() -> None:
    attempts = Attempts(VLLMCalls(retries=2), "POST /pause", Clock())
    for status in (500, 429):
        assert attempts.next_wait(FailedAttempt("busy", status=status)) >= 0
        assert attempts.next_wait(FailedAttempt("refused")) >= 0  # away in between: not counted
    with pytest.raises(VLLMServerError, match=r"5 attempts .*retries=2.*The last attempt: slow"):
        attempts.next_wait(FailedAttempt("slow", late=True))


def test_a_server_that_dies_of_a_request_again_and_again_is_given_up() -> None:
    attempts = Attempts(VLLMCalls(retries=2), "POST /v1/completions", Clock())
    for _ in range(2):
        attempts.connection_lost("disconnected")
        attempts.next_wait(FailedAttempt("refused"))
    with pytest.raises(VLLMServerError, match="retries=2"):
        attempts.connection_lost("disconnected")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_final_answer_is_not_retried(status: int) -> None:
    with pytest.raises(VLLMServerError, match="after 1 attempt "):
        Attempts(VLLMCalls(), "POST /pause", Clock()).next_wait(FailedAttempt(f"{status}", status=status))


def test_a_server_without_the_path_was_started_without_what_makes_it() -> None:
    with pytest.raises(VLLMServerError, match="VLLM_SERVER_DEV_MODE=1"):
        Attempts(VLLMCalls(), "POST /pause", Clock()).next_wait(
            FailedAttempt('404 Not Found: {"detail":"Not Found"}', status=404)
        )
    with pytest.raises(VLLMServerError) as other:
        Attempts(VLLMCalls(), "POST /v1/completions", Clock()).next_wait(
            FailedAttempt("404: no model 'v3'", status=404)
        )
    assert "DEV_MODE" not in str(other.value)


def test_the_server_says_when_to_come_back() -> None:
    assert (
        Attempts(VLLMCalls(), "POST /pause", Clock()).next_wait(FailedAttempt("429", status=429, retry_after=7.0))
        == 7.0
    )


@pytest.mark.parametrize(
    "wrong", [{"timeout": 0}, {"control_timeout": None}, {"retries": -1}, {"restart_timeout": "1"}]
)
def test_options_that_can_not_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(RegistrationError):
        VLLMCalls(**wrong)


def test_every_request_of_trls_client_is_one_of_ours() -> None:
    """A request that TRL adds would go past the bounds."""
    theirs = {name for name, _ in inspect.getmembers(VLLMClient, inspect.isfunction) if not name.startswith("_")}
    assert theirs == {*REQUESTS, *ONCE, "wait_for_server_ready"}
    assert all(name in vars(RetryingVLLMClient) for name in {*REQUESTS, *ONCE})


@pytest.mark.parametrize("name", REQUESTS)
def test_every_request_is_repeated_alike(fake: FakeVLLM, name: str) -> None:
    path, ask = REQUESTS[name]
    fake.faults[path] = [UNAVAILABLE, Fault(status=429, headers={"Retry-After": "0"})]
    expected = ask(client_of(fake))
    assert fake.paths().count(path) == 3
    fake.faults[path] = [Fault(status=503, headers={"Retry-After": "0"})]
    assert ask(client_of(fake)) == expected
    fake.faults[path] = [UNAVAILABLE] * 10
    before = len(fake.requests)
    with pytest.raises(VLLMServerError, match=rf"{path} failed after 2 attempts.*retries=1.*as told"):
        ask(client_of(fake, retries=1))
    assert len(fake.requests) - before == 2


@pytest.mark.parametrize("name", [*REQUESTS, *ONCE])
def test_every_request_has_an_end(fake: FakeVLLM, name: str) -> None:
    path, ask = (REQUESTS | ONCE)[name]
    fake.faults[path] = [Fault(hang_s=30.0)]
    with pytest.raises(VLLMServerError, match=r"no answer in 0.2 s"):
        ask(client_of(fake, retries=0, control_timeout=0.2))
    fake.stop()
    with pytest.raises(VLLMServerError, match=r"restart_timeout"):
        ask(client_of(fake, restart_timeout=0.2))


@pytest.mark.parametrize("name", ONCE)
def test_unrepeatable_requests_are_made_once(fake: FakeVLLM, name: str) -> None:
    path, ask = ONCE[name]
    fake.faults[path] = [UNAVAILABLE]
    with pytest.raises(VLLMServerError, match="must not be made twice"):
        ask(client_of(fake))
    assert fake.paths().count(path) == 1


def test_an_adapter_that_was_loaded_though_the_answer_was_lost_is_loaded(fake: FakeVLLM) -> None:
    fake.faults["/v1/load_lora_adapter"] = [Fault(status=500, after=True, headers={"Retry-After": "0"})]
    client_of(fake).load_lora_adapter("v1", "/nowhere")
    assert fake.adapters == {"v1"}


def test_weights_go_to_no_server_that_was_started_anew(fake: FakeVLLM) -> None:
    client = client_of(fake)
    client.init_weight_transfer_engine({})
    client.start_weight_update()
    fake.restart()
    with pytest.raises(VLLMServerError, match=r"restarted.*resume_from_checkpoint"):
        client.start_weight_update()
    assert fake.paths().count("/start_weight_update") == 1


# --- the rollout loop's requests


def payload() -> dict[str, Any]:
    return {"model": "trl-policy-v1", "prompt": [1, 2], "max_tokens": 4, "seed": 1}


def complete(
    fake: FakeVLLM, *, adapters: Path | None = None, times: int = 1, **calls: Any
) -> tuple[list[Any], Counter[str]]:
    """Answers to `times` requests made at the same time, and what was counted meanwhile."""
    counted: Counter[str] = Counter()
    options = replace(rollout_loops.QUICK, **calls)
    folder = None if adapters is None else str(adapters)
    completions = CompletionRequests(fake.url, options, folder, lambda name: counted.update([name]))

    async def run() -> list[Any]:
        async with aiohttp.ClientSession() as session:
            asked = (
                completions.post(session, "/v1/completions", payload, options.timeout or 1.0) for _ in range(times)
            )
            return list(await asyncio.gather(*asked))

    return asyncio.run(run()), counted


@pytest.mark.parametrize(
    "fault",
    [UNAVAILABLE, Fault(cut=True), Fault(hang_s=30.0), Fault(nonsense=True), Fault(status=502), Fault(status=429)],
)
def test_a_completion_survives(fake: FakeVLLM, fault: Fault) -> None:
    fake.lora = False
    fake.faults["/v1/completions"] = [fault]
    (answer,), counted = complete(fake, timeout=6.0 if fault.hang_s else 60.0)
    assert len(answer["choices"][0]["token_ids"]) == 4
    assert counted["rollout/vllm_retry_total"] == 1


def test_a_completion_that_can_not_be_is_asked_for_once(fake: FakeVLLM) -> None:
    fake.lora = False
    fake.faults["/v1/completions"] = [Fault(status=400)] * 5
    with pytest.raises(VLLMServerError, match=r"/v1/completions failed after 1 attempt .*400 .*as told"):
        complete(fake)
    assert fake.paths().count("/v1/completions") == 1


def test_completions_are_given_up_in_the_end(fake: FakeVLLM) -> None:
    fake.lora = False
    fake.faults["/v1/completions"] = [UNAVAILABLE] * 10
    with pytest.raises(VLLMServerError, match=r"4 attempts .*retries=3"):
        complete(fake)
    fake.stop()
    with pytest.raises(VLLMServerError, match=r"unreachable for 0.3 s"):
        complete(fake, restart_timeout=0.3)


def test_a_server_that_lost_the_adapter_is_given_it_again_once(fake: FakeVLLM, tmp_path: Path) -> None:
    (tmp_path / "trl-policy-v1").mkdir()
    answers, counted = complete(fake, adapters=tmp_path, times=5)
    assert [len(answer["choices"][0]["token_ids"]) for answer in answers] == [4] * 5
    assert counted["rollout/adapter_republished_total"] >= 1
    assert fake.adapters == {"trl-policy-v1"}


def test_an_adapter_without_files_is_not_published(fake: FakeVLLM, tmp_path: Path) -> None:
    with pytest.raises(VLLMServerError, match="does not exist"):
        complete(fake, adapters=tmp_path)
    assert "/v1/load_lora_adapter" not in fake.paths()


def test_without_adapters_a_server_started_anew_ends_the_run(fake: FakeVLLM) -> None:
    """It dies during a request and is back at once, with weights that are not the policy's."""
    fake.lora = False
    completions = CompletionRequests(fake.url, rollout_loops.QUICK, None, lambda name: None)

    async def run() -> None:
        async with aiohttp.ClientSession() as session:
            await completions.post(session, "/v1/completions", payload, 20.0)
            fake.slow_s = 20.0
            asked = asyncio.create_task(completions.post(session, "/v1/completions", payload, 20.0))
            await asyncio.to_thread(wait_until, lambda: fake.paths().count("/v1/completions") == 2)
            fake.slow_s = 0.0
            await asyncio.to_thread(fake.restart)
            await asked

    with pytest.raises(VLLMServerError, match=r"server at .* restarted"):
        asyncio.run(run())
    assert fake.paths().count("/v1/completions") == 2


def test_behind_a_proxy_a_server_started_anew_is_seen_before_it_is_asked(fake: FakeVLLM) -> None:
    """No connection breaks: the proxy reports no server, and then there is another one."""
    fake.lora = False
    completions = CompletionRequests(fake.url, rollout_loops.QUICK, None, lambda name: None)

    async def run() -> None:
        async with aiohttp.ClientSession() as session:
            await completions.post(session, "/v1/completions", payload, 20.0)
            fake.faults["/v1/completions"] = [Fault(status=503)]
            fake.faults["/metrics"] = [Fault(status=502)]
            fake.started += 1.0
            await completions.post(session, "/v1/completions", payload, 20.0)

    with pytest.raises(VLLMServerError, match=r"server at .* restarted"):
        asyncio.run(run())
    assert fake.paths() == ["/metrics", "/v1/completions", "/v1/completions", "/metrics", "/metrics"]

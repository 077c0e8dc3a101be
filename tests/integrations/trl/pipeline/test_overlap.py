"""Rewards begin while others of their batch are still generated."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl")

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from guerdon import DataError, Dispatcher, reward
from guerdon.integrations.trl import Pipeline
from guerdon.integrations.trl.pipeline.overlap import EarlyScoring
from guerdon.integrations.trl.pipeline.split_vllm_client import MAX_REQUESTS, SplitVLLMClient
from tests.integrations.trl import reward_functions
from tests.integrations.trl.recording_trainer import RecordingTrainer, make_recording_trainer, trained
from tests.integrations.trl.tiny_trainer import rewards_of

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("trainers")]

# About a third of the completions end by themselves
LONG: dict[str, Any] = {"ends": 16, "max_steps": 1}


def expected(trainer: RecordingTrainer) -> list[float]:
    return pytest.approx([reward_functions.share(text, "aeiou") for text in trainer._logs["completion"]], abs=1e-6)  # type: ignore[return-value]


def hooks(trainer: RecordingTrainer) -> int:
    return len(trainer.accelerator.unwrap_model(trainer.model)._forward_pre_hooks)


def test_a_completion_is_scored_while_others_are_generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[float] = []
    ran = threading.Event()

    @reward(lane="thread", name="noticed")
    def noticed(text: str, answer: str) -> float:
        begun.append(time.monotonic())
        ran.set()
        return reward_functions.share(text, "aeiou")

    original = EarlyScoring.completed

    def completed(self: EarlyScoring, rows: list[int], ids: list[list[int]]) -> None:
        original(self, rows, ids)
        assert ran.wait(60)  # the generation goes on only when the function has run

    monkeypatch.setattr(EarlyScoring, "completed", completed)
    with Dispatcher([noticed, reward_functions.answers, reward_functions.group_size], workers=1) as dispatcher:
        trainer = make_recording_trainer(dispatcher, tmp_path, "overlap", **LONG)
        ended: list[float] = []
        generate = trainer._generate_single_turn

        def timed(*args: Any, **named: Any) -> Any:
            made = generate(*args, **named)
            ended.append(time.monotonic())
            return made

        monkeypatch.setattr(trainer, "_generate_single_turn", timed)
        trainer.train()
    early = round(trainer.state.log_history[0]["guerdon/pipeline/early_frac"] * 16)
    assert 0 < early < 16
    assert min(begun) < ended[0]
    assert len(begun) == 16  # none twice
    assert rewards_of(trainer)["noticed"] == expected(trainer)
    assert set(rewards_of(trainer)["group_size"]) == {4.0}
    assert hooks(trainer) == 0


@pytest.mark.parametrize("mode", ["overlap", "all"])
def test_changed_rows_are_scored_again(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EarlyScoring, "_decode", lambda self, rows, ids: ["something else"] * len(rows))
    with Dispatcher([reward_functions.vowels, reward_functions.random_wait], workers=1) as dispatcher:
        trainer = trained(dispatcher, tmp_path, mode, **LONG)
        assert rewards_of(trainer)["vowels"] == expected(trainer)
        deadline = time.monotonic() + 30
        while dispatcher.stats()["open_batches"] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert dispatcher.stats()["open_batches"] == 0


def test_calls_begin_at_the_end_if_overlap_cannot_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EarlyScoring, "completed", lambda self, rows, ids: None)
    trainer = trained([reward_functions.vowels], tmp_path, "overlap", **LONG)
    assert trainer.state.log_history[0]["guerdon/pipeline/early_frac"] == 0
    assert rewards_of(trainer)["vowels"] == expected(trainer)


def test_without_a_cache_the_same_is_seen(tmp_path: Path) -> None:
    with Dispatcher([reward_functions.vowels], workers=1) as dispatcher:
        seen = []
        for cached in (True, False):
            trainer = trained(dispatcher, tmp_path, "overlap", generation_kwargs={"use_cache": cached}, **LONG)
            seen.append(trainer.state.log_history[0]["guerdon/pipeline/early_frac"])
            assert rewards_of(trainer)["vowels"] == expected(trainer)
    assert seen[0] == seen[1] > 0


def test_an_error_waits_until_generation_is_over(tmp_path: Path) -> None:
    @reward(lane="thread", name="asks")
    def asks(text: str, there_is_none: str) -> float:
        return 1.0

    with Dispatcher([asks], workers=1) as dispatcher:
        trainer = make_recording_trainer(dispatcher, tmp_path, Pipeline(overlap=True, lookahead=1), **LONG)
        with pytest.raises(DataError, match="'asks' asks for the column 'there_is_none'"):
            trainer.train()
        assert hooks(trainer) == 0
        assert dispatcher.stats().get("open_batches", 0) == 0  # empty if nothing was ever begun


# --- a vLLM server's client


class Server:
    """A client that answers like TRL's, each request after a time of its own."""

    model = "tiny"

    def __init__(self) -> None:
        self.requests: list[tuple[int, int]] = []  # prompts and completions of each
        self.seeds: list[int] = []

    def generate(self, prompts: Any, *, features: Any = None, n: int = 1, **named: Any) -> dict[str, Any]:
        self.requests.append((len(prompts), n))
        if "generation_kwargs" in named:
            self.seeds.append(named["generation_kwargs"]["seed"])
        time.sleep(sum(map(sum, prompts)) % 5 / 100)
        completions = [[*prompt, 7] for prompt in prompts for _ in range(n)]
        return {
            "prompt_ids": list(prompts),
            "completion_ids": completions,
            "logprobs": [[[0.5]] * len(ids) for ids in completions],
            "logprob_token_ids": None,
        }


PROMPTS = [[number, number + 1] for number in range(6)]


@pytest.mark.parametrize(
    ("named", "requests"),
    [({}, [(1, 1)] * 18), ({"generation_kwargs": {"seed": 3}}, [(1, 3)] * 6), ({"features": [{}] * 6}, [(6, 3)])],
    ids=["one a completion", "one a prompt with a seed", "pictures untouched"],
)
def test_the_answer_is_the_clients(named: dict[str, Any], requests: list[tuple[int, int]]) -> None:
    reported: list[tuple[int, list[int]]] = []
    threads = set()

    def on_complete(rows: list[int], ids: list[list[int]]) -> None:
        threads.add(threading.current_thread())
        reported.extend(zip(rows, ids, strict=True))

    server = Server()
    client = SplitVLLMClient(server)
    client.on_complete = on_complete
    answer = client.generate(PROMPTS, n=3, max_tokens=4, **named)
    assert sorted(server.requests) == sorted(requests)
    assert answer == Server().generate(PROMPTS, n=3)
    if "features" not in named:
        assert dict(reported) == dict(enumerate(answer["completion_ids"]))
        assert len(reported) == 18
        assert threads == {threading.current_thread()}
    assert client.model == "tiny"


def test_requests_of_one_prompt_differ_and_a_run_repeats_them() -> None:
    seeds = []
    for _ in range(2):
        server = Server()
        client = SplitVLLMClient(server, seed=5)
        client.on_complete = lambda rows, ids: None
        client.generate(PROMPTS, n=3, generation_kwargs={"top_p": 0.9})
        assert len(set(server.seeds)) == 18
        seeds.append(sorted(server.seeds))
        client.generate(PROMPTS[:2], n=3, generation_kwargs={"seed": 3})
        assert server.seeds[18:] == [3, 3]
    assert seeds[0] == seeds[1]


def test_many_completions_are_a_request_a_prompt() -> None:
    server = Server()
    client = SplitVLLMClient(server)
    client.on_complete = lambda rows, ids: None
    count = MAX_REQUESTS // 4 + 1
    answer = client.generate([[0]] * count, n=4)
    assert server.requests == [(1, 4)] * count
    assert len(answer["completion_ids"]) == count * 4


def test_without_a_listener_it_is_the_client() -> None:
    server = Server()
    assert SplitVLLMClient(server).generate(PROMPTS, n=2) == Server().generate(PROMPTS, n=2)
    assert server.requests == [(6, 2)]


def test_an_error_of_one_request_is_the_batchs() -> None:
    class Broken(Server):
        def generate(self, prompts: Any, **named: Any) -> dict[str, Any]:
            if prompts == [PROMPTS[2]]:
                raise ConnectionError("gone")
            return super().generate(prompts, **named)

    client = SplitVLLMClient(Broken())
    client.on_complete = lambda rows, ids: None
    with pytest.raises(ConnectionError, match="gone"):
        client.generate(PROMPTS, n=2)


_ENDS = """
import sys, threading
from guerdon.integrations.trl.pipeline.split_vllm_client import SplitVLLMClient

class Server:
    def generate(self, prompts, n, **named):
        if prompts != [[0]]:
            threading.Event().wait()  # it never answers
        return {"prompt_ids": prompts, "completion_ids": [[1]], "logprobs": None}

def on_complete(rows, ids):
    sys.exit()

client = SplitVLLMClient(Server())
client.on_complete = on_complete
client.generate([[number] for number in range(40)])
"""


@pytest.mark.fault(
    "a trainer ends while a vLLM server still generates", sees="it ends at once: no request holds up its exit"
)
def test_an_interpreter_ends_in_mid_batch() -> None:
    ended = subprocess.run([sys.executable, "-c", _ENDS], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_session_keeps_as_many_connections_as_requests_run() -> None:
    """The session of TRL's client keeps 64, and has retries that stay."""
    session = requests.Session()
    retries = Retry(total=5, connect=5)
    session.mount("http://", HTTPAdapter(max_retries=retries, pool_maxsize=64))
    SplitVLLMClient(SimpleNamespace(session=session))
    adapter: Any = session.get_adapter("http://localhost:8000")
    assert adapter.poolmanager.connection_pool_kw["maxsize"] == MAX_REQUESTS
    assert adapter.max_retries is retries

"""The asynchronous trainers with a real vLLM server: adapters published, rewards computed."""

from __future__ import annotations

import math
import multiprocessing
import os
from pathlib import Path

import pytest
import requests

# Read by the next imports, and in the rollout process
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

from guerdon import Dispatcher, RewardFailureError
from guerdon.integrations.trl import AsyncGRPOTrainer
from tests.integrations.trl.async_grpo import reward_functions
from tests.vllm.server import Server
from tests.vllm.training import TRLAsyncGRPOTrainer, make_trainer, stand_in, steps_of

pytestmark = [
    pytest.mark.filterwarnings("default"),  # what TRL, PEFT and multiprocessing warn about
    pytest.mark.filterwarnings("error::guerdon.GuerdonWarning"),
]


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)


def paused(server: Server) -> bool:
    return bool(requests.get(f"{server.url}/is_paused", timeout=30).json()["is_paused"])


def adapters(server: Server) -> set[str]:
    models = requests.get(f"{server.url}/v1/models", timeout=30).json()["data"]
    return {model["id"] for model in models if model["parent"]}


def test_it_trains_on_many_groups_at_once_and_publishes_each_policy(server: Server, tmp_path: Path) -> None:
    dispatcher = Dispatcher(
        [reward_functions.length, reward_functions.letters, reward_functions.rank, reward_functions.fails_on_x],
        weights=[0.1, 1.0, 0.0, 0.1],
    )
    trainer = make_trainer(AsyncGRPOTrainer, server, tmp_path, dispatcher, {"concurrent_groups": 6}, max_steps=8)
    start = {name: value.detach().clone() for name, value in trainer.model.named_parameters() if "lora_B" in name}
    trainer.train()

    log = steps_of(trainer)
    assert [entry["step"] for entry in log] == list(range(1, 9))
    assert all(math.isfinite(entry["loss"]) for entry in log)
    assert all(0.0 <= entry["sample/staleness_max"] <= 3.0 for entry in log)
    assert all(0.5 < entry["ratio"] < 2.0 for entry in log)
    for name in ("length", "letters", "rank", "fails_on_x"):
        assert any(f"rewards/{name}" in entry for entry in log)
        assert any(f"guerdon/{name}/run_p50_s" in entry for entry in log)
    assert any(entry.get("guerdon/fails_on_x/failed_frac", 0.0) > 0.0 for entry in log)
    assert any((value != start[name]).any() for name, value in trainer.model.named_parameters() if name in start)
    # The policies of the last steps, under new names; what no sample may come from any more is
    # gone.
    assert {f"{trainer._lora_name}-v{version}" for version in range(6, 10)} <= adapters(server)
    assert f"{trainer._lora_name}-v4" not in adapters(server)
    assert not paused(server)
    assert not multiprocessing.active_children()
    dispatcher.close()


@pytest.mark.whole
def test_a_function_that_fails_too_often_is_an_error_of_the_trainer(server: Server, tmp_path: Path) -> None:
    trainer = make_trainer(AsyncGRPOTrainer, server, tmp_path, reward_functions.always_fails, {})
    with pytest.raises(RewardFailureError, match=r"'always_fails' failed on (\d+) of (its last )?\1 samples"):
        trainer.train()
    assert not multiprocessing.active_children()
    assert not paused(server)


@pytest.mark.whole
def test_trls_own_trainer_takes_the_columns_of_a_dispatcher(server: Server, tmp_path: Path) -> None:
    dispatcher = Dispatcher(
        [reward_functions.length, reward_functions.letters, reward_functions.rank], num_generations=4
    )
    trainer = make_trainer(TRLAsyncGRPOTrainer, server, tmp_path, dispatcher.reward_funcs, {})
    trainer.train()
    log = steps_of(trainer)
    assert [entry["step"] for entry in log] == list(range(1, 7))
    assert all(f"rewards/{name}" in log[-1] for name in dispatcher.names)

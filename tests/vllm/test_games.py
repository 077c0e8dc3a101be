"""A game of several turns, with environments and a tool, by both trainers with a real vLLM server.

Each reward function's view is compared with a serial replay (walk_game.py); a difference is a
failure, which is counted.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

# Read by the next imports, and in the rollout process
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import pytest

from guerdon import Dispatcher
from guerdon.integrations.trl import AsyncGRPOTrainer, GRPOTrainer, environments, tools
from tests.integrations.trl.line_game import TURNS, rows
from tests.vllm import walk_game
from tests.vllm.server import Server
from tests.vllm.training import make_server_trainer, make_trainer, stand_in, steps_of

pytestmark = [
    pytest.mark.filterwarnings("default"),  # what TRL, PEFT and multiprocessing warn about
    pytest.mark.filterwarnings("error::guerdon.GuerdonWarning"),
]


def play(server: Server, folder: Path, steps: int, **options: Any) -> list[dict[str, Any]]:
    """The log of an asynchronous run, each of whose samples was checked."""
    functions = Dispatcher([walk_game.right, walk_game.away], weights=[1.0, 0.0])
    more: dict[str, Any] = {"concurrent_groups": 6, "environment_factory": environments(walk_game.Walk)}
    more["tools"] = tools([walk_game.ask])
    settings: dict[str, Any] = {"max_steps": steps, "max_completion_length": 4, "max_tool_calling_iterations": TURNS}
    trainer = make_trainer(AsyncGRPOTrainer, server, folder, functions, more, data=rows(8), **{**settings, **options})
    trainer.train()
    log = steps_of(trainer)
    assert [entry["step"] for entry in log] == list(range(1, steps + 1))
    for entry in log:
        assert entry["rewards/right"] == entry["rewards/away"] == entry["rewards/Walk"]
        assert not entry.get("guerdon/right/failed_frac")
    assert any(entry.get("guerdon/right/failed_frac") == 0.0 for entry in log)
    for name in ("walk", "ask"):
        assert sum(entry.get(f"tools/{name}/call_total") or 0.0 for entry in log) > 0.0
        assert not any(entry.get(f"tools/{name}/failure_total") for entry in log)
    return log


@pytest.mark.whole
def test_rewards_of_the_asynchronous_trainer_see_what_a_serial_replay_sees(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that TRL spawns plays many samples at once and reuses environments."""
    stand_in(monkeypatch)
    play(server, tmp_path, steps=4)


@pytest.mark.soak
def test_a_player_learns_the_game_from_adapters(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its goal lies to the right: each policy that is published walks there more."""
    stand_in(monkeypatch)
    log = play(server, tmp_path, steps=24, learning_rate=3e-2, per_device_train_batch_size=16, max_staleness=2)
    scores = [entry["rewards/right"] for entry in log]
    assert sum(scores[-4:]) / 4 > sum(scores[:4]) / 4 + 0.5, scores


@pytest.mark.whole
def test_rewards_of_the_synchronous_trainer_see_what_a_serial_replay_sees(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Generation by the server, turn after turn; slots are used again by each batch."""
    with Dispatcher([walk_game.right, walk_game.away], workers=1) as dispatcher, tools([walk_game.ask]) as routed:
        more = {"environment_factory": walk_game.Walk, "tools": routed, "pipeline": "one_step"}
        options = {"max_completion_length": 300, "max_tool_calling_iterations": TURNS}
        trainer = make_server_trainer(GRPOTrainer, dispatcher, tmp_path, server, monkeypatch, more, rows(16), **options)
        trainer.train()
        assert dispatcher.stats()["open_batches"] == 0
    for entry in steps_of(trainer):
        assert entry["guerdon/right/failed_frac"] == 0.0
        assert entry["rewards/right/mean"] == entry["rewards/away/mean"] == entry["rewards/Walk/mean"]
        assert entry["guerdon/tools/walk/failed_frac"] == 0.0
        assert entry["tools/call_frequency"] > 0.0

"""Reward functions see the live environments, which nobody else uses meanwhile."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import trl
from trl.experimental.harbor import HarborBashEnv
from trl.experimental.harbor._spec import _outcome_reward_func
from trl.experimental.openreward.environment import _RolloutEnvironment

from guerdon import Dispatcher, GuerdonWarning, reward
from guerdon.integrations import trl as ours
from tests.integrations.trl.line_game import LineGame, away, call, make_player, played, replayed, rows
from tests.integrations.trl.tiny_trainer import rewards_of, without_times
from tests.integrations.trl.tool_calls.tool_functions import Shop, nothing

pytestmark = [
    pytest.mark.filterwarnings("default", "error::guerdon.GuerdonWarning"),
    pytest.mark.usefixtures("trainers"),
]


class Single(LineGame):
    """There is one of it: what it owns would be destroyed with a copy."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise AssertionError("copied")


class Rising(Single):
    """A curriculum: it counts how often it was scored."""

    def __init__(self) -> None:
        self.level = 0

    def get_reward(self) -> float:
        self.level += 1
        return float(self.level)


def test_writes_of_an_environments_reward_are_kept_as_in_trl(tmp_path: Path) -> None:
    def marks(completions: list[Any], **columns: Any) -> list[float]:
        for environment in columns["environments"]:
            environment.marks = getattr(environment, "marks", 0) + 1
        return [float(environment.marks) for environment in columns["environments"]]

    plain, mine = (
        played(kind, [marks], tmp_path / kind.__module__, Rising, max_steps=3)
        for kind in (trl.GRPOTrainer, ours.GRPOTrainer)
    )
    assert [entry["rewards/Rising/mean"] for entry in mine.state.log_history[:3]] == [1.0, 2.0, 3.0]
    assert without_times(mine.state.log_history) == without_times(plain.state.log_history)


class SlowOwner(Single):
    def get_reward(self) -> float:
        time.sleep(0.2)
        return -float(self.distance)


@pytest.mark.parametrize(("pipeline", "instances"), [("off", 8), ("mini_batch", 8), ("one_step", 16), ("all", 16)])
def test_pipelines_score_what_the_completions_left(pipeline: str, instances: int, tmp_path: Path) -> None:
    """A batch ahead gets instances of its own, while rewards of this one are computed."""
    given: Any = ours.Pipeline(mini_batch=True, lookahead=1) if pipeline == "all" else pipeline

    @reward(lane="thread")
    def right(completion: Any, environment: Any, start: int, goal: int) -> float:
        time.sleep(0.2)
        again = replayed({"start": start, "goal": goal}, completion)
        assert (environment.visited, environment.goal) == (again.visited, again.goal)
        return -float(again.distance)

    warned = nullcontext() if pipeline in ("off", "one_step") else pytest.warns(GuerdonWarning, match="'away'")
    with Dispatcher([right, away], workers=1) as dispatcher:
        with warned:
            trainer = make_player(
                ours.GRPOTrainer,
                dispatcher.reward_funcs,
                tmp_path,
                more={"environment_factory": SlowOwner, "pipeline": given},
                per_device_train_batch_size=4,
                gradient_accumulation_steps=2,
                max_steps=4,
            )
        trainer.train()
    logs = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert [entry["guerdon/right/failed_frac"] for entry in logs] == [0.0] * 4
    assert [entry["rewards/SlowOwner/mean"] for entry in logs] == [entry["rewards/right/mean"] for entry in logs]
    assert len({id(one) for one in trainer._environment_pool[None]}) == instances


def test_an_evaluation_inside_a_batch_gets_instances_of_its_own(tmp_path: Path) -> None:
    """With mini-batches it comes between two optimizer steps on one batch."""

    @reward(lane="thread")
    def right(completion: Any, environment: Any, start: int, goal: int) -> float:
        time.sleep(0.1)
        again = replayed({"start": start, "goal": goal}, completion)
        assert (environment.visited, environment.goal) == (again.visited, again.goal)
        return -float(again.distance)

    with Dispatcher([right], workers=1) as dispatcher:
        options: dict[str, Any] = {
            "per_device_train_batch_size": 4,
            "per_device_eval_batch_size": 8,
            "steps_per_generation": 2,
            "gradient_accumulation_steps": 1,
            "eval_strategy": "steps",
            "eval_steps": 1,
            "max_steps": 2,
        }
        more = {"environment_factory": Single, "pipeline": "mini_batch", "eval_dataset": rows(2)}
        with pytest.warns(GuerdonWarning, match="optimizer steps end"):
            trainer = make_player(ours.GRPOTrainer, dispatcher.reward_funcs, tmp_path, more=more, **options)
        trainer.train()
    failed = [
        entry[name] for entry in trainer.state.log_history for name in entry if name.endswith("right/failed_frac")
    ]
    assert len(failed) >= 3
    assert set(failed) == {0.0}
    assert len(trainer._environment_pool[None]) == 16


class FakeSandbox(HarborBashEnv):
    """Harbor's environment, which can't be copied, in front of a sandbox that echoes."""

    async def _start(self, task_dir: str) -> str:
        self._env = task_dir
        self.commands: list[str] = []
        return "go"

    def _exec(self, command: str, timeout: int = 180) -> str:
        assert self._run(self._says(command)) == command
        return f"{len(self.commands)}"

    async def _says(self, command: str) -> str:
        self.commands.append(command)
        return command

    async def _verify(self) -> float:
        return float(len(self.commands))

    async def _stop(self) -> None:
        self._env = None

    def __del__(self) -> None:
        super().__del__()
        self._loop_thread.join(10)
        self._loop.close()


class FakeServer:
    """OpenReward's server; it counts the calls of each session, which belongs to a thread."""

    @contextmanager
    def session(self, **named: Any) -> Iterator[SimpleNamespace]:
        own, calls = threading.get_ident(), []

        def call_tool(name: str, given: dict[str, Any]) -> SimpleNamespace:
            assert threading.get_ident() == own
            calls.append(given["text"])
            return SimpleNamespace(blocks=[], reward=float(len(calls)), metadata=None, finished=False)

        yield SimpleNamespace(get_prompt=list, call_tool=call_tool)


SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
ANSWER = {"name": "answer", "description": "Answers.", "input_schema": SCHEMA}


def last_reward(completions: list[Any], environments: list[Any], **columns: Any) -> list[float]:
    return [environment.reward or 0.0 for environment in environments]


HARBOR = FakeSandbox, _outcome_reward_func, [call("bash", command="ls"), call("bash", command="pwd")]
OPENREWARD = (
    partial(_RolloutEnvironment, base_url="http://x", _client=object(), _env=FakeServer(), _tool_specs=[ANSWER]),
    last_reward,
    [call("answer", text="3"), call("answer", text="4")],
)
DATABASE = Shop, nothing, [call("sell", what="tea"), call("sell", what="jam")]


@pytest.mark.parametrize(
    ("factory", "function", "moves"), [HARBOR, OPENREWARD, DATABASE], ids=["harbor", "openreward", "database"]
)
def test_environments_that_own_what_cannot_be_copied_are_trained_as_in_trl(
    factory: Any, function: Any, moves: list[str], tmp_path: Path
) -> None:
    data = rows(8).add_column("task_dir", ["/nowhere"] * 8)
    options: dict[str, Any] = {"calls": moves, "data": data, "learning_rate": 0.0, "max_steps": 2}
    plain = played(trl.GRPOTrainer, [function], tmp_path / "plain", factory, **options)
    theirs = [entry["reward"] for entry in plain.state.log_history if "reward" in entry]
    assert max(theirs) > 0
    for pipeline in ("off", "one_step"):
        kind = partial(ours.GRPOTrainer, pipeline=pipeline)
        mine = played(kind, [function], tmp_path / pipeline, factory, **options)
        assert rewards_of(mine) == rewards_of(plain)
        assert [entry["reward"] for entry in mine.state.log_history if "reward" in entry] == theirs

"""Environments of the synchronous trainer."""

from __future__ import annotations

import asyncio
import math
import random
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

import trl

from guerdon import GuerdonWarning, RegistrationError, ToolError
from guerdon.integrations import trl as ours
from guerdon.integrations.trl import environments
from tests.integrations.trl.line_game import (
    ACCOUNT_ANSWERS,
    ACCOUNT_TURN,
    Account,
    LineGame,
    SlowReset,
    Sticky,
    away,
    make_player,
    played,
    rows,
)
from tests.integrations.trl.tiny_trainer import rewards_of, without_times

pytestmark = [
    pytest.mark.filterwarnings("default", "error::guerdon.GuerdonWarning"),
    pytest.mark.usefixtures("trainers"),
]


class ScoredGame(LineGame):
    """It says itself how far the goal is."""

    def get_reward(self) -> float:
        return -float(self.distance)


def test_a_class_under_two_names_has_one_reward_column(tmp_path: Path) -> None:
    """The rewards, weights and logs are those of plain TRL, with timeouts alike or not."""
    data = rows(8).add_column("environment", ["left", "right"] * 4)
    both = dict.fromkeys(("left", "right"), ScoredGame)
    plain = played(trl.GRPOTrainer, [away], tmp_path / "plain", both, data=data)
    alike = {name: environments(ScoredGame, timeout=5) for name in both}
    apart = {name: environments(ScoredGame, timeout=own) for name, own in zip(both, (5, 9), strict=True)}
    for number, factories in enumerate((both, environments(both), alike, apart)):
        mine = played(ours.GRPOTrainer, [away], tmp_path / f"ours{number}", factories, data=data)
        assert mine.reward_func_names == plain.reward_func_names == ["away", "ScoredGame"]
        assert mine.reward_weights.tolist() == [1.0, 1.0]
        assert len(mine.reward_processing_classes) == 2
        assert rewards_of(mine) == rewards_of(plain)
        assert without_times(mine.state.log_history) == without_times(plain.state.log_history)
        assert dict(mine._logs["extra"]) == dict(plain._logs["extra"])
        assert any("guerdon/tools/walk/failed_frac" in entry for entry in mine.state.log_history)
    # TRL's own suite calls the column with environments alone, one of another class.
    lone = [ScoredGame(), LineGame()]
    lone[0].reset(goal=5, start=2)
    with pytest.warns(GuerdonWarning, match="not known to leave out samples"):
        values = mine.reward_funcs[-1](environments=lone)
    assert values == plain.reward_funcs[-1](environments=lone)


def test_two_classes_of_one_name_are_refused(tmp_path: Path) -> None:
    other = type("ScoredGame", (ScoredGame,), {})
    more = {"environment_factory": {"left": ScoredGame, "right": other}}
    with pytest.raises(
        RegistrationError, match=r"two factories make environments of classes called ScoredGame.*rename one"
    ):
        make_player(ours.GRPOTrainer, [away], tmp_path, more=more)


class TimedGame(LineGame):
    """Its reward takes a second."""

    def get_reward(self) -> float:
        time.sleep(1.0)
        return -float(self.distance)


def test_factories_of_one_class_share_a_column_and_keep_their_timeouts(tmp_path: Path) -> None:
    data = rows(2).add_column("environment", ["short", "long"])
    factories = {"short": environments(TimedGame, reward_timeout=0.1), "long": environments(TimedGame)}
    trainer = played(ours.GRPOTrainer, [away], tmp_path, factories, data=data, max_steps=1)
    assert trainer.reward_func_names == ["away", "TimedGame"]
    names = [prompt[-1]["content"] for prompt in trainer._logs["prompt"]]
    starts = {f"go {row['start']}": row["environment"] for row in data}
    for name, value in zip(names, rewards_of(trainer)["TimedGame"], strict=True):
        assert math.isnan(value) == (starts[name] == "short")
    log = trainer.state.log_history[0]
    assert log["guerdon/TimedGame/failed_frac"] == 0.5
    assert any(key.startswith("guerdon/tools/walk/") for key in log)


# --- resets


class AsyncSlow(LineGame):
    most = 0
    now = 0

    async def reset(self, **row: Any) -> str:  # type: ignore[override]
        AsyncSlow.now += 1
        AsyncSlow.most = max(AsyncSlow.most, AsyncSlow.now)
        await asyncio.sleep(0.3)
        AsyncSlow.now -= 1
        return super().reset(**row)


@pytest.mark.parametrize("kind", [SlowReset, AsyncSlow])
def test_resets_go_on_concurrently_and_each_gets_its_row(kind: Any, tmp_path: Path) -> None:
    kind.most = 0
    trainer = played(ours.GRPOTrainer, [away], tmp_path, kind, max_steps=1)
    assert kind.most >= 4
    visited = trainer._logs["extra"]["visited"]
    starts = sorted(int(prompt[-1]["content"].removeprefix("go ")) for prompt in trainer._logs["prompt"])
    assert sorted(one[0] for one in visited) == starts
    assert len(set(starts)) == 2


class Drawing(LineGame):
    """It draws a number in `reset`, after a time of its own."""

    def reset(self, **row: Any) -> str:
        time.sleep(0.02 * (-int(row["start"]) % 3))
        self.drawn = random.random()
        return super().reset(**row)


def test_ordered_resets_draw_the_numbers_that_they_draw_in_trl(tmp_path: Path) -> None:
    def drawn(completions: list[Any], environments: list[Any], **columns: Any) -> list[float]:
        return [environment.drawn for environment in environments]

    plain = played(trl.GRPOTrainer, [drawn], tmp_path / "plain", Drawing)
    mine = played(ours.GRPOTrainer, [drawn], tmp_path / "ours", environments(Drawing, ordered=True))
    assert rewards_of(mine) == rewards_of(plain)
    assert without_times(mine.state.log_history) == without_times(plain.state.log_history)


def test_the_calls_of_an_environment_run_in_the_order_of_the_model(tmp_path: Path) -> None:
    answers: list[list[str]] = []

    def heard(completions: list[Any], environments: list[Any], **columns: Any) -> list[float]:
        answers.extend([message["content"] for message in one if message["role"] == "tool"] for one in completions)
        return [float(environment.balance) for environment in environments]

    played(ours.GRPOTrainer, [heard], tmp_path, Account, calls=["".join(ACCOUNT_TURN)], max_steps=1)
    assert any(answers)
    assert all(one[:4] == ACCOUNT_ANSWERS[: len(one)] for one in answers)


def test_a_reset_that_takes_too_long_ends_the_run_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"reset took longer than 0\.1 s"):
        played(ours.GRPOTrainer, [away], tmp_path, environments(SlowReset, reset_timeout=0.1), max_steps=1)


# --- an environment's own reward


class Owner(LineGame):
    def get_reward(self) -> float | None:
        if self.distance % 2:
            raise ValueError(f"odd: {self.distance}")
        return float(self.distance)


class AsyncOwner(LineGame):
    async def get_reward(self) -> float | None:
        await asyncio.sleep(0.3)
        return -float(self.distance)


def test_an_own_reward_is_a_column_like_any_other(tmp_path: Path) -> None:
    """A failure is no reward, and not the end of the run as in TRL."""

    def half(completions: list[Any], environments: list[Any], **columns: Any) -> list[float]:
        return [0.5 for _ in environments]

    with pytest.raises(ValueError, match="odd"):
        played(trl.GRPOTrainer, [half], tmp_path, Owner, max_steps=1)
    trainer = played(ours.GRPOTrainer, [half], tmp_path, {"a": Owner, "b": LineGame}, max_steps=1, data=_mixed())
    visited = trainer._logs["completion"]
    assert len(visited) == 8
    own = rewards_of(trainer)["Owner"]
    assert any(value == value for value in own)
    assert all(value % 2 == 0 for value in own if value == value)
    # Odd ones, and all of the other environment
    assert sum(math.isnan(value) for value in own) >= 4
    assert trainer.state.log_history[0]["guerdon/Owner/failed_frac"] == sum(map(math.isnan, own)) / 8 - 0.5


def _mixed() -> Any:
    data = rows(2)
    return data.add_column("environment", ["a", "b"])


def test_async_own_rewards_equal_those_of_trl(tmp_path: Path) -> None:
    plain = played(trl.GRPOTrainer, [], tmp_path / "plain", AsyncOwner, max_steps=1)
    mine = played(ours.GRPOTrainer, [], tmp_path / "ours", AsyncOwner, max_steps=1)
    assert rewards_of(mine) == rewards_of(plain)
    assert list(rewards_of(mine)) == ["AsyncOwner"]


# --- stuck environments


def test_an_environment_that_hangs_is_replaced(tmp_path: Path) -> None:
    Sticky.hung = 0
    trainer = played(ours.GRPOTrainer, [away], tmp_path, environments(Sticky, timeout=4.0), max_steps=3)
    assert Sticky.hung
    assert Sticky.hung not in {id(one) for one in trainer._environment_pool[None]}
    timeouts = [entry.get("guerdon/tools/walk/timeout_frac", 0.0) > 0 for entry in trainer.state.log_history[:3]]
    assert timeouts.count(True) == 1


class Passing(trl.GRPOTrainer):  # type: ignore[misc]
    """A class of a user that passes on what it is given."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


def test_an_environment_factory_that_a_class_passes_on_is_found(tmp_path: Path) -> None:
    """Its resets go on concurrently as if the class named the argument."""
    trainer = make_player(ours.pipelined(Passing), [away], tmp_path, more={"environment_factory": LineGame})
    assert all(isinstance(factory, ours.Environments) for factory in trainer.environment_factories.values())

"""What reward functions see of environments that are used again."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl")


from guerdon import Dispatcher, GuerdonWarning, RewardFailureError, SnapshotError, reward
from guerdon.integrations import trl as ours
from guerdon.integrations.trl import environments
from guerdon.integrations.trl.tool_calls.concurrent_calls import _resets_before_rewards
from guerdon.integrations.trl.tool_calls.deep_copy import snapshot
from tests.integrations.trl.line_game import Connected, LineGame, Socket, away, make_player, played, replayed, rows
from tests.integrations.trl.tiny_trainer import rewards_of

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.filterwarnings("error::guerdon.GuerdonWarning"),
    pytest.mark.usefixtures("trainers"),
]


def test_rewards_see_what_a_serial_replay_sees_although_slots_are_used_again(tmp_path: Path) -> None:
    """Slow rewards by snapshot, per sample and per group; three batches in the same eight slots."""
    checked: list[int] = []

    @reward(lane="thread")
    def right(completion: Any, environment: Any, start: int, goal: int) -> float:
        time.sleep(0.01 * (start % 3))
        again = replayed({"start": start, "goal": goal}, completion)
        assert type(environment) is LineGame
        assert (environment.visited, environment.goal) == (again.visited, again.goal)
        checked.append(start)
        return -float(again.distance)

    with Dispatcher([right, away], workers=1) as dispatcher:
        trainer = played(ours.GRPOTrainer, dispatcher.reward_funcs, tmp_path, LineGame, max_steps=3, data=rows(12))
    assert len(checked) == 24
    assert all(entry["guerdon/right/failed_frac"] == 0.0 for entry in trainer.state.log_history[:3])
    assert len(trainer._environment_pool[None]) == 8
    rewards = rewards_of(trainer)
    assert rewards["right"] == rewards["away"]


def test_a_snapshot_is_not_changed_by_a_later_reset() -> None:
    game = environments(LineGame)()
    game.reset(start=1, goal=4)
    game.walk(way="right")
    before = snapshot(game)
    game.walk(way="right")
    game.reset(start=9, goal=9)
    assert type(before) is LineGame
    assert (before.visited, before.goal, game.visited) == ([1, 2], 4, [9])


class Careful(Connected):
    def __deepcopy__(self, memo: Any) -> LineGame:
        kept = LineGame()
        kept.goal, kept.visited = self.goal, list(self.visited)
        return kept


class Careless(LineGame):
    def __deepcopy__(self, memo: Any) -> Careless:
        return self


class Forgetful(LineGame):
    def __deepcopy__(self, memo: Any) -> None:
        pass


class Frugal(LineGame):
    """Rewards need where it was, and nothing else."""

    def __deepcopy__(self, memo: Any) -> SimpleNamespace:
        return SimpleNamespace(visited=list(self.visited))


def test_a_copy_may_be_of_another_class_but_not_nothing() -> None:
    with pytest.raises(SnapshotError, match=r"environment Forgetful can't be copied .* gives None\. Return"):
        snapshot(Forgetful())
    frugal = Frugal()
    frugal.reset(start=1, goal=3)
    taken = snapshot(frugal)
    frugal.walk("right")
    assert taken == SimpleNamespace(visited=[1])


def test_what_cannot_be_copied_is_reported_by_name(tmp_path: Path) -> None:
    message = r"Connected can't be copied .*'peer' is a Socket .*Define Connected.__deepcopy__"
    with pytest.raises(SnapshotError, match=message):
        played(ours.GRPOTrainer, [away], tmp_path, Connected)
    with pytest.raises(SnapshotError, match="gives the environment itself"):
        played(ours.GRPOTrainer, [away], tmp_path, Careless)
    played(ours.GRPOTrainer, [away], tmp_path, Careful, max_steps=1)


class Leaving:
    """An exception whose text can't be had, and one that would end the program."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __deepcopy__(self, memo: Any) -> Any:
        raise self.error


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("error", [SystemExit(3), Speechless()])
def test_whatever_a_copy_raises_is_reported_and_ends_nothing(error: BaseException) -> None:
    with pytest.raises(SnapshotError, match=f"Leaving can't be copied.*{type(error).__name__}.*Define"):
        snapshot(Leaving(error))


def test_who_does_not_look_at_environments_needs_no_snapshot(tmp_path: Path) -> None:
    def kwargs_only(completions: list[Any], **columns: Any) -> list[float]:
        return [float(len(completion)) for completion in completions]

    played(ours.GRPOTrainer, [kwargs_only], tmp_path, Connected, max_steps=1)


def test_who_takes_environments_out_of_its_keywords_gets_them_too(tmp_path: Path) -> None:
    def looks(completions: list[Any], **columns: Any) -> list[float]:
        return [float(environment.goal) for environment in columns["environments"]]

    trainer = played(ours.GRPOTrainer, [looks], tmp_path, LineGame, max_steps=1)
    assert set(rewards_of(trainer)["looks"]) <= {index + 2.0 for index in range(8)}
    with pytest.raises(RewardFailureError, match="SnapshotError: the environment Connected can't be copied"):
        played(ours.GRPOTrainer, [looks], tmp_path, Connected, max_steps=1)


class Wired(Connected):
    """Can't be copied, and needn't be: its own reward is had while nothing else is done with it."""

    def get_reward(self) -> float:
        assert isinstance(self.peer, Socket)
        return -float(self.distance)


def test_an_own_reward_needs_no_snapshot(tmp_path: Path) -> None:
    trainer = played(ours.GRPOTrainer, [], tmp_path, Wired, max_steps=1)
    assert all(value <= 0 for value in rewards_of(trainer)["Wired"])


class SlowOwner(LineGame):
    def get_reward(self) -> float:
        time.sleep(0.2)
        return -float(self.distance)


@pytest.mark.parametrize("pipeline", ["mini_batch", "one_step", "all"])
def test_pipelines_score_what_the_completions_left(pipeline: str, tmp_path: Path) -> None:
    """The next batch resets the same eight instances while rewards of this one are computed."""
    if pipeline == "all":
        pipeline_given: Any = ours.Pipeline(mini_batch=True, lookahead=1)
    else:
        pipeline_given = pipeline

    @reward(lane="thread")
    def right(completion: Any, environment: Any, start: int, goal: int) -> float:
        time.sleep(0.2)
        again = replayed({"start": start, "goal": goal}, completion)
        assert (environment.visited, environment.goal) == (again.visited, again.goal)
        return -float(again.distance)

    warned = nullcontext() if pipeline == "one_step" else pytest.warns(GuerdonWarning, match="'away'")
    with Dispatcher([right, away], workers=1) as dispatcher:
        with warned:
            trainer = make_player(
                ours.GRPOTrainer,
                dispatcher.reward_funcs,
                tmp_path,
                more={"environment_factory": SlowOwner, "pipeline": pipeline_given},
                per_device_train_batch_size=4,
                gradient_accumulation_steps=2,
                max_steps=3,
            )
        trainer.train()
    logs = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert [entry["guerdon/right/failed_frac"] for entry in logs] == [0.0] * 3
    assert [entry["rewards/SlowOwner/mean"] for entry in logs] == [entry["rewards/right/mean"] for entry in logs]
    assert len(trainer._environment_pool[None]) == 8


@pytest.mark.parametrize(
    ("pipeline", "accumulation", "evaluates", "ahead"),
    [
        (ours.Pipeline(), 4, "steps", False),
        (ours.Pipeline(lookahead=1), 4, "no", True),
        (ours.Pipeline(mini_batch=True), 4, "steps", False),
        (ours.Pipeline(mini_batch=True), 2, "no", False),
        # Between two optimizer steps on one batch
        (ours.Pipeline(mini_batch=True), 2, "steps", True),
    ],
)
def test_who_resets_an_environment_before_its_rewards_are_known(
    pipeline: ours.Pipeline, accumulation: int, evaluates: str, ahead: bool
) -> None:
    args = SimpleNamespace(gradient_accumulation_steps=accumulation, steps_per_generation=4, eval_strategy=evaluates)
    assert _resets_before_rewards(SimpleNamespace(pipeline=pipeline, args=args)) is ahead

"""Environments of the synchronous trainer (B-1 to B-4 of integrations/trl/sidebyside.py, E-1 to E-4 of worlds.py, S-1 to S-3 of
snapshots.py)."""

from __future__ import annotations

import asyncio
import copy
import inspect
import math
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl")

import trl

from guerdon import Dispatcher, RegistrationError, RewardFailureError, SnapshotError, ToolError, reward
from guerdon.integrations import trl as ours
from guerdon.integrations.trl import environments
from guerdon.integrations.trl.sidebyside import _looks_ahead
from guerdon.integrations.trl.snapshots import snapshot
from guerdon.integrations.trl.worlds import snapshots
from tests.integrations.game import Line, make_player, replayed, rows
from tests.integrations.tiny import end_loops, rewards_of, without_times

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.filterwarnings("error::guerdon.GuerdonWarning"),
]


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    yield
    end_loops()


def played(kind: type[Any], functions: list[Any], folder: Path, factory: Any, **options: Any) -> Any:
    """The trainer after a run."""
    trainer = make_player(kind, functions, folder, more={"environment_factory": factory}, **options)
    trainer.train()
    return trainer


def away(completions: list[Any], environments: list[Any], log_extra: Any, **columns: Any) -> list[float]:
    log_extra("visited", [list(environment.visited) for environment in environments])
    return [-float(environment.distance) for environment in environments]


# --- S-1, B-2: a game with state


def test_a_game_logs_what_it_logs_in_plain_trl(tmp_path: Path) -> None:
    plain = played(trl.GRPOTrainer, [away], tmp_path / "plain", Line)
    mine = played(ours.GRPOTrainer, [away], tmp_path / "ours", Line)
    assert without_times(mine.state.log_history) == without_times(plain.state.log_history)
    assert dict(mine._logs["extra"]) == dict(plain._logs["extra"])
    assert any("guerdon/tools/walk/failed_frac" in entry for entry in mine.state.log_history)


def test_rewards_see_what_a_serial_replay_sees_although_slots_are_used_again(tmp_path: Path) -> None:
    """Slow rewards by snapshot, per sample and per group; three batches in the same eight slots."""
    checked: list[int] = []

    @reward(lane="thread")
    def right(completion: Any, environment: Any, start: int, goal: int) -> float:
        time.sleep(0.01 * (start % 3))
        again = replayed({"start": start, "goal": goal}, completion)
        assert type(environment) is Line
        assert (environment.visited, environment.goal) == (again.visited, again.goal)
        checked.append(start)
        return -float(again.distance)

    with Dispatcher([right, away], workers=1) as dispatcher:
        trainer = played(ours.GRPOTrainer, list(dispatcher), tmp_path, Line, max_steps=3, data=rows(12))
    assert len(checked) == 24
    assert all(entry["guerdon/right/failed_frac"] == 0.0 for entry in trainer.state.log_history[:3])
    assert len(trainer._environment_pool[None]) == 8
    rewards = rewards_of(trainer)
    assert rewards["right"] == rewards["away"]


def test_a_snapshot_is_not_changed_by_a_later_reset() -> None:
    game = environments(Line)()
    game.reset(start=1, goal=4)
    game.walk(way="right")
    before = snapshot(game)
    game.walk(way="right")
    game.reset(start=9, goal=9)
    assert type(before) is Line
    assert (before.visited, before.goal, game.visited) == ([1, 2], 4, [9])


class Socket:
    """What can't be copied."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("cannot pickle a socket")


class Connected(Line):
    def reset(self, **row: Any) -> str:
        self.peer = Socket()
        return super().reset(**row)


class Careful(Connected):
    def __deepcopy__(self, memo: Any) -> Line:
        kept = Line()
        kept.goal, kept.visited = self.goal, list(self.visited)
        return kept


class Careless(Line):
    def __deepcopy__(self, memo: Any) -> Careless:
        return self


def test_what_cannot_be_copied_is_told_by_name(tmp_path: Path) -> None:
    """S-2"""
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
def test_whatever_a_copy_raises_is_told_and_ends_nothing(error: BaseException) -> None:
    with pytest.raises(SnapshotError, match=f"Leaving can't be copied.*{type(error).__name__}.*Define"):
        snapshot(Leaving(error))


def test_who_does_not_look_at_environments_needs_no_snapshot(tmp_path: Path) -> None:
    def kwargs_only(completions: list[Any], **columns: Any) -> list[float]:
        return [float(len(completion)) for completion in completions]

    played(ours.GRPOTrainer, [kwargs_only], tmp_path, Connected, max_steps=1)


def test_who_takes_environments_out_of_its_keywords_gets_them_too(tmp_path: Path) -> None:
    def looks(completions: list[Any], **columns: Any) -> list[float]:
        return [float(environment.goal) for environment in columns["environments"]]

    trainer = played(ours.GRPOTrainer, [looks], tmp_path, Line, max_steps=1)
    assert set(rewards_of(trainer)["looks"]) <= {index + 2.0 for index in range(8)}
    with pytest.raises(RewardFailureError, match="SnapshotError: the environment Connected can't be copied"):
        played(ours.GRPOTrainer, [looks], tmp_path, Connected, max_steps=1)


# --- E-1 to E-3, by themselves


class World:
    """Calls itself, waits, is slow."""

    __slots__ = ("log", "threads")

    async def reset(self, **row: Any) -> str:
        self.log: list[str] = []
        self.threads: list[threading.Thread] = []
        await asyncio.sleep(0.01)
        await self.look()
        return "ready"

    def act(self, word: str) -> str:
        """Acts.

        Args:
            word: What to do.
        """
        self.log.append(word)
        self.threads.append(threading.current_thread())
        return "again" if word == "twice" and self.act("once") else word

    async def look(self) -> str:
        """Looks."""
        await asyncio.sleep(0)
        return ",".join(self.log)

    @staticmethod
    def help() -> str:
        """Helps."""
        return "help"

    def stall(self, seconds: float) -> str:
        """Takes long.

        Args:
            seconds: How long.
        """
        time.sleep(seconds)
        return "late"

    def get_reward(self) -> float:
        return float(len(self.log))


def test_a_routed_environment_is_what_it_was_and_runs_on_the_engine() -> None:
    hub = environments(World, timeout=5)
    world: Any = hub()
    plain = World()
    assert isinstance(world, World)
    assert type(world).__name__ == "World"
    names = [name for name, _ in inspect.getmembers(type(plain), inspect.isfunction)]
    assert [name for name, _ in inspect.getmembers(type(world), inspect.isfunction)] == names
    for name in names:
        assert inspect.signature(getattr(world, name)) == inspect.signature(getattr(plain, name))
        assert inspect.getdoc(getattr(world, name)) == inspect.getdoc(getattr(plain, name))
        sync_reset = name == "reset" or not inspect.iscoroutinefunction(getattr(plain, name))
        assert inspect.iscoroutinefunction(getattr(world, name)) != sync_reset
    assert world.reset(any=1) == "ready"  # E-2
    assert world.act(word="twice") == "again"  # E-3
    assert asyncio.run(world.look()) == "twice,once"
    assert threading.current_thread() not in world.threads
    assert (world.help(), world.get_reward()) == ("help", 2.0)
    assert hub.stats()["act"].calls == 1
    assert hub() is not world
    hub.close()


def test_a_factory_can_be_pickled_and_refuses_what_makes_nothing() -> None:
    again = pickle.loads(pickle.dumps(environments({"line": Line}, timeout=3, reset_timeout=9)))
    assert (again["line"].time_of("walk"), again["line"].time_of("reset")) == (3, 9)
    with pytest.raises(RegistrationError, match="makes no environments"):
        environments(Line())  # type: ignore[arg-type]
    with pytest.raises(RegistrationError, match="reset_timeout"):
        environments(Line, reset_timeout=-1)
    with pytest.raises(RegistrationError, match="can't be routed"):
        environments(lambda: copy.deepcopy(3))()
    with pytest.raises(RegistrationError, match="NoneType can't be routed"):
        environments(lambda: None)()


def test_an_abandoned_call_keeps_its_environment_from_all_others() -> None:
    """E-4, S-3"""
    hub = environments(World, timeout=0.2)
    world: Any = hub()
    world.reset()
    with pytest.raises(ToolError, match=r"stall took longer than 0\.2 s"):
        world.stall(seconds=1.5)
    with pytest.raises(ToolError, match=r"World\.stall took too long and can't be stopped"):
        world.act(word="a")
    (gone,) = snapshots([world], needed=True, reused=False)
    with pytest.raises(SnapshotError, match=r"World\.stall took too long"):
        gone.log  # noqa: B018
    deadline = time.monotonic() + 30
    while hub.busy_in(world) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert world.act(word="b") == "b"  # it has come back
    hub.close()


# --- B-1: resets


class Slow(Line):
    """Its reset takes a while; how many go on at once is noted."""

    now = 0
    most = 0
    lock = threading.Lock()

    def reset(self, **row: Any) -> str:
        with Slow.lock:
            Slow.now += 1
            Slow.most = max(Slow.most, Slow.now)
        time.sleep(0.3)
        with Slow.lock:
            Slow.now -= 1
        return super().reset(**row)


class AsyncSlow(Line):
    most = 0
    now = 0

    async def reset(self, **row: Any) -> str:  # type: ignore[override]
        AsyncSlow.now += 1
        AsyncSlow.most = max(AsyncSlow.most, AsyncSlow.now)
        await asyncio.sleep(0.3)
        AsyncSlow.now -= 1
        return super().reset(**row)


@pytest.mark.parametrize("kind", [Slow, AsyncSlow])
def test_resets_go_on_side_by_side_and_each_gets_its_row(kind: Any, tmp_path: Path) -> None:
    kind.most = 0
    trainer = played(ours.GRPOTrainer, [away], tmp_path, kind, max_steps=1)
    assert kind.most >= 4
    visited = trainer._logs["extra"]["visited"]
    starts = sorted(int(prompt[-1]["content"].removeprefix("go ")) for prompt in trainer._logs["prompt"])
    assert sorted(one[0] for one in visited) == starts
    assert len(set(starts)) == 2


def test_a_reset_that_takes_too_long_ends_the_run_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"reset took longer than 0\.1 s"):
        played(ours.GRPOTrainer, [away], tmp_path, environments(Slow, reset_timeout=0.1), max_steps=1)


# --- B-3: an environment's own reward


class Owner(Line):
    def get_reward(self) -> float | None:
        if self.distance % 2:
            raise ValueError(f"odd: {self.distance}")
        return float(self.distance)


class AsyncOwner(Line):
    async def get_reward(self) -> float | None:
        await asyncio.sleep(0.3)
        return -float(self.distance)


def test_an_own_reward_is_a_column_like_any_other(tmp_path: Path) -> None:
    """A failure is no reward, and not the end of the run as in TRL."""

    def half(completions: list[Any], environments: list[Any], **columns: Any) -> list[float]:
        return [0.5 for _ in environments]

    with pytest.raises(ValueError, match="odd"):
        played(trl.GRPOTrainer, [half], tmp_path, Owner, max_steps=1)
    trainer = played(ours.GRPOTrainer, [half], tmp_path, {"a": Owner, "b": Line}, max_steps=1, data=_mixed())
    visited = trainer._logs["completion"]
    assert len(visited) == 8
    own = rewards_of(trainer)["Owner"]
    assert any(value == value for value in own)
    assert all(value % 2 == 0 for value in own if value == value)
    assert sum(math.isnan(value) for value in own) >= 4  # odd ones, and all of the other environment
    assert trainer.state.log_history[0]["guerdon/Owner/error_frac"] == sum(map(math.isnan, own)) / 8 - 0.5


def _mixed() -> Any:
    data = rows(2)
    return data.add_column("environment", ["a", "b"])


def test_async_own_rewards_equal_those_of_trl(tmp_path: Path) -> None:
    plain = played(trl.GRPOTrainer, [], tmp_path / "plain", AsyncOwner, max_steps=1)
    mine = played(ours.GRPOTrainer, [], tmp_path / "ours", AsyncOwner, max_steps=1)
    assert rewards_of(mine) == rewards_of(plain)
    assert list(rewards_of(mine)) == ["AsyncOwner"]


class Wired(Connected):
    """Can't be copied, and needn't be: its own reward is had while nothing else is done with it."""

    def get_reward(self) -> float:
        assert isinstance(self.peer, Socket)
        return -float(self.distance)


def test_an_own_reward_needs_no_snapshot(tmp_path: Path) -> None:
    trainer = played(ours.GRPOTrainer, [], tmp_path, Wired, max_steps=1)
    assert all(value <= 0 for value in rewards_of(trainer)["Wired"])


# --- B-4


class Sticky(Line):
    """Hangs in the first walk to the left."""

    hung = 0

    def walk(self, way: str) -> str:
        """Walks one step.

        Args:
            way: left or right.
        """
        if way == "left" and not Sticky.hung:
            Sticky.hung = id(self)
            time.sleep(6)
        return super().walk(way)


def test_an_environment_that_hangs_costs_its_sample_and_is_replaced(tmp_path: Path) -> None:
    Sticky.hung = 0

    @reward
    def near(environment: Any) -> float:
        return -float(environment.distance)

    with Dispatcher([near], workers=1) as dispatcher:
        trainer = played(ours.GRPOTrainer, list(dispatcher), tmp_path, environments(Sticky, timeout=0.5), max_steps=3)
    history = trainer.state.log_history
    assert Sticky.hung
    assert [entry["guerdon/near/failed_frac"] for entry in history[:3]].count(1 / 8) == 1
    assert len({id(one) for one in trainer._environment_pool[None]}) == 8
    assert (
        sum(
            entry["guerdon/tools/walk/timeout_frac"] > 0
            for entry in history[:3]
            if "guerdon/tools/walk/timeout_frac" in entry
        )
        == 1
    )


# --- it learns


def test_a_player_learns_the_game(tmp_path: Path) -> None:
    """Its goal lies to the right: it walks there more and more."""
    options: dict[str, Any] = {"learning_rate": 6e-2, "lr_scheduler_type": "constant", "max_completion_length": 60}
    trainer = played(ours.GRPOTrainer, [away], tmp_path, Line, max_steps=7, **options)
    scores = [entry["rewards/away/mean"] for entry in trainer.state.log_history if "rewards/away/mean" in entry]
    assert sum(scores[-3:]) / 3 > scores[0] + 0.5, scores


@pytest.mark.parametrize("pipeline", ["mini_batch", "one_step", "all"])
def test_pipelines_score_what_the_completions_left(pipeline: str, tmp_path: Path) -> None:
    """The next batch resets the same eight instances while the rewards of this one are still computed."""
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

    with Dispatcher([right, away], workers=1) as dispatcher:
        trainer = make_player(
            ours.GRPOTrainer,
            list(dispatcher),
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


class SlowOwner(Line):
    def get_reward(self) -> float:
        time.sleep(0.2)
        return -float(self.distance)


@pytest.mark.parametrize(
    ("pipeline", "accumulation", "evaluates", "ahead"),
    [
        (ours.Pipeline(), 4, "steps", False),
        (ours.Pipeline(lookahead=1), 4, "no", True),
        (ours.Pipeline(mini_batch=True), 4, "steps", False),
        (ours.Pipeline(mini_batch=True), 2, "no", False),
        (ours.Pipeline(mini_batch=True), 2, "steps", True),  # between two optimizer steps on one batch
    ],
)
def test_b2_who_resets_an_environment_before_its_rewards_are_known(
    pipeline: ours.Pipeline, accumulation: int, evaluates: str, ahead: bool
) -> None:
    args = SimpleNamespace(gradient_accumulation_steps=accumulation, steps_per_generation=4, eval_strategy=evaluates)
    assert _looks_ahead(SimpleNamespace(pipeline=pipeline, args=args)) is ahead

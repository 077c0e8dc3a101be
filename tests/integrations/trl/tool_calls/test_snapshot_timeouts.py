"""Snapshots that take their time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

from guerdon import Dispatcher, SnapshotError, ToolError, reward
from guerdon.integrations import trl as ours
from guerdon.integrations.trl import environments
from guerdon.integrations.trl.tool_calls.snapshots import take_snapshots
from tests.integrations.trl.line_game import LineGame, make_player

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.filterwarnings("error::guerdon.GuerdonWarning"),
]

PATIENCE_S = 40.0
TOGETHER = 6


@pytest.fixture(autouse=True)
def stuck(trainers: None) -> Iterator[None]:
    """What hangs comes back before what runs it is closed."""
    Stuck.free.clear()
    Stuck.hung = 0
    yield
    Stuck.free.set()


class Stuck(LineGame):
    """The first copy of one that stands at its start never comes."""

    free = threading.Event()
    hung = 0

    def __deepcopy__(self, memo: Any) -> LineGame:
        if not Stuck.hung:
            Stuck.hung = id(self)
            Stuck.free.wait(PATIENCE_S)
        kept = LineGame()
        kept.goal, kept.visited = self.goal, list(self.visited)
        return kept


class Meeting(LineGame):
    """Its copies come back once as many are under way as there are environments."""

    together = threading.Barrier(TOGETHER)

    def __deepcopy__(self, memo: Any) -> LineGame:
        self.together.wait(PATIENCE_S)
        return LineGame()


def made(kind: type[LineGame], **times: float) -> tuple[Any, list[Any]]:
    owner = environments(kind, **times)
    games = [owner() for _ in range(TOGETHER)]
    for game in games:
        game.reset(start=1, goal=4)
    return owner, games


def test_copies_are_made_concurrently() -> None:
    owner, games = made(Meeting)
    taken = take_snapshots(games, needed=True, reused=True)
    assert [type(one) for one in taken] == [LineGame] * TOGETHER
    owner.close()


def test_using_a_snapshot_whose_copy_timed_out_raises_the_reason(capfd: pytest.CaptureFixture[str]) -> None:
    owner, games = made(Stuck, reset_timeout=1.0)
    taken = take_snapshots(games, needed=True, reused=True)
    late = [one for one in taken if type(one) is not LineGame]
    assert len(late) == 1
    with pytest.raises(SnapshotError, match=r"Stuck took longer than 1 s .*Define Stuck\.__deepcopy__.*reset_timeout"):
        _ = late[0].goal
    (busy,) = [game for game in games if id(game) == Stuck.hung]
    with pytest.raises(ToolError, match=r"stuck in Stuck\.__deepcopy__"):
        busy.walk(way="left")
    again = take_snapshots([busy], needed=True, reused=True)  # at once: nothing is begun for it
    with pytest.raises(SnapshotError, match="timed out"):
        _ = again[0].goal
    Stuck.free.set()
    deadline = time.monotonic() + PATIENCE_S
    while owner.stuck_in(busy) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert busy.walk(way="left") == "0"
    owner.close()
    # The filter that makes warnings errors makes those of the lanes' threads lines.
    assert "guerdon: a call of the environment Stuck ran past its timeout of 1 s" in capfd.readouterr().err


class Unlike(LineGame):
    def __deepcopy__(self, memo: Any) -> LineGame:
        raise TypeError("not this one")


@pytest.mark.parametrize("needed", [True, False])
def test_what_cannot_be_copied_is_reported_now_or_to_those_who_look(needed: bool) -> None:
    owner, games = made(Unlike)
    if needed:
        with pytest.raises(SnapshotError, match="Unlike can't be copied"):
            take_snapshots(games, needed=needed, reused=True)
    else:
        for one in take_snapshots(games, needed=needed, reused=True):
            with pytest.raises(SnapshotError, match="Unlike can't be copied"):
                _ = one.goal  # type: ignore[attr-defined]
    owner.close()


def test_training_goes_on_with_a_new_environment(tmp_path: Path) -> None:
    reasons: list[str] = []

    @reward(lane="thread")
    def near(environment: Any) -> float:
        try:
            return -float(environment.distance)
        except SnapshotError as error:
            reasons.append(str(error))
            raise

    factory = environments(Stuck, reset_timeout=1.0)
    with Dispatcher([near], workers=1) as dispatcher:
        more = {"environment_factory": factory}
        trainer = make_player(ours.GRPOTrainer, dispatcher.reward_funcs, tmp_path, more=more, max_steps=2)
        trainer.train()
    history = trainer.state.log_history
    assert [entry["guerdon/near/failed_frac"] for entry in history[:2]] == [1 / 8, 0.0]
    assert len(reasons) == 1
    assert "copying the environment Stuck took longer than 1 s" in reasons[0]
    assert Stuck.hung not in {id(one) for one in trainer._environment_pool[None]}

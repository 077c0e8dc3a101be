"""Environments whose methods run on the engine, by themselves."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import threading
import time
from typing import Any

import pytest

pytest.importorskip("trl")


from guerdon import RegistrationError, SnapshotError, ToolError
from guerdon.integrations.trl import environments
from guerdon.integrations.trl.tool_calls.snapshots import take_snapshots
from tests.integrations.trl.line_game import LineGame

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.filterwarnings("error::guerdon.GuerdonWarning"),
]


class Room:
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
    owner = environments(Room, timeout=60)
    room: Any = owner()
    plain = Room()
    assert isinstance(room, Room)
    assert type(room).__name__ == "Room"
    names = [name for name, _ in inspect.getmembers(type(plain), inspect.isfunction)]
    assert [name for name, _ in inspect.getmembers(type(room), inspect.isfunction)] == names
    for name in names:
        assert inspect.signature(getattr(room, name)) == inspect.signature(getattr(plain, name))
        assert inspect.getdoc(getattr(room, name)) == inspect.getdoc(getattr(plain, name))
        sync_reset = name == "reset" or not inspect.iscoroutinefunction(getattr(plain, name))
        assert inspect.iscoroutinefunction(getattr(room, name)) != sync_reset
    assert room.reset(any=1) == "ready"
    assert room.act(word="twice") == "again"
    assert asyncio.run(room.look()) == "twice,once"
    assert threading.current_thread() not in room.threads
    assert (room.help(), room.get_reward()) == ("help", 2.0)
    assert owner.stats()["act"].calls == 1
    assert owner() is not room
    owner.close()


def test_a_factory_can_be_pickled_and_refuses_what_makes_nothing() -> None:
    again = pickle.loads(pickle.dumps(environments({"line": LineGame}, timeout=3, reset_timeout=9)))
    assert (again["line"].timeout_of("walk"), again["line"].timeout_of("reset")) == (3, 9)
    with pytest.raises(RegistrationError, match="can't make environments"):
        environments(LineGame())  # type: ignore[arg-type]
    with pytest.raises(RegistrationError, match="reset_timeout"):
        environments(LineGame, reset_timeout=-1)
    with pytest.raises(RegistrationError, match="can't run on the engine"):
        environments(lambda: copy.deepcopy(3))()
    with pytest.raises(RegistrationError, match="NoneType can't run on the engine"):
        environments(lambda: None)()


def test_a_class_under_two_names_stays_one_class() -> None:
    """So that a trainer gives it one reward column, in a pickled copy too."""
    made = environments({"one": LineGame, "other": LineGame, "room": Room})
    for factories in (made, pickle.loads(pickle.dumps(made))):
        one, other, room = (type(factories[name]()) for name in ("one", "other", "room"))
        assert one is other is not room
    assert type(environments(LineGame)()) is not type(made["one"]())


def test_an_abandoned_call_keeps_its_environment_from_all_others() -> None:
    owner = environments(Room, timeout=2.0)
    room: Any = owner()
    room.reset()
    with pytest.raises(ToolError, match=r"stall took longer than 2 s"):
        room.stall(seconds=8.0)
    with pytest.raises(ToolError, match=r"stuck in Room\.stall, which timed out and can't be stopped"):
        room.act(word="a")
    (gone,) = take_snapshots([room], needed=True, reused=False)
    with pytest.raises(SnapshotError, match=r"stuck in Room\.stall"):
        gone.log  # noqa: B018
    deadline = time.monotonic() + 60
    while owner.stuck_in(room) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert room.act(word="b") == "b"  # it has returned
    owner.close()

"""Environments whose methods run on the engine, by themselves."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import inspect
import pickle
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("trl")


from guerdon import ClosedError, Limit, RegistrationError, RetryAfter, ToolError
from guerdon.integrations.trl import Environments, environments
from guerdon.integrations.trl.tool_calls.environments import is_busy
from tests.clock import eventually
from tests.integrations.trl.line_game import LineGame
from tests.integrations.trl.tool_calls.tool_functions import Shop

pytestmark = pytest.mark.filterwarnings("default", "error::guerdon.GuerdonWarning")


def threads_of_environments() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("guerdon environment")]


@pytest.fixture
def no_threads() -> None:
    """Waits until the threads of earlier tests have ended."""
    eventually(lambda: not threads_of_environments())


@pytest.fixture
def make() -> Iterator[Callable[..., tuple[Environments, Any]]]:
    """Makes a factory and one environment of it that was reset; closes the factory at the end."""
    with contextlib.ExitStack() as ended:

        def made(kind: Any, row: Any = (), **options: Any) -> tuple[Environments, Any]:
            owner = environments(kind, **options)
            ended.callback(owner.close)
            environment: Any = owner()
            if row is not None:
                environment.reset(**dict(row))
            return owner, environment

        yield made


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


def test_a_routed_environment_is_what_it_was_and_runs_on_the_engine(make: Any) -> None:
    owner, room = make(Room, None, timeout=60)
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


def test_a_factory_can_be_pickled_and_refuses_what_makes_nothing() -> None:
    again = pickle.loads(pickle.dumps(environments({"line": LineGame}, timeout=3, ordered=True)))
    times = [again["line"].timeout_of(name) for name in ("walk", "reset", "get_reward")]
    assert (times, again["line"].ordered) == ([3, 600, 600], True)
    assert environments(LineGame).timeout_of("walk") == 180
    with pytest.raises(RegistrationError, match="can't make environments"):
        environments(LineGame())  # type: ignore[arg-type]
    with pytest.raises(RegistrationError, match="reset_timeout"):
        environments(LineGame, reset_timeout=-1)
    given: Any
    for given in (environments(LineGame), {}):
        for name in ("timeout", "reset_timeout", "reward_timeout"):
            with pytest.raises(RegistrationError, match=f"^{name}=-1"):
                environments(given, **{name: -1})  # type: ignore[call-overload]
        with pytest.raises(RegistrationError, match="ordered=1"):
            environments(given, ordered=1)  # type: ignore[call-overload]
    with pytest.raises(RegistrationError, match="retries=-1"):
        environments(LineGame, retries=-1)
    with pytest.raises(RegistrationError, match="ordered=1"):
        environments(LineGame, ordered=1)  # type: ignore[call-overload]
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
    assert type(environments(LineGame, timeout=1)()) is type(made["one"]())


def test_an_abandoned_call_keeps_its_environment_from_all_others(make: Any) -> None:
    _, room = make(Room, timeout=2.0)
    with pytest.raises(ToolError, match=r"stall took longer than 2 s"):
        room.stall(seconds=8.0)
    with pytest.raises(ToolError, match=r"stuck in Room\.stall, which timed out and can't be stopped"):
        room.act(word="a")
    deadline = time.monotonic() + 60
    while is_busy(room) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert room.act(word="b") == "b"  # it has returned


def test_many_calls_that_go_well_are_no_reason_for_a_warning(make: Any) -> None:
    """Inside they are rewards that are all alike."""
    _, game = make(LineGame, {"start": 0, "goal": 4})
    assert {game.walk(way="right") for _ in range(300)} == {"1", "2", "3", "4"}


# --- a thread for each environment


def test_thread_bound_objects_work_in_every_method(make: Any) -> None:
    owner, shop = make(Shop)
    shops = [shop, *(owner() for _ in range(3))]
    for shop in shops[1:]:
        shop.reset()
    for shop in shops:
        assert [shop.sell(what="tea"), asyncio.run(owner.reward(shop)), shop.get_reward()] == [1, 2.0, 3.0]


class Session:
    """Its objects belong to its loop."""

    async def reset(self, **row: Any) -> None:
        self.loop = asyncio.get_running_loop()

    async def same(self) -> bool:
        """Compares."""
        return asyncio.get_running_loop() is self.loop

    async def leave(self) -> str:
        """Leaves."""
        raise SystemExit(3)

    async def get_reward(self) -> float:
        return float(await self.same())


def test_loop_bound_objects_work_in_every_async_method(make: Any) -> None:
    owner, session = make(Session)
    assert asyncio.run(session.same())
    assert asyncio.run(session.get_reward()) == asyncio.run(owner.reward(session)) == 1.0


@pytest.mark.usefixtures("no_threads")
def test_the_thread_of_an_environment_ends_with_it(make: Any) -> None:
    _, shop = make(Shop)
    gone = weakref.ref(shop)
    (thread,) = [one for one in threading.enumerate() if one.name == "guerdon environment Shop"]
    del shop
    gc.collect()
    thread.join(30)
    assert gone() is None
    assert not thread.is_alive()


class Browser:
    """A method that waits for threads of its own, which call other methods."""

    def reset(self, **row: Any) -> None:
        self.pages: list[str] = []

    def fetch(self, page: str) -> str:
        """Fetches.

        Args:
            page: Which.
        """
        self.pages.append(page)
        return page.upper()

    def crawl(self) -> str:
        """Fetches all."""
        with ThreadPoolExecutor(2) as pool:
            return "".join(pool.map(lambda page: self.fetch(page=page), "ab"))


def test_a_method_may_wait_for_threads_that_call_its_environment(make: Any) -> None:
    owner, browser = make(Browser, timeout=20)
    assert browser.crawl() == "AB"
    assert sorted(browser.pages) == ["a", "b"]
    assert {name: count.calls for name, count in owner.stats().items()} == {"reset": 1, "crawl": 1}


def test_a_copy_runs_its_methods_directly(make: Any) -> None:
    owner, browser = make(Browser)
    again = copy.copy(browser)
    assert (again.fetch(page="a"), browser.pages) == ("A", ["a"])
    assert list(owner.stats()) == ["reset"]


def test_an_async_method_that_exits_fails_alone(make: Any) -> None:
    owner, one = make(Session, timeout=20)
    other = owner()
    other.reset()
    with pytest.raises(ToolError, match="SystemExit"):
        asyncio.run(one.leave())
    assert asyncio.run(other.same())
    assert asyncio.run(one.same())


@pytest.mark.usefixtures("no_threads")
@pytest.mark.parametrize("kind", [Shop, Session])
def test_nothing_runs_after_environments_were_closed(kind: type, make: Any) -> None:
    owner, environment = make(kind)
    (thread,) = threads_of_environments()
    owner.close()
    owner.close()
    thread.join(30)
    assert not thread.is_alive()
    with pytest.raises(ClosedError):
        environment.reset()
    with pytest.raises(ClosedError, match="environments were closed"):
        asyncio.run(owner.reward(environment))
    assert not threads_of_environments()


@pytest.mark.usefixtures("no_threads")
def test_the_loop_of_environments_ends_with_them() -> None:
    owner = environments(Session)
    session: Any = owner()
    session.reset()
    (thread,) = [one for one in threading.enumerate() if one.name == "guerdon environments"]
    owner._methods.close()
    owner._resets.close()
    owner._rewards.close()
    del owner, session
    gc.collect()
    thread.join(30)
    assert not thread.is_alive()


class Doze:
    async def reset(self, **row: Any) -> None:
        self.cancelled = False

    async def nap(self, seconds: float) -> str:
        """Waits.

        Args:
            seconds: How long.
        """
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return "rested"


def test_an_async_call_that_takes_too_long_is_cancelled_and_leaves_the_environment_usable(make: Any) -> None:
    _, doze = make(Doze, timeout=0.5)
    with pytest.raises(ToolError, match=r"nap took longer than 0\.5 s"):
        asyncio.run(doze.nap(seconds=60))
    assert asyncio.run(doze.nap(seconds=0)) == "rested"
    assert doze.cancelled


# --- resets


class Shaky:
    """Its first resets fail; how many go on at once is noted."""

    failures = 0
    now = most = 0
    lock = threading.Lock()

    def reset(self, **row: Any) -> str:
        with Shaky.lock:
            Shaky.now += 1
            Shaky.most = max(Shaky.most, Shaky.now)
            fails = Shaky.failures > 0
            Shaky.failures -= fails
        time.sleep(0.05)
        with Shaky.lock:
            Shaky.now -= 1
        if fails:
            raise row.get("error", ConnectionError)("too many sandboxes")
        return f"ready {row['start']}"


@pytest.fixture
def shaky() -> type[Shaky]:
    Shaky.failures = Shaky.now = Shaky.most = 0
    return Shaky


def test_a_reset_that_fails_is_tried_again(shaky: type[Shaky], make: Any) -> None:
    shaky.failures = 2
    _, one = make(shaky, None, retries=2)
    assert one.reset(start=3) == "ready 3"
    shaky.failures = 9
    with pytest.raises(ConnectionError, match="too many"):
        one.reset(start=3)
    assert shaky.failures == 6


def test_a_throttled_reset_waits_without_a_retry(shaky: type[Shaky], make: Any) -> None:
    shaky.failures = 2
    _, one = make(shaky, None)
    assert one.reset(start=3, error=lambda text: RetryAfter(0.01, text)) == "ready 3"


def test_no_more_resets_than_the_limit_go_on_at_once(shaky: type[Shaky], make: Any) -> None:
    owner, _ = make(shaky, None, limit=Limit(concurrency=2))
    pending = [owner.reset(owner(), {"start": number}) for number in range(6)]
    assert [each.result() for each in pending] == [f"ready {number}" for number in range(6)]
    assert shaky.most == 2


def test_a_trainer_on_any_thread_gets_the_reset_that_was_started_ahead(shaky: type[Shaky], make: Any) -> None:
    """Ray Train's trainers don't run on the main thread."""
    owner, one = make(shaky, None)
    ahead = owner.reset(one, {"start": 3})
    owner.reset_source = lambda owner, environment, kwargs: ahead
    with ThreadPoolExecutor(1) as pool:
        while not shaky.now:
            time.sleep(0.001)
        assert pool.submit(one.reset, start=3).result() == "ready 3"
    assert shaky.most == 1


# --- finalizers


class Closing(LineGame):
    """Closes itself when it is collected, which as a part of a cycle may be anywhere."""

    closed = 0

    def __init__(self) -> None:
        self.cycle = self

    def close(self) -> None:
        """Closes."""
        Closing.closed += 1

    def __del__(self) -> None:
        self.close()


class Lights(LineGame):
    """Is switched off by another one's finalizer."""

    closed = 0

    def close(self) -> None:
        """Closes."""
        Lights.closed += 1


@pytest.mark.parametrize("kind", [Closing, Lights])
def test_a_finalizer_that_calls_a_method_waits_for_nothing(kind: Any, make: Any) -> None:
    """Collection runs at every allocation: under our locks, on the loop and on the threads."""
    owner, held = make(Lights, None) if kind is Lights else (environments(kind), None)
    kind.closed = 0
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(20):
            game: Any = owner()
            if held is not None:
                game.cycle = game
                weakref.finalize(game, type(held).close, held)
            game.reset(start=1, goal=4)
            assert game.walk(way="right") == "2"
            del game
    finally:
        gc.set_threshold(*before)
    deadline = time.monotonic() + 30
    while kind.closed < 20 and time.monotonic() < deadline:  # the last one's thread ends
        gc.collect()
        time.sleep(0.01)
    assert kind.closed == 20
    assert owner.stats()["walk"].calls == 20
    assert "close" not in owner.stats()
    owner.close()

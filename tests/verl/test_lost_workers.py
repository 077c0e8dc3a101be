"""Responses that come again because a reward worker was lost, of workers in one process."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import pickle
import sys
import types
import zlib
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

import ray

from guerdon.errors import GuerdonWarning, RegistrationError, RewardFailureError
from guerdon.integrations.verl import RewardManager, routing, worker_restarts
from guerdon.integrations.verl.answered_groups import AnsweredGroups
from guerdon.integrations.verl.origin import Origin
from tests.verl.verl_setup import changed, dispatched, make_config, make_data, reward_loop

from verl.trainer.ppo.reward import load_reward_manager  # isort: skip


TASK: contextvars.ContextVar[str] = contextvars.ContextVar("task", default="")
LENGTHS = [4, 1, 2, 3, 5, 2, 1, 3]
RANKS = [3.0, 0.0, 1.0, 2.0, 3.0, 1.0, 0.0, 2.0]
# Owned by workers 0 and 1
OWNED = [next(name for name in map(str, range(9)) if zlib.crc32(name.encode()) % 2 == owner) for owner in (0, 1)]


class Fleet:
    """Two reward workers, and calls of them that are made again when one is lost."""

    def __init__(self, config: Any, tokenizer: Any, patch: pytest.MonkeyPatch) -> None:
        self._config, self._tokenizer, self._patch = config, tokenizer, patch
        self._tasks = (f"{number:x}" for number in itertools.count(1))
        self._running: list[set[asyncio.Task[Any]]] = [set(), set()]
        self._made: list[Any] = []
        patch.setattr(routing, "_task_id", TASK.get)
        patch.setattr(ray, "get_actor", lambda name: types.SimpleNamespace(compute_score=Method(self, int(name[-1]))))
        self.workers = [self._make(index) for index in (0, 1)]

    def _make(self, index: int, restarted: bool = False) -> Any:
        with self._patch.context() as patch:
            patch.setattr(routing, "_worker_index", lambda: index)
            patch.setattr(routing, "_was_restarted", lambda: restarted)
            made = load_reward_manager(self._config, self._tokenizer)
        self._made.append(made)
        return made

    def call(self, index: int, data: Any, alone: bool = False) -> asyncio.Future[Any]:
        """As verl calls a worker, with a part of a batch, or with a response alone."""
        payload = pickle.dumps(data)
        task = next(self._tasks)
        return asyncio.ensure_future(self._call(index, task, payload, alone))

    async def _call(self, index: int, task: str, payload: bytes, alone: bool) -> Any:
        while True:
            # Wherever it is called from
            context = contextvars.Context()
            context.run(TASK.set, task)
            run = context.run(asyncio.ensure_future, self._execute(index, payload, alone))
            self._running[index].add(run)
            try:
                return pickle.loads(pickle.dumps(await asyncio.shield(run)))
            except asyncio.CancelledError:
                if not run.cancelled():
                    raise
            finally:
                self._running[index].discard(run)

    def _execute(self, index: int, payload: bytes, alone: bool) -> Coroutine[Any, Any, Any]:
        data, worker = pickle.loads(payload), self.workers[index]
        if alone:
            found: Coroutine[Any, Any, Any] = worker.run_single(data)
            return found

        async def all_of_them() -> list[Any]:
            tasks = [asyncio.create_task(worker.run_single(data[at : at + 1])) for at in range(len(data))]
            return await asyncio.gather(*tasks)

        return all_of_them()

    def again(self, index: int, data: Any, task: str) -> asyncio.Future[Any]:
        """A call that Ray makes although one with the same id runs already."""
        return asyncio.ensure_future(self._call(index, task, pickle.dumps(data), False))

    def lose(self, *lost: int) -> None:
        for index in lost:
            self.workers[index] = self._make(index, restarted=True)
        for index in lost:
            for run in self._running[index]:
                run.cancel()

    def close(self) -> None:
        for one in self._made:
            one.dispatcher.close()


class Method:
    """`compute_score` of a worker's handle."""

    def __init__(self, fleet: Fleet, index: int) -> None:
        self._fleet, self._index = fleet, index

    def remote(self, data: Any) -> Any:
        return asyncio.shield(self._fleet.call(self._index, data, alone=True))


@pytest.fixture(scope="module")
def base(model: Path) -> Any:
    return make_config(model, dispatched("places"))


@pytest.fixture
def fleet(base: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    made = Fleet(changed(base, "+reward.reward_kwargs.group_timeout=60.0"), tokenizer, monkeypatch)
    yield made
    made.close()


@pytest.fixture
def data(tokenizer: Any, tmp_path: Path) -> Any:
    """Two groups of four, one of each owner, in turn: each worker gets two responses of each."""
    return make_data(
        tokenizer,
        ["a" * length for length in _turned(LENGTHS)],
        uid=_turned([OWNED[0]] * 4 + [OWNED[1]] * 4),
        extra_info=[{"index": index, "split": "train", "log": str(tmp_path / "log")} for index in range(8)],
    )


def _turned(values: list[Any]) -> list[Any]:
    return [value for pair in zip(values[:4], values[4:], strict=True) for value in pair]


def _scores(*answers: dict[str, Any]) -> list[float]:
    assert not any(name.startswith("guerdon") for answer in answers for name in answer)
    return [answer["reward_score"] for answer in answers]


def _calls(folder: Path) -> int:
    log = folder / "log"
    return len(log.read_text().split()) if log.exists() else 0


async def _until_idle() -> None:
    """All that can happen has happened."""
    for _ in range(50):
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("lost", [(0,), (1,), (0, 1)])
def test_amid_a_group(fleet: Fleet, data: Any, tmp_path: Path, lost: tuple[int, ...]) -> None:
    """Half of each group is there: of the worker that is lost, and of one that is not."""

    async def run() -> list[float]:
        first = fleet.call(0, data[:4])
        await _until_idle()
        fleet.lose(*lost)
        await _until_idle()
        rest = fleet.call(1, data[4:])
        return _scores(*await first, *await rest)

    assert asyncio.run(run()) == _turned(RANKS)
    assert _calls(tmp_path) == 2, "no group was complete before"


@pytest.mark.parametrize(("lost", "to"), [((0,), 1), ((1,), 1), ((0, 1, 0), 0)])
def test_after_a_group_was_answered(fleet: Fleet, data: Any, tmp_path: Path, lost: tuple[int, ...], to: int) -> None:
    """A lost worker has an answered group, and one whose call comes again. The owner of the first
    group gets it from the other worker; else the other worker has it. If both are lost, one
    after the other, the second has the answers of the first.
    """

    async def run() -> list[float]:
        # The second group lacks one response
        calls = [fleet.call(0, data[:4]), fleet.call(1, data[4:7])]
        await _until_idle()
        assert _calls(tmp_path) == 1
        for one in lost:
            fleet.lose(one)
            await _until_idle()
        assert not any(call.done() for call in calls)
        last = await fleet.call(to, data[7:])
        return _scores(*await calls[0], *await calls[1], *last)

    assert asyncio.run(run()) == _turned(RANKS)
    assert _calls(tmp_path) == 2


def test_a_call_that_ray_makes_twice(fleet: Fleet, data: Any, tmp_path: Path) -> None:
    """The worker is alive, and its responses are the same, in an open group and in an answered
    one; another response with an answered one's text is another."""

    async def run() -> None:
        first = fleet.call(0, data[:4])
        await _until_idle()
        again = fleet.again(0, data[:4], "1")
        rest = await fleet.call(1, data[4:])
        assert _scores(*await first, *rest) == _scores(*await again, *rest) == _turned(RANKS)
        assert _calls(tmp_path) == 2
        anew = [fleet.call(0, data[:4]), fleet.call(1, data[4:])]
        assert _scores(*await anew[0], *await anew[1]) == _turned(RANKS)
        assert _calls(tmp_path) == 4, "a later batch with the same prompts is scored"

    asyncio.run(run())


def test_a_failed_response_fails_again(fleet: Fleet, base: Any, tokenizer: Any, data: Any, tmp_path: Path) -> None:
    """It is not scored again: ``failed_reward=raise``."""
    fleet._config = changed(base, "+reward.reward_kwargs.failed_reward=raise")
    fleet.workers = [fleet._make(0), fleet._make(1)]
    fields = {"uid": [OWNED[0]] * 4, "extra_info": list(data.non_tensor_batch["extra_info"][:4])}
    empty = make_data(tokenizer, [""] * 4, **fields)

    async def run() -> None:
        answers = [fleet.call(index // 2, empty[index : index + 1], alone=True) for index in range(4)]
        failed = await asyncio.gather(*answers, return_exceptions=True)
        assert all(isinstance(error, RewardFailureError) for error in failed)
        fleet.lose(1)
        # The task of its last answer, which had not arrived.
        again = asyncio.ensure_future(fleet._call(1, "4", pickle.dumps(empty[3:]), alone=True))
        with pytest.raises(RewardFailureError, match="nothing to compare"):
            await again

    asyncio.run(run())
    assert _calls(tmp_path) == 1


def test_a_worker_that_does_not_answer(fleet: Fleet, data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not waited for, and said."""
    monkeypatch.setattr(routing, "RECOVERY_S", 0.2)

    async def run() -> list[float]:
        fleet.lose(0)
        with monkeypatch.context() as patch:
            patch.setattr(fleet.workers[1], "run_single", lambda data: asyncio.sleep(60))
            own = fleet.call(0, data[::2][:2])  # of the first group
            with pytest.warns(GuerdonWarning, match=r"worker 1 could not tell it .* \(no answer within 0.2 s\)"):
                await asyncio.sleep(3)
        rest = await fleet.call(1, data[::2][2:])
        return _scores(*await own, *rest)

    assert asyncio.run(run()) == RANKS[:4]


def test_groups_are_kept_in_bounds() -> None:
    way: Any = types.SimpleNamespace(index=0, restarted=False, owner=lambda key: int(key == "third"))
    origins = [Origin(0, "a", 0, None), Origin(1, "b", 0, None)]
    answers: list[Any] = [{"reward_score": 1.0}, RewardFailureError("none")]
    once = AnsweredGroups(way)
    once.add("third", origins, answers)
    [(_, packed)] = once.groups_of(1)[routing.KEPT]
    kept = AnsweredGroups(way, most=2 * len(packed))
    for key in ("first", "second", "first", "third"):
        kept.add(key, origins, answers)

    async def look() -> None:
        assert await kept.find("second", origins[0]) is None
        assert await kept.find("first", origins[0]) == {"reward_score": 1.0}
        assert await kept.find("third", Origin(1, "c", 0, None)) is None
        with pytest.raises(RewardFailureError, match="none"):
            await kept.find("third", origins[1])

    asyncio.run(look())
    assert kept.groups_of(1) == {routing.KEPT: [("third", packed)]}
    kept.add("large", origins, [{"reward_score": "x" * 3 * len(packed)}] * 2)
    assert [len(kept.groups_of(owner)[routing.KEPT]) for owner in (0, 1)] == [0, 0]


class Workers:
    """verl's manager as far as `worker_restarts` looks at it."""

    def __init__(self, config: Any, manager: Any) -> None:
        self.config, self.reward_manager_cls = config, manager
        self.reward_loop_workers_class: Any = None

    def _init_reward_loop_workers(self) -> None:
        self.made = self.reward_loop_workers_class


@pytest.fixture
def verls(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("verls_loop")
    wrapped = {"_init_reward_loop_workers": lambda self: Workers._init_reward_loop_workers(self)}
    module.RewardLoopManager = type("RewardLoopManager", (Workers,), wrapped)  # type: ignore[attr-defined]
    module.RewardLoopWorker = Worker  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "verls_loop", module)
    monkeypatch.setattr(worker_restarts, "_LOOP", "verls_loop")
    return module


class Worker:
    """verl's reward worker."""


def test_workers_of_ours_alone_are_started_again(verls: Any, base: Any) -> None:
    worker_restarts.install()
    wrapped = verls.RewardLoopManager._init_reward_loop_workers
    worker_restarts.install()
    assert verls.RewardLoopManager._init_reward_loop_workers is wrapped, "once"
    ours = verls.RewardLoopManager(base, RewardManager)
    ours._init_reward_loop_workers()
    options = ours.made._default_options
    assert (options["max_restarts"], options["max_task_retries"]) == (-1, 3)
    others = verls.RewardLoopManager(base, object)
    none = verls.RewardLoopManager(changed(base, "+reward.reward_kwargs.restarts=0"), RewardManager)
    for unchanged in (others, none):
        unchanged._init_reward_loop_workers()
        assert unchanged.made is None
    wrong = verls.RewardLoopManager(changed(base, "+reward.reward_kwargs.restarts=-1"), RewardManager)
    with pytest.raises(RegistrationError, match=r"restarts=-1: expected a whole number"):
        wrong._init_reward_loop_workers()


@pytest.mark.parametrize("lacks", ["RewardLoopManager", "RewardLoopWorker"])
def test_another_verl_is_left_as_it_is(verls: Any, lacks: str) -> None:
    delattr(verls, lacks)
    with pytest.warns(
        GuerdonWarning, match="in this version of verl: a reward worker that is lost .* is not started again"
    ):
        worker_restarts.install()


def test_another_manager_is_left_as_it_is(verls: Any, base: Any) -> None:
    worker_restarts.install()
    made = verls.RewardLoopManager(base, RewardManager)
    del made.reward_manager_cls
    with pytest.warns(GuerdonWarning, match="no reward_manager_cls"):
        made._init_reward_loop_workers()
    assert made.made is None


def test_verls_own_manager_is_wrapped() -> None:
    assert hasattr(reward_loop.RewardLoopManager._init_reward_loop_workers, "_guerdon_restarts")

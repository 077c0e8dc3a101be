"""The asynchronous trainer without a server: refusals, its process, its needs of TRL."""

from __future__ import annotations

import inspect
import multiprocessing
import pickle
import queue
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl")
pytest.importorskip("aiohttp")
pytest.importorskip("requests")

import torch

from guerdon import Dispatcher, GuerdonError, RegistrationError, RewardFailureError, reward, rubric
from guerdon.errors import ClosedError
from guerdon.integrations.trl.async_grpo.group_scores import GroupScorer
from tests.integrations.trl.async_grpo import reward_functions, rollout_loops
from tests.integrations.trl.async_grpo.rollout_loops import (
    AsyncGRPOTrainer,
    AsyncRolloutWorker,
    LoopOptions,
    TRLAsyncGRPOTrainer,
    TRLRolloutLoop,
    _with_workers_own,
    rollout_process,
)

pytestmark = pytest.mark.filterwarnings("error::guerdon.GuerdonWarning")


@reward
def state(text: str, trainer_state: Any) -> float:
    return 0.0


class OwnLoop(TRLRolloutLoop):  # type: ignore[misc]
    """One that gives a reward itself, as TRL's harness does."""

    _provides_rollout_reward = True

    def __init__(self, *, bonus: float, **named: Any) -> None:
        super().__init__(**named)
        self.bonus = bonus
        self.reward_func_names.append("bonus")


class OwnWorker(AsyncRolloutWorker):  # type: ignore[misc]
    """As TRL makes one, without the vLLM that it asks for."""

    _loop_cls = OwnLoop

    def __init__(self, **loop_kwargs: Any) -> None:
        self._loop_kwargs = loop_kwargs
        self.rollout_buffer = queue.Queue()


def worker_of(*functions: Any) -> OwnWorker:
    return OwnWorker(reward_funcs=list(functions), bonus=10.0)


@pytest.mark.parametrize(
    ("given", "named", "says"),
    [
        (reward_functions.length, {"concurrent_groups": 0}, "concurrent_groups=0"),
        (reward_functions.length, {"concurrent_groups": None}, "concurrent_groups=None"),
        (reward_functions.length, {"rollout_worker": object()}, "is a object, which scores by itself"),
        (reward_functions.length, {"rollout_worker": worker_of(reward_functions.plain)}, "to its rollout_worker"),
        ([reward_functions.length, "a/reward-model"], {}, "no reward models"),
        ([reward_functions.length, torch.nn.Linear(1, 1)], {}, "no reward models"),
        (state, {}, "trainer_state"),
        (
            [reward_functions.length, Dispatcher([reward_functions.length])],
            {},
            "two reward functions are named 'length'",
        ),
        ([lambda completions: [0.0], 3], {}, "3"),
    ],
)
def test_invalid_options_are_refused_before_loading(given: Any, named: Any, says: str) -> None:
    with pytest.raises(RegistrationError, match=says):
        AsyncGRPOTrainer("no/such-model", given, **named)


def test_functions_travel_to_the_rollout_process_by_value_where_they_must() -> None:
    factor = 2.0
    with Dispatcher([reward(lambda text: factor * len(text), name="twice"), reward_functions.length]) as dispatcher:
        options = LoopOptions(tuple(dispatcher.reward_funcs), 3, 2)
        there = pickle.loads(pickle.dumps(options))
    assert [column.__name__ for column in there.columns] == ["twice", "length"]
    assert there.columns[0].dispatcher is there.columns[1].dispatcher
    assert (there.concurrent_groups, there.max_staleness) == (3, 2)
    with there.columns[0].dispatcher as copy:
        assert copy.score(completions=["abc"]).rewards.tolist() == [[[6.0, 3.0]]]


@pytest.mark.parametrize("where", ["trainer", "worker"])
def test_a_worker_of_the_users_own_has_its_samples_scored_by_the_engine(where: str) -> None:
    functions = [reward_functions.fails_on_x]
    worker = worker_of(*functions) if where == "worker" else worker_of()
    given = _with_workers_own(None if where == "worker" else functions, worker)
    with Dispatcher(given) as dispatcher:
        trainer = SimpleNamespace(
            concurrent_groups=2,
            args=SimpleNamespace(max_staleness=3),
            _lora_sync=False,
        )
        AsyncGRPOTrainer._extend(trainer, worker, tuple(dispatcher.reward_funcs))
        worker._loop_kwargs["reward_funcs"] = []
        made, named = pickle.loads(pickle.dumps((worker._loop_cls, worker._loop_kwargs["guerdon"])))
        loop = made(guerdon=named, bonus=10.0, **rollout_loops.arguments())
        assert isinstance(loop, OwnLoop)
        group = rollout_loops.group_of(0, ["a", "x", "ccc"])
        group.rollout_rewards = [loop.bonus, loop.bonus, loop.bonus + 1]
        (samples,) = rollout_loops.score(loop, [group])
        rollout_loops.close(loop)
        for each in loop._scorer.dispatchers:
            each.close()
    # 11 and 14; the one on which a function failed has no reward, whatever the loop gave it.
    assert [round(sample.advantage, 2) for sample in samples if sample.advantage] == [-1.0, 1.0]
    assert [sample.metrics["rewards/bonus"] for sample in samples][::2] == [10.0, 11.0]


def test_the_weights_of_a_rubric_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL's configuration has none for this trainer."""

    def made(self: Any, model: Any, reward_funcs: Any = None, args: Any = None, *, rollout_worker: Any = None) -> None:
        self.args, self._lora_sync = SimpleNamespace(num_generations=4, max_staleness=3), False
        self.rollout_worker = rollout_worker

    monkeypatch.setattr(TRLAsyncGRPOTrainer, "__init__", made)
    weights = {"correct": 2.0, "clear": 1.0}
    criteria = rubric(dict.fromkeys(weights, "Is it?"), weights=weights, model="m", base_url="http://127.0.0.1:9/v1")
    trainer = AsyncGRPOTrainer("m", [criteria, reward_functions.length], rollout_worker=worker_of())
    columns = trainer.rollout_worker._loop_kwargs["guerdon"].columns
    assert [column.__name__ for column in columns] == ["rubric/correct", "rubric/clear", "length"]
    assert GroupScorer(columns)._weights == [2.0, 1.0, 1.0]


def failed_worker(error: Exception) -> Any:
    """TRL's worker as it stands when its process has failed with `error`."""
    loop = rollout_loops.make_plain_loop([reward_functions.plain])
    info: queue.Queue[Any] = queue.Queue()
    loop._exception_info_queue, loop._failed_event = info, threading.Event()

    async def fail(stop_event: Any) -> None:
        raise error

    loop._run_loops = fail
    with pytest.raises(type(error)):
        loop.run()
    heart = SimpleNamespace(value=time.time())
    worker = SimpleNamespace(_failed_event=loop._failed_event, _exception_info_queue=info, _heartbeat_value=heart)
    return checked(worker, None)


def checked(worker: Any, process: Any) -> Any:
    worker._process = process
    worker.check_health = lambda stale: AsyncRolloutWorker.check_health(worker, stale)
    return worker


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RewardFailureError("too many\nof them"), RewardFailureError),
        (ClosedError("closed"), ClosedError),
        (KeyError("prompt"), RuntimeError),
    ],
)
def test_an_error_of_the_rollout_process_is_raised_as_what_it_is(error: Exception, kind: type[Exception]) -> None:
    worker = failed_worker(error)
    with pytest.raises(kind) as caught:
        rollout_process.health_check(worker)(300.0)
    assert type(caught.value) is kind
    if kind is not RuntimeError:
        assert str(caught.value) == str(error)


def test_a_heart_that_stopped_is_still_reported() -> None:
    worker = SimpleNamespace(_failed_event=threading.Event(), _heartbeat_value=SimpleNamespace(value=0.0))
    with pytest.raises(RuntimeError, match="heartbeat stale"):
        rollout_process.health_check(checked(worker, None))(300.0)


class Process:
    """A process that ends when asked to, once its queue has been read, or that has ended."""

    exitcode = -9

    def __init__(self, buffer: queue.Queue[int] | None, *, asked: bool = True) -> None:
        self._buffer = buffer
        self.asked = asked

    def is_alive(self) -> bool:
        return not self.asked or (self._buffer is not None and not self._buffer.empty())

    def join(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while self.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)


def test_a_process_that_was_killed_is_reported_at_once() -> None:
    worker = SimpleNamespace(_failed_event=threading.Event(), _heartbeat_value=SimpleNamespace(value=time.time()))
    with pytest.raises(GuerdonError, match=r"exit code -9\) without an error"):
        rollout_process.health_check(checked(worker, Process(None)))(300.0)


@pytest.mark.parametrize("failed", [False, True])
def test_the_queue_is_read_while_the_process_ends(failed: bool) -> None:
    """A process that has failed isn't asked to stop; one that goes on is."""
    buffer: queue.Queue[int] = queue.Queue()
    for index in range(100):
        buffer.put(index)
    worker = SimpleNamespace(
        rollout_buffer=buffer, _process=Process(buffer, asked=failed), _failed_event=threading.Event()
    )
    if failed:
        worker._failed_event.set()
    asked = []

    def stop() -> None:
        if worker._process is not None:
            asked.append(worker._process)
            worker._process.asked = True
            worker._process.join(30.0)

    worker.stop = stop
    rollout_process.stop_and_drain(worker)()
    assert buffer.empty()
    assert bool(asked) is not failed


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # that it has threads
def test_half_a_message_of_a_process_that_was_killed_is_not_waited_for() -> None:
    # A spawned one would leave multiprocessing's tracker of resources
    context = multiprocessing.get_context("fork")
    buffer = context.Queue()
    process = context.Process(target=reward_functions.begin_a_message, args=(buffer,), daemon=True)
    worker = SimpleNamespace(rollout_buffer=buffer, start=process.start, _process=process)
    worker._failed_event, worker._exception_info_queue = context.Event(), context.Queue()
    rollout_process.start_and_read(worker)()
    try:
        assert buffer._reader.poll(60)  # it has begun to write, and waits for a reader
        process.kill()
        process.join(30)
        with pytest.raises(queue.Empty):
            buffer.get(timeout=60)
        with pytest.raises(GuerdonError, match=r"exit code -9\) without an error"):
            rollout_process.health_check(checked(worker, process))(300.0)
    finally:
        process.kill()
        process.join(30)
        process.close()
        buffer.close()
        worker._exception_info_queue.close()


def test_it_trains_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TRLAsyncGRPOTrainer, "_inner_training_loop", lambda self, **named: "trained")
    trainer = object.__new__(AsyncGRPOTrainer)
    trainer._began = False
    assert trainer._inner_training_loop(resume_from_checkpoint=None) == "trained"
    with pytest.raises(GuerdonError, match=r"has trained already.*make a new one"):
        trainer._inner_training_loop(resume_from_checkpoint=None)


# --- the seams: each of these is where TRL is held on to, and fails when it moves


def source(function: Any) -> str:
    return " ".join(inspect.getsource(function).split())


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_seam_how_the_loop_gets_to_its_process() -> None:
    text = source(AsyncRolloutWorker.start)
    assert "self._loop_cls, self._loop_kwargs," in text
    assert "pickle.dumps(self._loop_kwargs)" in text
    assert "if self._process is None: return" in source(AsyncRolloutWorker.stop)
    child = source(inspect.getmodule(AsyncRolloutWorker)._child_main)
    assert "loop_cls( **loop_kwargs," in child
    assert 'cause = RuntimeError(f"{type_name}: {msg}\\n{tb}")' in source(AsyncRolloutWorker.check_health)
    assert "self.rollout_buffer = ctx.Queue(maxsize=queue_maxsize)" in source(AsyncRolloutWorker.__init__)
    assert "self.rollout_queue = self.rollout_worker.rollout_buffer" in source(TRLAsyncGRPOTrainer.__init__)
    reading = source(inspect.getmodule(TRLAsyncGRPOTrainer).RolloutQueueDataset.__iter__)
    assert "self.queue.get(timeout=self.poll_interval_s) break except queue.Empty:" in reading


def test_seam_what_the_trainer_keeps_and_calls() -> None:
    made = source(TRLAsyncGRPOTrainer.__init__)
    assert 'self._lora_name = "trl-policy"' in made
    assert "lora_name=self._lora_name if self._lora_sync else None" in made
    assert "self._lora_sync = lora_sync" in made
    assert "self.rollout_worker = AsyncRolloutWorker(" in made
    assert "self._sync_weight_lora(t0)" in source(TRLAsyncGRPOTrainer._sync_weight)
    assert 'f"{self._lora_name}-v{version}"' in source(TRLAsyncGRPOTrainer._sync_weight_lora)
    assert "check_health_fn=self.rollout_worker.check_health" in source(TRLAsyncGRPOTrainer.get_train_dataloader)
    assert "self.rollout_worker.stop()" in source(TRLAsyncGRPOTrainer._inner_training_loop)
    begins = inspect.getmodule(TRLAsyncGRPOTrainer)._TrainBeginCallback.on_train_begin
    assert "if self._fired: return" in source(begins)
    position = parameters(TRLAsyncGRPOTrainer.__init__).index("reward_funcs")
    assert parameters(TRLAsyncGRPOTrainer.__init__)[position - 1 : position + 2] == ["model", "reward_funcs", "args"]

"""Reward workers of verl's on two Ray nodes, lost in mid-batch."""

from __future__ import annotations

import os
import signal
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, final

import psutil
import pytest

pytest.importorskip("verl")

import ray

from tests.clock import eventually
from tests.processes import gone
from tests.ray.nodes import Nodes, wait_until_gone
from tests.verl import rewards
from tests.verl.verl_setup import dispatched, make_config, make_data, reward_loop, scores_of

from verl.utils import hf_tokenizer  # isort: skip # verl_setup imports verl without its warnings

pytestmark = pytest.mark.timeout(600)  # each of Ray's workers imports verl

REWARDS = Path(rewards.__file__)
OTHER = "node-1"
LENGTHS = [5, 1, 7, 3, 2, 6, 4, 9, 3, 8, 1, 2, 6, 2, 5, 9, 8, 4, 1, 3, 6, 7, 9, 5]
PROMPTS = 6
PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    """Two nodes; nothing of them is left."""
    nodes = Nodes([OTHER])
    yield nodes
    started = [child.pid for child in psutil.Process().children(recursive=True)]
    nodes.close()
    eventually(lambda: gone(started), "no process is left")
    wait_until_gone()


@final
class Loop:
    """verl's reward loop with two workers, one on each node."""

    def __init__(self, nodes: Nodes, model: Path, *overrides: str) -> None:
        nodes.make_whole()
        self.manager = reward_loop.RewardLoopManager(make_config(model, *overrides))
        self._tokenizer = hf_tokenizer(str(model))
        ray.get([worker.__ray_ready__.remote() for worker in self.workers])
        assert {self.whereabouts(worker)["node"] for worker in self.workers} == {
            nodes.ray_id("head"),
            nodes.ray_id(OTHER),
        }

    @property
    def workers(self) -> list[Any]:
        workers: list[Any] = self.manager.reward_loop_workers
        return workers

    @staticmethod
    def whereabouts(worker: Any) -> dict[str, Any]:
        """Where Ray has started an actor, and how often again."""
        found = ray._private.state.actors(worker._actor_id.hex())
        return {"pid": found["Pid"], "node": found["Address"]["NodeID"], "restarts": found["NumRestarts"]}

    def on(self, node: str) -> Any:
        return next(worker for worker in self.workers if self.whereabouts(worker)["node"] == node)

    def close(self) -> None:
        """Ends the workers, which frees their names."""
        for worker in self.workers:
            ray.kill(worker)
        actors = ray.util.list_named_actors
        eventually(lambda: not any(name.startswith("reward_loop_worker") for name in actors()), "no worker is left")


@final
class Batch:
    """A batch that is being scored, of which a part is held until `finish`."""

    def __init__(self, loop: Loop, folder: Path, texts: list[str], held: list[bool], **fields: list[Any]) -> None:
        self._gate = folder / "gate"
        self._log = folder / "log"
        self._log.touch()
        infos = [
            {"index": index, "split": "train", "log": str(self._log), "gate": str(self._gate) if waits else ""}
            for index, waits in enumerate(held)
        ]
        data = make_data(loop._tokenizer, texts, extra_info=infos, **fields)
        self._result: list[Any] = []
        self._thread = threading.Thread(target=lambda: self._result.append(loop.manager.compute_rm_score(data)))
        self._thread.start()

    def calls(self) -> Counter[str]:
        """How often each prompt's or response's function was called."""
        return Counter(self._log.read_text().split())

    def wait_for(self, calls: int) -> None:
        eventually(lambda: sum(self.calls().values()) >= calls, "the functions are called", seconds=PATIENCE_S)
        time.sleep(0.5)  # answers are on their way

    def finish(self) -> Any:
        self._gate.touch()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "it has not ended"
        assert self._result, "it has failed"
        return self._result[0]


GROUPS = (dispatched("held"),)
SINGLE = (
    f"reward.custom_reward_function.path={REWARDS}",
    "reward.custom_reward_function.name=held_score",
    "+reward.reward_kwargs.failed_reward=-1",
)


@pytest.fixture(scope="module")
def loop_with(cluster: Nodes, model: Path) -> Iterator[Callable[[tuple[str, ...]], Loop]]:
    """Gives the loop with these settings; the one of the test before if it has the same."""
    current: dict[tuple[str, ...], Loop] = {}

    def give(settings: tuple[str, ...]) -> Loop:
        if settings not in current:
            for _ in range(len(current)):
                current.popitem()[1].close()
            current[settings] = Loop(cluster, model, *settings)
        return current[settings]

    yield give
    for loop in current.values():
        loop.close()


@pytest.fixture
def ranks(loop_with: Callable[[tuple[str, ...]], Loop]) -> Loop:
    """A group function, whose prompts each have responses in both workers' parts of a batch."""
    return loop_with(GROUPS)


def _begin_groups(loop: Loop, folder: Path) -> tuple[Batch, list[list[str]]]:
    """A batch in which each worker owns two prompts that were answered, and one that is held; the
    prompts of each."""
    names = [f"{folder.name}-{number}" for number in range(100)]
    owned = [[name for name in names if zlib.crc32(name.encode()) % 2 == owner][:3] for owner in (0, 1)]
    prompts = [name for pair in zip(*owned, strict=True) for name in pair]
    uid = [prompts[index % PROMPTS] for index in range(len(LENGTHS))]
    held = [name in (owned[0][2], owned[1][2]) for name in uid]
    batch = Batch(loop, folder, ["a" * length for length in LENGTHS], held, uid=uid)
    batch.wait_for(PROMPTS)
    return batch, owned


def _wait_until_dead(pid: int) -> None:
    """Those of a lost node end by themselves, a little later."""
    eventually(lambda: gone([pid]), "the worker ends", seconds=PATIENCE_S)


def _expect_ranks(batch: Batch, owned: list[list[str]], lost: int) -> None:
    found = batch.finish()
    groups = [LENGTHS[start::PROMPTS] for start in range(PROMPTS)]
    expected = [float(sorted(groups[index % PROMPTS]).index(length)) for index, length in enumerate(LENGTHS)]
    assert scores_of(found) == expected
    assert found.non_tensor_batch["guerdon_status"].tolist() == ["held_ranks:ok"] * len(LENGTHS)
    calls = batch.calls()
    twice = owned[lost][2]
    assert calls.pop(twice) == 2, "it was begun by the worker that was lost"
    assert calls == {name: 1 for name in (*owned[0], *owned[1]) if name != twice}, "those answered are not scored again"


@pytest.mark.fault(
    "a Ray node with one of verl's reward workers is lost in mid-batch, with group functions",
    sees="nothing: the worker is started on another node; its part of the batch comes again, groups that were answered are "
    "answered as before",
)
def test_a_lost_node_with_groups(cluster: Nodes, ranks: Loop, tmp_path: Path) -> None:
    batch, owned = _begin_groups(ranks, tmp_path)
    worker = ranks.on(cluster.ray_id(OTHER))
    pid = Loop.whereabouts(worker)["pid"]
    cluster.remove(OTHER)
    _wait_until_dead(pid)
    _expect_ranks(batch, owned, ranks.workers.index(worker))
    assert Loop.whereabouts(worker)["node"] == cluster.ray_id("head")


@pytest.mark.whole
@pytest.mark.fault(
    "one of verl's reward workers is killed in mid-batch, with group functions",
    sees="nothing: the same on its own node",
)
def test_a_killed_worker_with_groups(ranks: Loop, tmp_path: Path) -> None:
    batch, owned = _begin_groups(ranks, tmp_path)
    pid = Loop.whereabouts(ranks.workers[0])["pid"]
    os.kill(pid, signal.SIGKILL)
    _wait_until_dead(pid)
    _expect_ranks(batch, owned, 0)


@pytest.mark.whole
@pytest.mark.fault(
    "two of verl's reward workers are lost in mid-batch, one with its node",
    sees="nothing: both are started again; responses that had been scored in them are scored again",
)
def test_both_workers_are_lost(cluster: Nodes, loop_with: Callable[[tuple[str, ...]], Loop], tmp_path: Path) -> None:
    """A function of one response, which fails on one, has the same results without a loss."""
    loop = loop_with(SINGLE)
    texts = ["a" * length for length in LENGTHS]
    texts[5] = "raise"
    batch = Batch(loop, tmp_path, texts, [index % 3 == 2 for index in range(len(texts))])
    batch.wait_for(len(texts))
    on_head, on_other = (Loop.whereabouts(loop.on(cluster.ray_id(node)))["pid"] for node in ("head", OTHER))
    cluster.remove(OTHER)
    os.kill(on_head, signal.SIGKILL)
    for pid in (on_head, on_other):
        _wait_until_dead(pid)
    found = batch.finish()
    assert scores_of(found) == [-1.0 if text == "raise" else float(len(text)) for text in texts]
    assert batch.calls() == {str(index): 2 for index in range(len(texts))}
    assert [Loop.whereabouts(worker)["restarts"] for worker in loop.workers] == [1, 1]

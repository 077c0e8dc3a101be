"""The whole asynchronous rollout loop: generates, scores, ends clean."""

from __future__ import annotations

import math
import queue
import time
from typing import Any

import pytest

pytest.importorskip("trl")
pytest.importorskip("aiohttp")

from guerdon import Dispatcher, RewardFailureError
from tests.clock import eventually
from tests.integrations.trl.async_grpo import reward_functions, rollout_loops

pytestmark = pytest.mark.filterwarnings("default", "error::guerdon.GuerdonWarning")


def make(function: Any = reward_functions.length, **named: Any) -> Any:
    dispatcher = None if function is None else Dispatcher([function])
    return rollout_loops.make_loop(dispatcher, kind=rollout_loops.SpeakingLoop, **named)


def check(samples: list[Any]) -> None:
    """Every sample's reward is that of its own completion, and groups are whole."""
    groups: dict[int, list[Any]] = {}
    for sample in samples:
        (message,) = sample.completion
        assert sample.metrics["rewards/length"] == float(len(message["content"]))
        groups.setdefault(sample.group_id, []).append(sample)
    for group in groups.values():
        assert len({str(sample.prompt) for sample in group}) == 1
        assert len(group) <= 4


def take(loop: Any, count: int) -> list[Any]:
    return [loop.rollout_buffer.get(timeout=40) for _ in range(count)]


def test_every_sample_has_the_reward_of_its_completion() -> None:
    loop = make()
    with rollout_loops.running(loop) as run:
        samples = take(loop, 64)
    assert run.error is None
    check(samples)


def test_a_reward_that_fails_too_often_ends_the_run() -> None:
    loop = make(reward_functions.always_fails)
    with rollout_loops.running(loop) as run:
        run.thread.join(40)
    assert isinstance(run.error, RewardFailureError)
    assert loop._exception_info_queue.get_nowait()[0] == "RewardFailureError"


@pytest.mark.parametrize("game", [reward_functions.Game, reward_functions.Quiz])
@pytest.mark.parametrize("function", [reward_functions.length, None])
def test_rewards_of_environments_are_taken_concurrently(game: Any, function: Any) -> None:
    """Each waits for three others, so one at a time none would come. Instances are reused."""
    reward_functions.Game.together.reset()
    loop = make(function, environment_factory=game)
    with rollout_loops.running(loop) as run:
        samples = take(loop, 64)
        reward_functions.Game.together.abort()
    assert run.error is None
    assert len(loop._environment_pool[None]) <= loop.max_inflight_tasks
    reported = 0
    for sample in samples:
        index = int(sample.prompt[-1]["content"].removeprefix("say "))
        answer = "?" if index % 3 == 2 else "aeiou"[index % 5]
        value = sample.metrics[f"rewards/{game.__name__}"]
        if answer in "?u":
            assert math.isnan(value)
            assert sample.advantage == 0.0
            assert math.isnan(sample.metrics["reward"])
        else:
            reported += 1
            expected = float("aeiou".index(answer))
            assert value == expected
            length = 0.0 if function is None else sample.metrics["rewards/length"]
            assert sample.metrics["reward"] == expected + length
    assert reported > 0


def test_reward_functions_get_environments_as_their_completions_left_them() -> None:
    """They look long after the completions ended, while others are generated."""
    made: list[reward_functions.Diary] = []

    def diary() -> reward_functions.Diary:
        made.append(reward_functions.Diary())
        return made[-1]

    loop = make(reward_functions.latest, environment_factory=diary)
    with rollout_loops.running(loop) as run:
        samples = take(loop, 96)
    assert run.error is None
    assert [sample.metrics["rewards/latest"] for sample in samples] == [1.0] * 96
    # Not those of the pool: the rollouts that the end of the loop cancelled keep theirs.
    assert max(len(instance.seen) for instance in made) >= 2


def test_it_stops_at_once_though_the_server_does_not_answer() -> None:
    loop = make()
    loop.slow_s = 600.0
    with rollout_loops.running(loop) as run:
        eventually(lambda: loop.asked, seconds=30)
        began = time.monotonic()
    # TRL's trainer waits 15 s for this, and a completion may take 10 minutes
    assert time.monotonic() - began < 100.0
    assert run.error is None
    assert loop._scorer.dispatchers[0].closed


def test_it_stops_at_once_though_a_reward_does_not_come() -> None:
    loop = make(reward_functions.never)
    with rollout_loops.running(loop) as run:
        eventually(lambda: loop._scoring > 0, seconds=30)
        began = time.monotonic()
    assert time.monotonic() - began < 100.0
    assert run.error is None


def test_it_ends_with_its_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer that was killed can tell nobody, and nobody reads its queues any more."""
    buffer = _Queue()
    loop = make(rollout_buffer=buffer, metrics_queue=_Queue(), exception_info_queue=_Queue())
    with rollout_loops.running(loop) as run:
        eventually(lambda: not buffer.empty(), seconds=30)
        monkeypatch.setattr("guerdon.integrations.trl.async_grpo.rollout_loop._orphaned", lambda: True)
        run.thread.join(40)
    assert "is gone" in str(run.error)
    assert buffer.left


class _Queue(queue.Queue[Any]):
    """A queue of multiprocessing's, as far as its end goes."""

    left = False

    def cancel_join_thread(self) -> None:
        self.left = True

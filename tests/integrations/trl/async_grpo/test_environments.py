"""Tools and environments in the asynchronous trainer's rollout loop."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from typing import Any

import pytest

pytest.importorskip("trl")
pytest.importorskip("aiohttp")

from guerdon import Dispatcher, reward
from guerdon.integrations.trl import environments, tools
from tests.integrations.trl.async_grpo import rollout_loops
from tests.integrations.trl.line_game import (
    MOVES,
    SlowReset,
    Sticky,
    call,
    replayed,
    rows,
)
from tests.integrations.trl.tiny_trainer import make_tokenizer

pytestmark = pytest.mark.filterwarnings("default", "error::guerdon.GuerdonWarning")

GROUPS = 6


class Player(rollout_loops.RolloutLoop):
    """Says what `says` gives instead of asking a server."""

    says: Any

    async def _generate_one_turn(self, prompt_ids: list[int]) -> tuple[list[int], list[float]]:
        await asyncio.sleep(0.01)
        text = self.says(self.tokenizer.decode(prompt_ids))
        ids = [*self.tokenizer(text)["input_ids"], self.tokenizer.eos_token_id]
        return ids, [0.0] * len(ids)


def make_player(dispatcher: Dispatcher, says: Any, **named: Any) -> Player:
    options = rollout_loops.LoopOptions(tuple(dispatcher.reward_funcs), 4, 1000)
    tokenizer = make_tokenizer(MOVES)
    settings = {
        "dataset": rows(4),
        "max_tool_calling_iterations": 2,
        "processing_class": tokenizer,
        "eos_token_ids": [tokenizer.eos_token_id],
        **named,
    }
    loop = Player(guerdon=options, **rollout_loops.arguments(**settings))
    loop.says = says
    return loop


def play(dispatcher: Dispatcher, says: Any, groups: int = GROUPS, **named: Any) -> tuple[Any, list[Any]]:
    """A loop that has generated some groups, and their samples."""
    loop = make_player(dispatcher, says, **named)
    samples: list[Any] = []
    with rollout_loops.running(loop) as state:
        deadline = time.monotonic() + 120
        while len(samples) < 4 * groups and time.monotonic() < deadline and state.error is None:
            try:
                samples.append(loop.rollout_buffer.get(timeout=1))
            except Exception:  # nothing there yet
                continue
    assert state.error is None
    assert len(samples) == 4 * groups
    return loop, samples


def moves(seed: int) -> Any:
    draw = random.Random(seed)
    return lambda prompt: "".join(draw.choices(MOVES, k=draw.choice([0, 1, 2, 3])))


class Slow(SlowReset):
    """It has a reward of its own."""

    pause = 0.1

    async def get_reward(self) -> float:
        await asyncio.sleep(0.05)
        return -float(self.distance)


def test_rewards_see_what_a_serial_replay_sees_although_instances_are_used_again() -> None:
    """Per sample and per group, while other instances play on."""
    checked: list[int] = []

    @reward(lane="thread")
    def right(prompt: Any, completion: Any, environment: Any, start: int, goal: int) -> float:
        time.sleep(0.02)
        again = replayed({"start": start, "goal": goal}, completion)
        assert prompt[-1]["content"] == f"go {start}"
        assert isinstance(environment, Slow)
        assert (environment.visited, environment.goal) == (again.visited, again.goal)
        checked.append(start)
        return -float(again.distance)

    def away(completions: list[Any], environments: list[Any], **columns: Any) -> list[float]:
        return [-float(environment.distance) for environment in environments]

    SlowReset.most = 0
    with Dispatcher([right, away], workers=1) as dispatcher:
        loop, samples = play(dispatcher, moves(1), environment_factory=Slow)
    assert len(checked) >= 24
    assert SlowReset.most > 1
    for sample in samples:
        metrics = sample.metrics
        assert metrics["rewards/right"] == metrics["rewards/away"] == metrics["rewards/Slow"]
        assert metrics["reward"] == pytest.approx(3 * metrics["rewards/right"])
    made = {id(each) for each in loop._environment_pool[None]}
    assert len(made) == len(loop._environment_pool[None])


def test_an_environment_that_hangs_is_not_used_again() -> None:
    Sticky.hung = 0

    @reward
    def near(environment: Any) -> float:
        return -float(environment.distance)

    with Dispatcher([near], workers=1) as dispatcher:
        loop, _ = play(
            dispatcher, lambda prompt: MOVES[1], environment_factory=environments(Sticky, timeout=4.0), groups=4
        )
    assert Sticky.hung not in {id(each) for each in loop._environment_pool[None]}


def test_the_calls_of_a_sample_run_in_the_order_of_the_model_and_failures_go_back() -> None:
    events: list[str] = []

    def write(word: str) -> str:
        """Writes.

        Args:
            word: What.
        """
        events.append(f"begin {word}")
        time.sleep(0.05)
        events.append(f"end {word}")
        return word

    async def look(word: str) -> str:
        """Looks.

        Args:
            word: What.
        """
        events.append(f"begin {word}")
        await asyncio.sleep(0.05)
        events.append(f"end {word}")
        return word

    async def hang(word: str) -> str:
        """Hangs.

        Args:
            word: What.
        """
        await asyncio.sleep(60)
        return word

    replies = iter(range(10**6))

    def says(prompt: str) -> str:
        if "tool_response" in prompt:
            return "done"
        number = next(replies)
        names = ("look", "write", "look", "write", "hang", "unheard_of")
        return "".join(call(name, word=f"{number}.{k}") for k, name in enumerate(names))

    @reward(lane="thread")
    def answered(completion: Any) -> float:
        answers = [message["content"] for message in completion if message["role"] == "tool"]
        number = answers[0].partition(".")[0]
        reported = ["{'error': 'hang took longer than 4 s'}", "{'error': 'unknown tool unheard_of'}"]
        assert answers == [f"{number}.{k}" for k in range(4)] + reported
        return 1.0

    routed = tools([write, look, hang], timeout=4.0)
    with Dispatcher([answered], workers=1) as dispatcher:
        _, samples = play(dispatcher, says, groups=2, tools=routed)
    assert {sample.metrics["reward"] for sample in samples} == {1.0}
    assert {sample.metrics["tools/failure_frequency"] for sample in samples} == {2 / 6}
    for number in range(4):
        own = [event for event in events if event.split()[1].startswith(f"{number}.")]
        assert own == [f"{kind} {number}.{k}" for k in range(4) for kind in ("begin", "end")]


def test_it_stops_at_once_though_a_tool_does_not_answer() -> None:
    """TRL's threads wait for the calls of sync tools, and its end for those threads."""
    begun, released = threading.Event(), threading.Event()

    def wait(word: str) -> str:
        """Waits.

        Args:
            word: For what.
        """
        begun.set()
        released.wait(600)
        return word

    near = reward(lambda text: 1.0, name="near", lane="thread")
    with Dispatcher([near]) as dispatcher:
        loop = make_player(dispatcher, lambda prompt: call("wait", word="x"), tools=tools([wait], timeout=600.0))
        with rollout_loops.running(loop) as state:
            assert begun.wait(60)
            began = time.monotonic()
    assert time.monotonic() - began < 60.0
    assert state.error is None
    released.set()

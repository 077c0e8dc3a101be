"""A multi-turn game with state, and a trainer whose model can play it from the first step.

A token stands for a whole move, so that a model with random weights plays: it stands at a place on
a line and walks, and the row says where to. Walls stand at the goal and four places before it.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Nothing is looked up or reported; read when the libraries are imported
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import trl
from datasets import Dataset
from transformers import Qwen2ForCausalLM, set_seed

from tests.integrations.trl import tiny_trainer


class LineGame:
    """A place on a line. `visited` is a list: a shallow copy of the game would share it."""

    def reset(self, **row: Any) -> str:
        self.goal = int(row["goal"])
        self.visited = [int(row["start"])]
        return f" {self.visited[0]}"

    def walk(self, way: str) -> str:
        """Walks one step.

        Args:
            way: left or right.
        """
        place = self.visited[-1] + (1 if way == "right" else -1)
        self.visited.append(max(self.goal - 4, min(place, self.goal)))
        return f"{self.visited[-1]}"

    @property
    def distance(self) -> int:
        return abs(self.goal - self.visited[-1])


def call(name: str, **arguments: Any) -> str:
    """The text with which a model calls a tool."""
    given = ", ".join(
        f'"{key}": {repr(value) if not isinstance(value, str) else chr(34) + value + chr(34)}'
        for key, value in arguments.items()
    )
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{{given}}}}}\n</tool_call>'


MOVES = (call("walk", way="left"), call("walk", way="right"))


def rows(count: int) -> Dataset:
    """Prompts with a place to start and one to go to, each row another."""
    prompt = [{"role": "user", "content": "go"}]
    return Dataset.from_list([{"prompt": prompt, "start": index, "goal": index + 2} for index in range(count)])


TURNS = 2  # of tool calls; what a model says after that is not done


def replayed(row: dict[str, Any], completion: Sequence[dict[str, Any]]) -> LineGame:
    """The game as a serial replay leaves it; the answers in the completion are compared with it.

    A turn whose answers would not fit counts all the same; its answers are left out.
    """
    game = LineGame()
    game.reset(**row)
    answers = [message["content"] for message in completion if message["role"] == "tool"]
    replies = [message.get("tool_calls") or () for message in completion if message["role"] == "assistant"]
    places = [game.walk(one["function"]["arguments"]["way"]) for calls in replies[:TURNS] for one in calls]
    assert answers == places[: len(answers)]
    return game


def make_player(
    kind: type[Any],
    functions: list[Any],
    folder: Path,
    *,
    calls: Sequence[str] = MOVES,
    data: Dataset | None = None,
    seed: int = 7,
    more: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """A trainer of class `kind` whose fresh model says only `calls` and the end of its turn."""
    set_seed(seed)
    tokenizer = tiny_trainer.make_tokenizer(calls)
    replies = [tokenizer.convert_tokens_to_ids(one) for one in calls]
    never = [token for token in range(len(tokenizer)) if token not in replies and token != tokenizer.eos_token_id]
    settings = tiny_trainer.make_settings(
        folder,
        seed,
        learning_rate=1e-2,
        max_completion_length=200,
        max_tool_calling_iterations=TURNS,
        generation_kwargs={"suppress_tokens": never},
    )
    trainer = kind(
        model=Qwen2ForCausalLM(tiny_trainer.make_config(tokenizer, max_position_embeddings=2048)),
        processing_class=tokenizer,
        reward_funcs=functions,
        args=trl.GRPOConfig(**{**settings, **options}),
        train_dataset=rows(8) if data is None else data,
        **(more or {}),
    )
    tiny_trainer.ending(trainer)
    return trainer


def played(kind: type[Any], functions: list[Any], folder: Path, factory: Any, **options: Any) -> Any:
    """The trainer after a run."""
    trainer = make_player(kind, functions, folder, more={"environment_factory": factory}, **options)
    trainer.train()
    return trainer


def away(completions: list[Any], environments: list[Any], log_extra: Any, **columns: Any) -> list[float]:
    log_extra("visited", [list(environment.visited) for environment in environments])
    return [-float(environment.distance) for environment in environments]


class SlowReset(LineGame):
    """Its reset takes a while; the most that went on at once are noted."""

    pause = 0.3
    now = most = 0
    lock = threading.Lock()

    def reset(self, **row: Any) -> str:
        with SlowReset.lock:
            SlowReset.now += 1
            SlowReset.most = max(SlowReset.most, SlowReset.now)
        time.sleep(self.pause)
        with SlowReset.lock:
            SlowReset.now -= 1
        return super().reset(**row)


class Account(LineGame):
    """Its withdrawals are async: two at once would both see all of it."""

    def reset(self, **row: Any) -> str:
        self.balance = 100
        return super().reset(**row)

    async def withdraw(self, amount: int) -> str:
        """Withdraws.

        Args:
            amount: How much.
        """
        have = self.balance
        await asyncio.sleep(0.01)
        if have < amount:
            return "refused"
        self.balance = have - amount
        return "paid"

    def pay_in(self, amount: int) -> str:
        """Pays in.

        Args:
            amount: How much.
        """
        self.balance += amount
        return "thanks"


ACCOUNT_TURN = [call("withdraw", amount=80)] * 2 + [call("pay_in", amount=60), call("withdraw", amount=80)]
ACCOUNT_ANSWERS = ["paid", "refused", "thanks", "paid"]


class Sticky(LineGame):
    """Hangs in its first walk."""

    hung = 0

    def walk(self, way: str) -> str:
        """Walks one step.

        Args:
            way: left or right.
        """
        if not Sticky.hung:
            Sticky.hung = id(self)
            time.sleep(15)
        return super().walk(way)

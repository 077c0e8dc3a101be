"""A game and a tool for a real model, and rewards that compare with a serial replay."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from guerdon import reward
from tests.integrations.trl.line_game import TURNS, LineGame


class Walk(LineGame):
    """The game with a reward of its own, and a reset that takes its time."""

    async def reset(self, **row: Any) -> str:
        await asyncio.sleep(0.05)
        return super().reset(**row)

    async def get_reward(self) -> float:
        await asyncio.sleep(0.05)
        return -float(self.distance)


async def ask(about: str) -> str:
    """Asks somebody.

    Args:
        about: What for.
    """
    await asyncio.sleep(0.05)
    return f"{about} is to the right"


def replayed(row: dict[str, Any], completion: Sequence[dict[str, Any]]) -> LineGame:
    """The game as a serial replay leaves it, with every answer in the completion compared."""
    game = LineGame()
    game.reset(**row)
    expected: list[tuple[str, str]] = []
    for message in [each for each in completion if each["role"] == "assistant"][:TURNS]:
        for one in message.get("tool_calls") or ():
            name, arguments = one["function"]["name"], one["function"]["arguments"]
            answer = game.walk(**arguments) if name == "walk" else f"{arguments['about']} is to the right"
            expected.append((name, answer))
    answers = [(each["name"], each["content"]) for each in completion if each["role"] == "tool"]
    assert answers == expected[: len(answers)], (answers, expected)
    return game


@reward(lane="thread", timeout=60)
def right(prompt: Any, completion: Any, environment: Any, start: int, goal: int) -> float:
    """Checks what a sample sees, and gives the replay's reward."""
    game = replayed({"start": start, "goal": goal}, completion)
    assert prompt[-1]["content"] == f"go {start}", prompt
    assert type(environment) is Walk
    assert (environment.visited, environment.goal) == (game.visited, game.goal), (environment.visited, game.visited)
    return -float(game.distance)


def away(completions: list[Any], environments: list[Any], **columns: Any) -> list[float]:
    """The same for a whole group or batch."""
    return [-float(environment.distance) for environment in environments]

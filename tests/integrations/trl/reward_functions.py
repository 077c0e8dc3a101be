"""Reward functions of the trainer tests. Workers import this module: nothing heavy here."""

from __future__ import annotations

import asyncio
import json
import os
import time
import zlib
from pathlib import Path
from typing import Any

from guerdon import group_reward, reward


def text_of(completion: Any) -> str:
    """The text of a completion, conversational or not."""
    return completion if isinstance(completion, str) else "".join(message["content"] or "" for message in completion)


def share(text: str, letters: str) -> float:
    """The share of a text that is made of some letters."""
    return sum(character in letters for character in text) / max(1, len(text))


# TRL's batch contract, as plain TRL would run them too.


def vowels(completions: list[Any], **kwargs: Any) -> list[float]:
    return [share(text_of(completion), "aeiou") for completion in completions]


def letters(completions: list[Any], **kwargs: Any) -> list[float]:
    return [share(text_of(completion), "bcdfghjklmnpqrstvwxyz") for completion in completions]


def answers(prompts: list[Any], completions: list[Any], answer: list[str], **kwargs: Any) -> list[float | None]:
    return [None if a == "?" else float(a in text_of(c)) for c, a in zip(completions, answer, strict=True)]


async def lengths(completions: list[Any], **kwargs: Any) -> list[float]:
    await asyncio.sleep(0)
    return [float(len(text_of(completion))) for completion in completions]


def noted(
    prompts: list[Any], completions: list[Any], log_extra: Any, log_metric: Any, **kwargs: Any
) -> list[float | None]:
    log_extra("first letter", [text_of(completion)[:1] for completion in completions])
    log_metric("longest", float(max(len(text_of(completion)) for completion in completions)))
    return [1.0] * len(completions)


def numbers(completions: list[Any], **columns: Any) -> list[float]:
    """Sums up the numbers of a sample, in whatever columns."""
    lists = [values for values in columns.values() if isinstance(values, list)]
    rows = zip(*lists, strict=True)
    return [
        len(text) + sum(one for one in row if isinstance(one, int)) for text, row in zip(completions, rows, strict=True)
    ]


def numbers_of_row(completion: str, **row: Any) -> float:
    return len(completion) + sum(one for one in row.values() if isinstance(one, int))


# Arguments of a function, written where the trainer's process can read them.


def _write(name: str, arguments: dict[str, Any]) -> None:
    plain = {}
    for key, value in arguments.items():
        if key == "trainer_state":
            value = value.global_step
        elif callable(value):
            value = "callable"
        elif key == "environments":
            value = [type(one).__name__ for one in value]
        plain[key] = value
    with (Path(os.environ["GUERDON_TEST_FOLDER"]) / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps(plain) + "\n")


def witness(prompts: list[Any], completions: list[Any], **kwargs: Any) -> list[float]:
    _write("witness", {"prompts": prompts, "completions": completions, **kwargs})
    return [1.0] * len(completions)


async def async_witness(prompts: list[Any], completions: list[Any], **kwargs: Any) -> list[float]:
    _write("async_witness", {"prompts": prompts, "completions": completions, **kwargs})
    return [1.0] * len(completions)


def environment_witness(completions: list[Any], environments: list[Any], **kwargs: Any) -> list[float]:
    _write("environment_witness", {"completions": completions, "environments": environments})
    return [float(environment.resets) for environment in environments]


# Guerdon's own contracts.


def unlucky(text: str) -> bool:
    """About one text of ten, always the same ones."""
    return zlib.crc32(text.encode()) % 10 == 0


@reward
def flaky(text: str) -> float:
    if unlucky(text):
        raise ValueError("injected")
    return share(text, "xyz")


@reward
def noting(text: str, answer: str, log_extra: Any, log_metric: Any) -> dict[str, Any]:
    log_extra("answer seen", [answer])
    log_metric("size", float(len(text)))
    return {"score": 1.0, "letters": len(text)}


@group_reward
def group_size(completions: list[Any], **columns: Any) -> list[float]:
    return [float(len(completions))] * len(completions)


@reward(lane="thread")
def step_number(completion: Any, trainer_state: Any) -> float:
    return float(trainer_state.global_step)


@reward
def step_number_in_worker(completion: Any, trainer_state: Any) -> float:
    return float(trainer_state.global_step)


# One second each.


def _stamp(name: str, started: float) -> None:
    _write("stamps", {"name": name, "started": started, "ended": time.monotonic()})


def second_one(completions: list[Any], **kwargs: Any) -> list[float]:
    started = time.monotonic()
    time.sleep(1)
    _stamp("one", started)
    return [1.0] * len(completions)


def second_two(completions: list[Any], **kwargs: Any) -> list[float]:
    started = time.monotonic()
    time.sleep(1)
    _stamp("two", started)
    return [1.0] * len(completions)


async def second_async(completions: list[Any], **kwargs: Any) -> list[float]:
    started = time.monotonic()
    await asyncio.sleep(1)
    _stamp("async", started)
    return [1.0] * len(completions)


# Waiting, in no order that is known, and in one that is.


@reward
async def random_wait(text: str) -> float:
    await asyncio.sleep(zlib.crc32(text.encode()) % 7 / 500)
    return share(text, "mnopq")


@reward
async def later_for_smaller(prompt: str) -> float:
    await asyncio.sleep(1.2 - 0.4 * float(prompt.rsplit(" ", 1)[1]))
    return 1.0


@reward
async def waiting(text: str) -> float:
    """Waits long enough for groups to complete in another order on each rank."""
    await asyncio.sleep((sum(text.encode()) + int(os.environ["RANK"])) % 5 / 50)
    return share(text, "mnopq")

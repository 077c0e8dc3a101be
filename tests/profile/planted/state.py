"""Bugs of state, order, time and what else is outside of the row."""

from __future__ import annotations

import os
import random
import re
import statistics
import sys
import time
from datetime import datetime
from typing import Any

from guerdon import StatefulReward, group_reward, reward
from tests.profile.planted.corpus import plant_expressions, planted
from tests.profile.planted.rows import CHATS, FACTS, NUMBERS, ROLLOUTS

_calls = 0
_seen: dict[Any, float] = {}
_best = 0.0
_current = ""


def _right(completion: str, answer: str) -> float:
    return float(completion.strip() == answer)


@planted("a counter between calls", "repeat", "order", rows=NUMBERS)
@reward
def counted(completion: str, answer: str) -> float:
    global _calls
    _calls += 1
    return _right(completion, answer) + (0.1 if _calls % 3 == 0 else 0.0)


plant_expressions(
    NUMBERS,
    ("random bonus", "repeat", lambda text, answer: _right(text, answer) + 0.01 * random.random()),
    ("time of day", "clock repeat", lambda text, answer: _right(text, answer) + time.time() // 86400 % 2 / 10),
    ("date", "clock", lambda text, answer: _right(text, answer) + 0.001 * datetime.now().year),
    ("hash of a string", "process", lambda text, answer: _right(text, answer) + 0.1 * (hash(text) % 7)),
    ("process id", "process order", lambda text, answer: _right(text, answer) + 0.01 * (os.getpid() % 89)),
    (
        "cache keyed by length",
        "order reference repeat",
        lambda text, answer: _seen.setdefault((answer, len(text)), _right(text, answer)),
    ),
    (
        "length pays",
        "probe:very_long probe:very_long_wrong",
        lambda text, answer: _right(text, answer) + min(len(text) / 1000, 2.0),
    ),
)
plant_expressions(
    FACTS,
    (
        "order of a set",
        "process",
        lambda text, answer: sum(
            1.0 / (place + 1)
            for place, word in enumerate(set(answer.lower().split()) | {"of", "in", "a"})
            if word in text.lower().split()
        ),
    ),
)
plant_expressions(
    ROLLOUTS,
    ("none for all but one", "none", lambda completion: 1.0 if completion == "No idea." else None),
    ("the same to all", "constant", lambda completion: 0.5),
    ("large beside all others", "range", lambda completion: 1000.0 * len(completion)),
)


@planted("a cache keyed by the prompt", "order", "reference", "repeat", rows=NUMBERS)
@reward
def cached_by_prompt(prompt: str, completion: str, answer: str) -> float:
    if prompt not in _seen:
        _seen[prompt] = _right(completion, answer)
    return _seen[prompt]


@planted("divided by the best so far", "order", "repeat", rows=NUMBERS)
@reward
def of_the_best(completion: str, answer: str) -> float:
    global _best
    value = _right(completion, answer) * (1 + len(completion) / 100)
    _best = max(_best, value)
    return value / _best if _best else 0.0


@planted("one variable for all threads", "threads", rows=NUMBERS)
@reward(lane="thread")
def shared_variable(completion: str, answer: str) -> float:
    global _current
    _current = completion
    time.sleep(0.001)
    return _right(_current, answer)


@planted("normalised over the batch", "batch", "order", rows=NUMBERS)
def batch_mean(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    scores = [_right(completion, right) for completion, right in zip(completions, answer, strict=True)]
    mean = statistics.fmean(scores)
    return [score - mean for score in scores]


@planted("one row off", "batch", "reference", rows=NUMBERS)
def one_off(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    shifted = answer[1:] + answer[:1]
    return [_right(completion, right) for completion, right in zip(completions, shifted, strict=True)]


@planted("penalty for what stood before it in the batch", "batch", "order", rows=NUMBERS)
def duplicates(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    found = []
    for place, (completion, right) in enumerate(zip(completions, answer, strict=True)):
        repeated = any(other[:6] == completion[:6] for other in completions[:place])
        found.append(_right(completion, right) - (0.5 if repeated else 0.0))
    return found


@planted("sorted answers", "reference", "order", "batch", rows=NUMBERS)
def sorted_answers(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    return [_right(completion, right) for completion, right in zip(completions, sorted(answer), strict=True)]


@planted("messages changed", "arguments", rows=CHATS)
def strips_in_place(completions: list[Any], answer: list[str], **columns: Any) -> list[float]:
    for messages in completions:
        messages[-1]["content"] = messages[-1]["content"].strip().lower()
    return [float(messages[-1]["content"] == right) for messages, right in zip(completions, answer, strict=True)]


@planted("the list sorted in place", "arguments", rows=ROLLOUTS)
@group_reward
def sorts_in_place(completions: list[str], **columns: Any) -> list[float]:
    lengths = [len(completion) for completion in completions]
    completions.sort(key=len)
    return [length / len(completions[-1]) for length in lengths]


@planted("the group's order", "order", "repeat", rows=ROLLOUTS)
@group_reward
def group_count(completions: list[str], answer: list[str]) -> list[float]:
    global _calls
    _calls += 1
    return [float(right in completion) + 0.01 * _calls for completion, right in zip(completions, answer, strict=True)]


class Running(StatefulReward):
    """Keeps a mean over all that it has seen."""

    def setup(self) -> None:
        self.values: list[float] = []

    def score(self, completion: str, answer: str) -> float:
        self.values.append(_right(completion, answer))
        return self.values[-1] - statistics.fmean(self.values)


planted("a running mean", "repeat", "order", rows=NUMBERS)(reward(Running(), name="running"))


@planted("nested repetition", "hang", rows=NUMBERS)
@reward(timeout=0.3, grace=0.1)
def catastrophic(completion: str, answer: str) -> float:
    if not re.match(r"^(\w+\s*)+$", completion):
        return 0.0
    return _right(completion, answer)


@planted("sys.exit", "exception", "crash", rows=NUMBERS)
@reward
def exits(completion: str, answer: str) -> float:
    if len(completion) > 2000:
        sys.exit(1)
    return _right(completion, answer)


@planted("kills the process", "crash", rows=NUMBERS)
@reward
def kills(completion: str, answer: str) -> float:
    if "\x00" in completion or "[" * 10 in completion:
        os._exit(1)
    return _right(completion, answer)


@planted("recursion without an end", "exception", "crash", rows=NUMBERS)
@reward
def recursive(completion: str, answer: str) -> float:
    def depth(text: str) -> int:
        return 1 + depth(text[1:]) if text[:1] in "([{<" and text else 0

    return _right(completion, answer) if depth(completion.strip()) < 9 else 0.0


@planted("a loop over white space", "hang", rows=NUMBERS)
@reward(timeout=0.3, grace=0.1)
def endless(completion: str, answer: str) -> float:
    text = completion
    while text.endswith("\n "):
        text = text.replace("\t", " ")
    return _right(text, answer)


@planted("digits of other scripts", "exception", rows=NUMBERS)
@reward
def unicode_digits(completion: str, answer: str) -> float:
    text = completion.strip().replace(",", "")
    return (
        float(text.isdigit() and int(text) == float(answer.replace(",", "")))
        if text.isdigit()
        else _right(completion, answer)
    )


@planted("a form that never ends", "format", rows=ROLLOUTS)
def opened(completions: list[str], **columns: Any) -> list[float]:
    return [float(re.match(r"<think>.*</think>\s*<answer>", text, re.DOTALL) is not None) for text in completions]


@planted("one client for all calls", "threads", rows=NUMBERS)
@reward
async def last_one_wins(completion: str, answer: str) -> float:
    import asyncio

    global _current
    _current = completion
    await asyncio.sleep(0)
    return _right(_current, answer)

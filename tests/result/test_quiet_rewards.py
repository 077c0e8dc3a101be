"""Functions that say nothing, or the same for every sample, are reported once and never raise."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, QuietRewardWarning, reward


def forgets_its_return(completion: str) -> float | None:
    float(len(completion))
    return None


def finds_nothing(completion: str) -> float:
    return 0.0


def alternates(completion: str) -> float:
    return float(len(completion) % 2)


def sometimes(completion: str) -> float | None:
    return 1.0 if len(completion) % 2 else None


def fails(completion: str) -> float:
    raise ValueError(completion)


def warned(functions: list[Any], batches: list[int], **options: Any) -> list[str]:
    """What is warned of in batches of these sizes."""
    functions = [reward(function, lane="thread") for function in functions]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Dispatcher(functions, max_failure_rate=1.0) as dispatcher:
            for samples in batches:
                dispatcher.score(completions=["a" * index for index in range(samples)], **options)
    return [str(one.message) for one in caught if one.category is QuietRewardWarning]


def test_function_that_abstains_on_64_samples_is_reported_once() -> None:
    assert warned([forgets_its_return], [60, 3]) == []
    [message] = warned([forgets_its_return, alternates], [60, 4, 64, 64])
    assert "'forgets_its_return' abstained on each of its first 64 samples" in message
    assert "forget a return" in message
    assert "too hard" in message
    assert message.endswith("The first completion was: ''")


def test_function_that_gives_256_samples_one_number_is_reported_once() -> None:
    assert warned([finds_nothing], [200, 55]) == []
    [message] = warned([alternates, finds_nothing], [200, 56, 300])
    assert "'finds_nothing' gave the reward 0 to each of its first 256 samples" in message
    assert "hard data set" in message


def test_functions_with_two_answers_are_not_reported() -> None:
    assert warned([alternates, sometimes], [2, 300]) == []


def test_failed_calls_are_no_answers() -> None:
    assert warned([fails], [300]) == []


def test_samples_that_are_scored_one_by_one_are_counted() -> None:
    async def score(dispatcher: Dispatcher) -> None:
        await asyncio.gather(*(dispatcher.ascore_one(completion=str(index)) for index in range(64)))

    with (
        Dispatcher([reward(forgets_its_return, lane="thread")]) as dispatcher,
        pytest.warns(QuietRewardWarning, match="'forgets_its_return' abstained on each of its first"),
    ):
        asyncio.run(score(dispatcher))


def test_warning_is_printed_where_warnings_are_errors(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from guerdon import Dispatcher, reward\n"
        "def f(completion): pass\n"
        "with Dispatcher([reward(f, lane='thread')]) as dispatcher:\n"
        "    print(dispatcher.score(completions=['a'] * 64).status.tolist()[0])\n"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "error", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout == "[[1]]\n"
    assert ended.stderr.startswith("guerdon: reward function 'f' abstained on each of its first 64 samples")


MESSAGES = [{"role": "assistant", "content": "a"}]


def test_str_parameter_that_gets_messages_is_reported_once() -> None:
    def strict(prompt: str, completion: str, text: str, untyped: Any, answer: str) -> float:
        return float(completion == answer)

    options = {"prompts": [MESSAGES] * 2, "completions": [MESSAGES] * 2, "untyped": [MESSAGES] * 2, "answer": ["a"] * 2}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Dispatcher([reward(strict, lane="thread")]) as dispatcher:
            dispatcher.score(**options)
            dispatcher.score(**options)
    messages = [str(one.message) for one in caught if one.category is QuietRewardWarning]
    assert len(messages) == 2
    assert "'strict': its parameter 'prompt' is annotated as str" in messages[0]
    assert "its parameter 'completion' is annotated as str" in messages[1]
    assert "Take the parameter text in its place" in messages[1]


def test_str_parameter_that_gets_texts_is_not_reported() -> None:
    assert warned([alternates], [4], prompts=["a"] * 4) == []

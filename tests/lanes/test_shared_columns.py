"""Columns that several functions get are captured once for all of them."""

from __future__ import annotations

from typing import Any

import pytest

from guerdon import Dispatcher, Status, reward

PICKLED: list[int] = []


class Answer:
    """Counts how often it is pickled."""

    def __init__(self, index: int) -> None:
        self.index = index

    def __reduce__(self) -> tuple[Any, ...]:
        PICKLED.append(self.index)
        return Answer, (self.index,)


def first(answer: Answer) -> float:
    return float(answer.index)


def second(answer: Answer) -> float:
    return float(answer.index) + 1000


def both(completion: list[dict[str, str]], answer: Answer) -> float:
    return float(completion[0]["content"]) + answer.index


def other(answer: Answer, weight: list[float]) -> float:
    return answer.index + weight[0]


@pytest.mark.parametrize("how", ["whole", "stream"])
def test_a_column_of_four_functions_is_pickled_once(how: str) -> None:
    """Whatever else each of them gets, and in whatever order."""
    functions = [reward(function) for function in (first, second, both, other)]
    columns: dict[str, Any] = {
        "completions": [[{"role": "assistant", "content": str(index)}] for index in range(50)],
        "answer": [Answer(index) for index in range(50)],
        "weight": [[index / 2] for index in range(50)],
    }
    with Dispatcher(functions, workers=2) as dispatcher:
        PICKLED.clear()
        if how == "whole":
            result = dispatcher.score(**columns)
        else:
            stream = dispatcher.stream()
            stream.add(**{name: values[:20] for name, values in columns.items()})
            stream.add(**{name: values[20:] for name, values in columns.items()})
            stream.finish()
            result = stream.result()
    assert sorted(PICKLED) == list(range(50))
    assert (result.status == Status.OK).all(), result.failures()[:1]
    expected = [[index, index + 1000, 2 * index, index * 1.5] for index in range(50)]
    assert result.rewards[:, 0, :].tolist() == expected

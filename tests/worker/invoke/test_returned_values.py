"""What a reward function may return, and the errors for everything else."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from guerdon._worker.invoke.returned_values import (
    ABSTAINED,
    ERROR,
    OK,
    InvalidValue,
    to_cell,
    to_cells,
    to_single,
)


class CountingNumber:
    looks = 0

    def __repr__(self) -> str:
        CountingNumber.looks += 1
        return "x"


def test_invalid_rewards_are_shown_without_reading_all_of_them() -> None:
    for raw in ([CountingNumber()] * 100_000, (CountingNumber(),) * 100_000, [[CountingNumber()] * 100_000]):
        with pytest.raises(InvalidValue) as caught:
            to_cell(raw)
        assert "x, x, x" in str(caught.value)
        assert len(str(caught.value)) < 300
    assert CountingNumber.looks < 500


async def _coroutine() -> float:
    return 1.0


async def _generator():  # type: ignore[no-untyped-def]
    yield 1.0


@pytest.mark.filterwarnings("error")
def test_coroutines_and_generators_are_refused_quietly() -> None:
    """No 'was never awaited' either."""
    with pytest.raises(InvalidValue, match="coroutine"):
        to_cell(_coroutine())
    with pytest.raises(InvalidValue, match="async_generator"):
        to_cell(_generator())
    with pytest.raises(InvalidValue, match="a generator"):
        to_cell(x for x in [1.0])
    with pytest.raises(InvalidValue, match="coroutine"):
        to_cells(_coroutine(), 1)


def test_a_tensor_of_rewards_is_a_list() -> None:
    torch = pytest.importorskip("torch")
    assert to_cells(torch.tensor([1.0, 2.0]), 2) == [(OK, 1.0, None), (OK, 2.0, None)]
    with pytest.raises(InvalidValue, match=r"shape \(2, 1\)"):
        to_cells(torch.zeros(2, 1), 2)


def test_a_generator_without_an_end_is_left_after_one_too_many() -> None:
    numbers = itertools.count()
    with pytest.raises(InvalidValue, match="more than 2 rewards were returned for 2 completions"):
        to_cells(numbers, 2)
    assert next(numbers) == 3


def test_a_bad_element_of_an_array_fails_its_own_cell() -> None:
    mixed = to_cells(np.array([1.0, None, "x"], dtype=object), 3)
    assert [status for status, _, _ in mixed] == [OK, ABSTAINED, ERROR]


def test_rowwise_wants_a_list_of_one() -> None:
    assert to_single([0.5]) == 0.5
    assert to_single((None,)) is None
    assert to_single(np.array([2.0])) == 2.0
    for bad in (0.5, [], [1.0, 2.0], None):
        with pytest.raises(InvalidValue, match="rowwise=True"):
            to_single(bad)

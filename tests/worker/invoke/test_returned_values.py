"""What a reward function may return, and the errors for everything else."""

from __future__ import annotations

import collections
import decimal
import fractions
import itertools
import math
import struct
import subprocess
import sys

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

FLOAT32_MAX = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]


class FloatLike(float):
    pass


class Counted:
    looks = 0

    def __repr__(self) -> str:
        Counted.looks += 1
        return "x"


def test_invalid_rewards_are_shown_without_reading_all_of_them() -> None:
    for raw in ([Counted()] * 100_000, (Counted(),) * 100_000, [[Counted()] * 100_000]):
        with pytest.raises(InvalidValue) as caught:
            to_cell(raw)
        assert "x, x, x" in str(caught.value)
        assert len(str(caught.value)) < 300
    assert Counted.looks < 500
    with pytest.raises(InvalidValue, match=r"a str \('aaaa.*…\) is not a reward"):
        to_cell("a" * 1_000_000)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (1.5, 1.5),
        (0, 0.0),
        (-7, -7.0),
        (True, 1.0),
        (False, 0.0),
        (FloatLike(0.25), 0.25),
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.float16(0.5), 0.5),
        (np.int64(3), 3.0),
        (np.uint8(3), 3.0),
        (np.bool_(True), 1.0),
        (np.array(2.0), 2.0),
        (np.array(2), 2.0),
        (FLOAT32_MAX, FLOAT32_MAX),
        (-FLOAT32_MAX, -FLOAT32_MAX),
        (5e-324, 5e-324),
        (decimal.Decimal("0.5"), 0.5),
        (fractions.Fraction(1, 4), 0.25),
    ],
)
def test_numbers_are_rewards(raw: object, value: float) -> None:
    assert to_cell(raw) == (OK, value, None)
    assert type(to_cell(raw)[1]) is float


def test_torch_scalars_are_rewards() -> None:
    torch = pytest.importorskip("torch")
    assert to_cell(torch.tensor(0.5)) == (OK, 0.5, None)
    assert to_cell(torch.tensor(True)) == (OK, 1.0, None)
    assert to_cell(torch.tensor(3)) == (OK, 3.0, None)
    assert to_cell(torch.tensor(0.5, dtype=torch.bfloat16, requires_grad=True)) == (OK, 0.5, None)
    for bad in (torch.tensor([1.0]), torch.tensor(1j), torch.zeros(2, 2)):
        with pytest.raises(InvalidValue, match=r"torch\.Tensor of shape"):
            to_cell(bad)
    assert to_cells(torch.tensor([1.0, 2.0]), 2) == [(OK, 1.0, None), (OK, 2.0, None)]
    with pytest.raises(InvalidValue, match=r"shape \(2, 1\)"):
        to_cells(torch.zeros(2, 1), 2)


def test_none_abstains_and_a_dict_brings_fields() -> None:
    status, value, fields = to_cell(None)
    assert status == ABSTAINED
    assert math.isnan(value)
    assert fields is None
    assert to_cell({"score": 1}) == (OK, 1.0, None)
    assert to_cell({"score": np.float32(1), "why": "x"}) == (OK, 1.0, {"why": "x"})
    status, value, fields = to_cell({"score": None, "why": "x"})
    assert status == ABSTAINED
    assert math.isnan(value)
    assert fields == {"why": "x"}


async def _coroutine() -> float:
    return 1.0


async def _generator():  # type: ignore[no-untyped-def]
    yield 1.0


class Nasty:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    @property
    def shape(self) -> tuple[int, ...]:
        raise RuntimeError("no shape")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("1.0", r"a str \('1.0'\) is not a reward: return a number"),
        ([1.0], "a list"),
        ((), "a tuple"),
        ({}, "a dict without 'score'"),
        ({"reward": 1.0}, r"a dict without 'score' \(its keys: \['reward'\]\)"),
        ({"score": {"score": 1}}, "a dict"),
        ({"score": "x"}, "a str"),
        (float("nan"), "nan is not a reward"),
        (float("inf"), "inf is not a reward: it is beyond float32"),
        (float("-inf"), "beyond float32"),
        (3.5e38, "beyond float32"),
        (10**400, "beyond float32"),
        (-(10**400), "beyond float32"),
        (np.float64("nan"), "nan"),
        (1j, "a complex"),
        (np.complex64(1), "numpy.complex64"),
        (np.array([1.0]), r"numpy.ndarray of shape \(1,\)"),
        (np.ma.masked, "numpy.ma"),
        (np.array("x"), "numpy.ndarray"),
        (np.str_("x"), "is not a reward"),
        (decimal.Decimal("sNaN"), "decimal.Decimal"),
        (decimal.Decimal("1e999"), "beyond float32"),
        (fractions.Fraction(10**400), "beyond float32"),
        (b"1", "a bytes"),
        (object, "a type"),
        ("x" * 10_000, "…"),
        (Nasty(), "Nasty"),
    ],
)
def test_all_else_is_refused_with_what_to_return(raw: object, message: str) -> None:
    with pytest.raises(InvalidValue, match=message) as caught:
        to_cell(raw)
    assert "return" in str(caught.value)
    assert len(str(caught.value)) < 400


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


def test_the_boundary_is_the_largest_float32() -> None:
    assert to_cell(FLOAT32_MAX)[1] == float(np.finfo(np.float32).max)
    with pytest.raises(InvalidValue):
        to_cell(float(np.nextafter(FLOAT32_MAX, np.inf)))


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_lists_of_rewards(kind: type) -> None:
    cells = to_cells(kind([1.0, 2.0]), 2)
    assert cells == [(OK, 1.0, None), (OK, 2.0, None)]


@pytest.mark.parametrize("raw", [(x / 2 for x in (1, 2)), map(float, ["0.5", "1"]), collections.deque([0.5, 1])])
def test_tools_are_a_list_for_trl(raw: object) -> None:
    assert to_cells(raw, 2) == [(OK, 0.5, None), (OK, 1.0, None)]


def test_a_generator_without_an_end_is_left_after_one_too_many() -> None:
    numbers = itertools.count()
    with pytest.raises(InvalidValue, match="more than 2 rewards were returned for 2 completions"):
        to_cells(numbers, 2)
    assert next(numbers) == 3


def test_a_bad_element_fails_its_own_cell() -> None:
    cells = to_cells([1, None, "x", float("nan"), np.float32(2), {"score": 1}, [1.0]], 7)
    assert [status for status, _, _ in cells] == [OK, ABSTAINED, ERROR, ERROR, OK, ERROR, ERROR]
    assert cells[2][2] is not None
    assert cells[2][2].startswith("InvalidValue: a str ('x')")
    assert cells[3][2] is not None
    assert "nan" in cells[3][2]
    assert cells[5][2] is not None
    assert cells[5][2].endswith("is not a reward: give a number or None for each completion")
    mixed = to_cells(np.array([1.0, None, "x"], dtype=object), 3)
    assert [status for status, _, _ in mixed] == [OK, ABSTAINED, ERROR]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ([1.0], "1 rewards were returned for 2 completions"),
        ([], "0 rewards"),
        (np.zeros(3), "3 rewards"),
        (None, "a NoneType"),
        (1.0, "a float"),
        ("ab", "a str"),
        ({0: 1.0, 1: 2.0}, "a dict"),
        ({1.0, 2.0}, "a set"),
        (np.zeros((2, 1)), r"shape \(2, 1\)"),
        (np.array(1.0), r"shape \(\)"),
    ],
)
def test_a_wrong_list_fails_the_call(raw: object, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        to_cells(raw, 2)


def test_rowwise_wants_a_list_of_one() -> None:
    assert to_single([0.5]) == 0.5
    assert to_single((None,)) is None
    assert to_single(np.array([2.0])) == 2.0
    for bad in (0.5, [], [1.0, 2.0], None):
        with pytest.raises(InvalidValue, match="rowwise=True"):
            to_single(bad)


def test_numpy_and_torch_are_not_imported() -> None:
    code = (
        "import sys; from guerdon._worker.invoke import returned_values; returned_values.to_cell(1.0);"
        "returned_values.to_cells([1.0], 1); print([m for m in ('numpy', 'torch', 'asyncio') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.strip() == "[]"

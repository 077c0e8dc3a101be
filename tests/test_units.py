"""Quantities that were given: what counts as a number, and bytes as people write them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from guerdon._system.units import as_bytes, number
from guerdon._worker.resource_limits import format_size


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ("2GB", 2_000_000_000),
        ("512MiB", 512 << 20),
        ("1.5 GiB", 3 << 29),
        (" 10 kb ", 10_000),
        ("7b", 7),
        ("0B", 0),
        (4096, 4096),
        (-3, -3),
        *(
            (wrong, None)
            for wrong in ("", "GB", "2", "2G", "-2GB", "2 GB GB", "1e9B", "2PB", "1..5GB", None, 2.0, True, b"2GB")
        ),
    ],
)
def test_sizes_are_parsed(given: object, size: int | None) -> None:
    assert as_bytes(given) == size


@pytest.mark.parametrize("text", ["2 GiB", "2 GB", "512 MiB", "1500 kB", "4 KiB", "77 bytes", "0 bytes"])
def test_a_size_is_shown_as_it_was_given(text: str) -> None:
    number, unit = text.split()
    size = int(number) if unit == "bytes" else as_bytes(f"{number}{unit}")
    assert size is not None
    assert format_size(size) == text


def test_other_values_than_numbers_are_in_no_range() -> None:
    assert [number(given) for given in (3, 0.5, Fraction(1, 4), np.float32(2))] == [3.0, 0.5, 0.25, 2.0]
    assert [number(given) for given in (10**400, -math.inf)] == [math.inf, -math.inf]
    for given in (True, False, None, "3", [3], 1j, math.nan):
        found = number(given)
        assert not found <= 0
        assert not found >= 0


def test_a_number_that_has_no_float_is_in_no_range() -> None:
    class Odd(Fraction):
        def __float__(self) -> float:
            raise RuntimeError("none")

    assert math.isnan(number(Odd(1, 2)))

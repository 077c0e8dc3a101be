"""Arguments on their way into a program: as they were, whatever they are made of."""

from __future__ import annotations

from collections import Counter, deque
from fractions import Fraction

import pytest
from hypothesis import given

from guerdon.rewards.code.child.arguments import pack, unpack
from guerdon.rewards.code.child.encoding import MAX_DEPTH, EncodingError
from tests.code.test_encoding import VALUES, repr_of


@given(VALUES)
def test_arguments_come_out_as_they_went_in(value: object) -> None:
    assert repr_of(unpack(pack([value]))[0]) == repr_of(value)


def test_subclasses_of_builtins_are_sent_as_builtins() -> None:
    for value, plain in (
        (Counter("aab"), {"a": 2, "b": 1}),
        (bytearray(b"ab"), b"ab"),
        (Fraction(6, 2), 3),
        (deque([1, 2]), deque([1, 2])),
        (range(3), range(3)),
    ):
        found = unpack(pack({"deep": [1, {"in": value}]}))["deep"][1]["in"]
        assert found == plain
        assert type(found) is type(plain)


def test_a_list_in_two_places_stays_one() -> None:
    row = [0]
    first, second = unpack(pack([row, row]))
    first.append(1)
    assert second == [0, 1]
    endless: list[object] = []
    endless.append(endless)
    same = unpack(pack(endless))
    assert same[0] is same


def test_opaque_or_deep_values_are_refused() -> None:
    numpy = pytest.importorskip("numpy")
    # As bytes, which `marshal` would make of it, it would be another value.
    assert unpack(pack([numpy.int64(3), numpy.float64(0.5)])) == [3, 0.5]
    for value in (object(), [numpy.arange(3)], [memoryview(b"x")], compile("1", "", "eval"), ...):
        with pytest.raises(EncodingError, match="is no data"):
            pack(value)
    deep: list[object] = []
    for _ in range(MAX_DEPTH + 1):
        deep = [deep]
    with pytest.raises(EncodingError, match="levels deep"):
        pack(deep)


def test_values_shared_many_times_take_no_time() -> None:
    wide: object = [0]
    for _ in range(60):  # 2**60 items, if each were written
        wide = [wide, wide]
    assert len(pack(wide)) < 10_000

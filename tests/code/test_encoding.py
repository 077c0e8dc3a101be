"""Values between programs and the trusted side: what goes in comes out, as plain builtins, and no
bytes do harm."""

from __future__ import annotations

import ast
import contextlib
import enum
import math
import os
import struct
import subprocess
import sys
import tracemalloc
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from guerdon.rewards.code.child.arguments import pack, unpack
from guerdon.rewards.code.child.decoding import decode
from guerdon.rewards.code.child.encoding import MAX_DEPTH, MAX_INT_BYTES, EncodingError, Opaque, encode

KEYS = some.one_of(
    some.none(), some.booleans(), some.integers(), some.text(), some.binary(), some.floats(allow_nan=False)
)
TEXTS = some.text(some.characters(exclude_categories=[]))  # with lone surrogates
VALUES = some.recursive(
    some.one_of(
        some.none(),
        some.booleans(),
        some.integers(),
        some.floats(),
        some.complex_numbers(),
        TEXTS,
        some.binary(),
        some.sets(KEYS),
        some.frozensets(KEYS),
    ),
    lambda inner: some.one_of(
        some.lists(inner), some.tuples(inner, inner), some.dictionaries(KEYS, inner), some.tuples(inner)
    ),
    max_leaves=30,
)


@given(VALUES)
@example([-0.0, math.inf, -math.inf, math.nan, complex(math.nan, -0.0)])
@example(10**5000)
@example("\ud800")
def test_a_value_comes_out_as_it_went_in(value: object) -> None:
    assert repr_of(decode(encode(value))) == repr_of(value)


def repr_of(value: object) -> object:
    """Equal for equal values of equal types, NaN and the sign of zero too."""
    if isinstance(value, (list, tuple)):
        return type(value), [repr_of(one) for one in value]
    if isinstance(value, (set, frozenset)):
        return type(value), frozenset(map(repr_of, value))
    if isinstance(value, dict):
        return dict, [(repr_of(key), repr_of(one)) for key, one in value.items()]
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, complex):
        return complex, value.real.hex(), value.imag.hex()
    return type(value), value


PLAIN = (
    *(type(None), bool, int, float, complex, str, bytes, range),
    *(list, tuple, dict, set, frozenset, deque, Opaque, Decimal, Fraction, date, time, datetime, timedelta),
)


@given(some.binary(max_size=200))
def test_any_bytes_are_a_plain_value_or_refused(data: bytes) -> None:
    try:
        value = decode(data)
    except EncodingError:
        return
    assert type(value) in PLAIN


@given(VALUES, some.integers(0, 300), some.integers(1, 255))
def test_changed_bytes_raise_nothing_else(value: object, place: int, flip: int) -> None:
    data = bytearray(encode(value))
    data[place % len(data)] ^= flip
    try:
        decode(bytes(data))
    except EncodingError:
        return


def test_sets_of_cases_have_the_same_bytes_in_every_process() -> None:
    """The text of a case is part of the key of a cached outcome."""
    code = "from guerdon.rewards.code.child.encoding import encode; print(encode({'b', 'a', frozenset('xyz'), 3}))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True
        ).stdout
        for seed in "0123"
    }
    (one,) = printed
    assert decode(ast.literal_eval(one.decode())) == {"b", "a", frozenset("xyz"), 3}


class _AlwaysEqual:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__


class _Liar(list):  # type: ignore[type-arg]
    def __eq__(self, other: object) -> bool:
        return True

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(["whatever is expected"])

    def __len__(self) -> int:
        return 1

    __hash__ = None  # type: ignore[assignment]


class _Number(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


def test_objects_of_other_classes_equal_nothing() -> None:
    value = decode(encode([_AlwaysEqual()], opaque=lambda value: 0))[0]
    assert type(value) is Opaque
    assert value != 1
    assert value != value
    assert "AlwaysEqual" in repr(value)


def test_trusted_side_sends_only_data() -> None:
    with pytest.raises(EncodingError, match="a _AlwaysEqual is no data"):
        encode([{"a": _AlwaysEqual()}])


def test_subclasses_and_equals_of_builtins_become_builtins() -> None:
    assert decode(encode(_Number(3))) != 4
    Pair = namedtuple("Pair", "a b")  # noqa: PYI024 - as programs make them
    Kind = enum.IntEnum("Kind", "A B")
    for value, plain in (
        (_Liar([1, 2]), [1, 2]),
        (_Number(3), 3),
        (Pair(1, 2), (1, 2)),
        (Counter("aab"), {"a": 2, "b": 1}),
        (OrderedDict(x=1), {"x": 1}),
        (defaultdict(list, {1: [2]}), {1: [2]}),
        (Kind.B, 2),
        (Fraction(6, 3), 2),
        (Fraction(1, 4), 0.25),
        (Decimal("1e3"), 1000),
        (Decimal("0.5"), 0.5),
        (Decimal("-Infinity"), -math.inf),
        (bytearray(b"ab"), b"ab"),
        (range(1, 10, 2), range(1, 10, 2)),
        (range(10**12, 10**12), range(0)),
        (range(3), range(3)),
        (deque([1, [2]], maxlen=2), deque([1, [2]])),
        (deque([1, 2]), deque([1, 2])),
    ):
        for found in (decode(encode(value)), *decode(encode([value], opaque=lambda value: 0))):
            assert found == value == plain == found
            assert type(found) is type(plain)
        sent = unpack(pack({"deep": [1, {"in": value}]}))["deep"][1]["in"]
        assert (sent, type(sent)) == (plain, type(plain))


@pytest.mark.parametrize(
    "value",
    [map(str, []), {}.keys(), UTC],
)
def test_objects_unequal_to_builtins_are_opaque(value: object) -> None:
    assert type(decode(encode(value, opaque=lambda value: 0))) is Opaque


@pytest.mark.parametrize(
    "value",
    [
        *(Fraction(1, 3), Fraction(-7, 3**70), Decimal("0.1"), Decimal("-1.50e-400"), date(2026, 1, 31)),
        *(time(1, 2, 3, 4), timedelta(-1, 5, 7), datetime(2026, 1, 31, 23, 59, 59, 1)),
        datetime(2026, 1, 31, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    ],
)
def test_dates_and_exact_numbers_are_what_they_are(value: object) -> None:
    found = decode(encode([value]))[0]
    assert (type(found), repr(found)) == (type(value), repr(value))
    assert str(decode(encode(Decimal("NaN")))) == "NaN"


def test_arrays_and_their_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    for value, plain in (
        (numpy.int64(3), 3),
        (numpy.float64(0.5), 0.5),
        (numpy.float32(0.1), float(numpy.float32(0.1))),
        (numpy.bool_(True), True),
        (numpy.complex64(1 + 2j), 1 + 2j),
        (numpy.str_("a"), "a"),
        (numpy.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (numpy.array(5), 5),
        ([numpy.int8(1), (numpy.uint64(2**63),)], [1, (2**63,)]),
    ):
        found = decode(encode(value, opaque=lambda value: 0))
        assert found == plain
        assert type(found) is type(plain)
    assert type(decode(encode(numpy.array([object()]), opaque=lambda value: 0))[0]) is Opaque
    with pytest.raises(EncodingError, match="a ndarray is no data"):
        encode(numpy.array([1]))


def test_ranges_are_no_longer_than_memory() -> None:
    assert len(decode(encode(range(10**6)))) == 10**6
    for long in (range(10**8), range(10**30), range(0, -(10**9), -1)):
        with pytest.raises(EncodingError):
            decode(encode(long))
    for parts in (b"NNN", b"i\x01\0\0\0\x01" * 2 + b"i\0\0\0\0", b"i\0\0\0\0" * 3):
        with pytest.raises(EncodingError, match="three integers"):
            decode(b"r\x03\0\0\0" + parts)


def test_depth_and_size_are_bounded() -> None:
    deep: list[object] = []
    for _ in range(MAX_DEPTH + 1):
        deep = [deep]
    with pytest.raises(EncodingError, match="levels deep"):
        encode(deep)
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(EncodingError, match="levels deep"):
        encode(endless)
    wide: list[object] = [0]
    for _ in range(60):  # 2**60 items once written
        wide = [wide, wide]
    for large in (wide, "x" * 2000, b"x" * 2000, 1 << 20_000, list(range(2000))):
        with pytest.raises(EncodingError, match="more than 1000 bytes"):
            encode(large, 1000)
    with pytest.raises(EncodingError):
        decode(b"l\x01\x00\x00\x00" * (MAX_DEPTH + 2) + b"N")
    with pytest.raises(EncodingError):
        decode(b"l\xff\xff\xff\xff" + b"N" * 10)


def test_large_honest_values_pass() -> None:
    pairs = [(first, second) for first in range(-150, 150) for second in range(100)]
    for value in (
        set(range(-50_000, 50_000)),
        {number / 8 for number in range(50_000)},
        set(pairs),
        {complex(*pair) for pair in pairs},
        {frozenset(pair) for pair in pairs},
        {frozenset({pair, (pair,)}): pair for pair in pairs[:10_000]},
        {str(number): [number] for number in range(50_000)},
        dict.fromkeys([1 << bits for bits in range(3000)]),
        {2.0**-bits for bits in range(1000)},
    ):
        assert decode(encode(value)) == value


@given(some.frozensets(some.frozensets(some.one_of(KEYS, some.tuples(KEYS, KEYS)), max_size=30), max_size=30))
def test_honest_keys_are_never_refused(value: object) -> None:
    assert decode(encode(value)) == value


def _flood(item: bytes, count: int) -> bytes:
    return b"l" + struct.pack("<I", count) + item * count


@pytest.mark.fault(
    "a program returns what takes far more memory than its bytes", sees="0.0: the value takes too much memory"
)
@pytest.mark.parametrize(
    "item",
    [
        b"N",
        b"f" + bytes(8),
        b"c" + bytes(16),
        b"i\0\0\0\0",
        b"i\x03\0\0\0abc",
        b"s\x02\0\0\0\xc4\x80",
        b"s\x08\0\0\0\xf0\x9f\x98\x80abcd",
        b"b\x02\0\0\0xy",
        b"o\0\0\0\0",
        b"l\0\0\0\0",
        b"t\x01\0\0\0N",
        b"e\0\0\0\0",
        b"z\0\0\0\0",
        b"d\0\0\0\0",
        b"e\x01\0\0\0N",
        b"z\x06\0\0\0NTf\0\0\0\0\0\0\0\0i\x01\0\0\0\x02s\0\0\0\0b\x01\0\0\0x",
        b"d\x02\0\0\0NN",
        b"q\0\0\0\0",
        b"v\x09\0\0\0Decimal 1",
        b"v\x0e\0\0\0timedelta 1 2 ",
        b"r\x03\0\0\0" + b"i\x01\0\0\0\x01" * 3,
        b"l\x01\0\0\0" * 50 + b"N",
        b"t\x01\0\0\0" * 50 + b"e\0\0\0\0",
    ],
)
def test_memory_stays_in_proportion(item: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("guerdon.rewards.code.child.decoding._LEAST_MEMORY", 0)
    data = _flood(item, 200_000 // len(item))
    tracemalloc.start()
    with contextlib.suppress(EncodingError):
        decode(data)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20 * len(data) + 50_000


@pytest.mark.parametrize(
    "item", [7, 0.5, "text", (1, 2), [1, 2], {1: 2}, {1, 2}, [[1], [2]], {"name": "x", "value": 1}]
)
def test_plain_values_take_no_more_memory_than_they_may(item: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("guerdon.rewards.code.child.decoding._LEAST_MEMORY", 0)
    assert decode(encode([item] * 1000)) == [item] * 1000


def test_a_little_of_what_takes_much_memory_passes() -> None:
    assert decode(encode([set()] * 1000)) == [set()] * 1000


def test_integers_are_bounded() -> None:
    most = (1 << 8 * MAX_INT_BYTES - 9) - 1
    assert decode(encode([most, -most])) == [most, -most]
    for large in (1 << 8 * MAX_INT_BYTES, -1 << 8 * MAX_INT_BYTES):
        with pytest.raises(EncodingError, match="an integer takes more than 1048576 bytes"):
            encode(large)
    with pytest.raises(EncodingError, match="an integer takes more than 1048576 bytes"):
        decode(b"i" + struct.pack("<I", MAX_INT_BYTES + 1) + bytes(MAX_INT_BYTES + 1))


EXACT = (
    *(b"Decimal sNaN", b"Decimal x", b"Fraction 1/0", b"Fraction " + b"9" * 5000 + b"/7"),
    *(b"date 2026-13-01", b"timedelta 1 2 3 4 5 6 7 8", b"timedelta 999999999999 0 0", b"Path /", b"", b"time"),
)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"?",
        b"i",
        b"i\x05\x00\x00\x00\x01",
        b"NN",
        b"d\x01\x00\x00\x00N",
        b"e\x01\x00\x00\x00l\0\0\0\0",
        b"s\x01\0\0\0\xff",
        *(b"v" + struct.pack("<I", len(text)) + text for text in EXACT),
    ],
)
def test_invalid_values_are_refused(data: bytes) -> None:
    with pytest.raises(EncodingError):
        decode(data)


@given(VALUES)
def test_arguments_come_out_as_they_went_in(value: object) -> None:
    assert repr_of(unpack(pack([value]))[0]) == repr_of(value)


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

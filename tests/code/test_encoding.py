"""Values between programs and the trusted side: what goes in comes out, as plain builtins, and no
bytes do harm."""

from __future__ import annotations

import enum
import math
from collections import Counter, OrderedDict, defaultdict, namedtuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from guerdon._code.encoding import MAX_DEPTH, EncodingError, Opaque, decode, encode

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


@given(some.binary(max_size=200))
def test_any_bytes_are_a_plain_value_or_refused(data: bytes) -> None:
    try:
        value = decode(data)
    except EncodingError:
        return
    assert type(value) in (type(None), bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, Opaque)


@given(VALUES, some.integers(0, 300), some.integers(1, 255))
def test_changed_bytes_raise_nothing_else(value: object, place: int, flip: int) -> None:
    data = bytearray(encode(value))
    data[place % len(data)] ^= flip
    try:
        decode(bytes(data))
    except EncodingError:
        return


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
    value = decode(encode([_AlwaysEqual()], opaque=True))[0]
    assert type(value) is Opaque
    assert value != 1
    assert value != value
    assert "AlwaysEqual" in repr(value)


def test_what_the_trusted_side_sends_is_data() -> None:
    with pytest.raises(EncodingError, match="a _AlwaysEqual is no data"):
        encode([{"a": _AlwaysEqual()}])


def test_subclasses_become_the_builtin_with_what_it_holds() -> None:
    assert decode(encode(_Liar([1, 2]))) == [1, 2]
    assert type(decode(encode(_Number(3)))) is int
    assert decode(encode(_Number(3))) != 4
    Pair = namedtuple("Pair", "a b")  # noqa: PYI024 - as programs make them
    Kind = enum.IntEnum("Kind", "A B")
    for value, plain in (
        (Pair(1, 2), (1, 2)),
        (Counter("aab"), {"a": 2, "b": 1}),
        (OrderedDict(x=1), {"x": 1}),
        (defaultdict(list, {1: [2]}), {1: [2]}),
        (Kind.B, 2),
    ):
        found = decode(encode(value))
        assert found == plain
        assert type(found) is type(plain)


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


def test_keys_that_share_a_hash_are_refused() -> None:
    modulus = (1 << 61) - 1
    for value in ({number * modulus: 0 for number in range(600)}, {number * modulus for number in range(600)}):
        with pytest.raises(EncodingError, match="one hash"):
            decode(encode(value))
    decode(encode(set(range(10_000))))


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
    ],
)
def test_what_is_no_value_is_refused(data: bytes) -> None:
    with pytest.raises(EncodingError):
        decode(data)

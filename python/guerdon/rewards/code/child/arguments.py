"""The program and the arguments of its calls, on their way into its process.

- They come from the trusted side, and only programs read these bytes: `marshal` takes a tenth of
  the time of `encoding`, which the results go through. Lists that are one list stay one.
- Values that are not exact builtins go through `encoding`: `marshal` would make bytes of an array.
"""

from __future__ import annotations

import marshal
from itertools import chain
from typing import Any, Final

from guerdon.rewards.code.child.decoding import decode
from guerdon.rewards.code.child.encoding import MAX_DEPTH, encode

__all__ = ["is_marshalled", "pack", "unpack"]

_MARSHALLED, _ENCODED = b"m", b"e"
_SCALARS: Final = frozenset({type(None), bool, int, float, complex, str, bytes})


def pack(value: Any) -> bytes:
    """`value` as bytes for `unpack`."""
    if _is_plain(value, 0, set()):
        return _MARSHALLED + marshal.dumps(value)
    return _ENCODED + encode(value)


def is_marshalled(data: bytes) -> bool:
    """Returns whether the value has no `Opaque` in it."""
    return data[:1] == _MARSHALLED


def unpack(data: bytes) -> Any:
    """The value, in a program's process."""
    rest = memoryview(data)[1:]
    return marshal.loads(rest) if data[:1] == _MARSHALLED else decode(bytes(rest))


def _is_plain(value: Any, depth: int, seen: set[int]) -> bool:
    """Returns whether it is made of exact builtin values, not too deep."""
    kind = type(value)
    if kind in _SCALARS:
        return True
    if kind is dict:
        parts = list(chain(value.keys(), value.values()))
    elif kind in (list, tuple, set, frozenset):
        parts = value
    else:
        return False
    if depth >= MAX_DEPTH:
        return False
    if id(value) in seen or set(map(type, parts)) <= _SCALARS:
        return True
    seen.add(id(value))
    return all(_is_plain(part, depth + 1, seen) for part in parts)

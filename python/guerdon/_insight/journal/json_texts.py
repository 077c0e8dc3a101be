"""Values of texts and columns that are not strings, as JSON.

Runs on the journal's thread. No code of the values' own runs but that of arrays and tensors: what
JSON has no form for is named by its type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

__all__ = ["encode"]


def encode(values: Sequence[object]) -> list[str | None]:
    """Each value as JSON; None stays None."""
    return [None if value is None else _encode(value) for value in values]


def _encode(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=_plain)
    # a circle, keys that are not strings: the other rows have their values
    except Exception as error:
        text = json.dumps(f"<{_name(value)}: {error}>", ensure_ascii=False)
    # Lone surrogates have no UTF-8.
    return text.encode("utf-8", "replace").decode("utf-8")


def _plain(value: Any) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (AbstractSet, tuple)):
        return list(value)
    module = type(value).__module__.partition(".")[0]
    if module in ("numpy", "torch") and hasattr(value, "tolist"):
        return value.tolist()
    return f"<{_name(value)}>"


def _name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"

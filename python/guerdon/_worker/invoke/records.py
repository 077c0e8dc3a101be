"""Records of a call beside its reward: extra columns, metrics, fields and tokens.

No record makes a call fail, whatever its values are.
"""

from __future__ import annotations

import json
import math
from typing import Any


def encode_records(items: list[list[Any]]) -> bytes | None:
    """Records as JSON; other values become their `item()`, `tolist()` or `str()`."""
    try:
        return json.dumps(items, default=_json_default, ensure_ascii=False).encode("utf-8", "surrogatepass")
    # keys that are not strings, cycles, a __str__ that raises: keep the records that work
    except Exception:
        kept = []
        for item in items:
            try:
                kept.append(json.loads(json.dumps(_json_safe(item, 0))))
            except Exception:
                continue
        return json.dumps(kept, ensure_ascii=False).encode("utf-8", "surrogatepass") if kept else None


def _json_default(value: Any) -> Any:
    """The ``default`` of `json.dumps`."""
    item = getattr(value, "item", None)
    if item is not None:
        try:
            single = item()
        except Exception:  # an array of several elements
            single = None
        if isinstance(single, (bool, int, float, str)):
            return single
    tolist = getattr(value, "tolist", None)
    if tolist is not None:
        try:
            return tolist()
        except Exception:  # not an array
            return str(value)
    return str(value)


def _json_safe(value: Any, depth: int) -> Any:
    """A copy that `json` can write: keys become strings, deep nesting becomes its type's name."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if depth > 8:
        return type(value).__name__
    if isinstance(value, dict):
        return {str(key): _json_safe(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_safe(inner, depth + 1) for inner in value]
    return _json_safe(_json_default(value), depth + 1)


def tokens_of(usage: Any) -> float | None:
    """The tokens of a ``usage``: a number, or an OpenAI-compatible object or dict."""
    try:
        if isinstance(usage, dict):
            usage = usage.get("total_tokens")
        elif not isinstance(usage, (int, float)):
            usage = getattr(usage, "total_tokens", None)
        if usage is None or isinstance(usage, bool):
            return None
        tokens = float(usage)
    except Exception:  # a foreign object may raise anything
        return None
    return tokens if math.isfinite(tokens) and tokens >= 0 else None

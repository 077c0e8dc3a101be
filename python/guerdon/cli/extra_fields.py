"""Recorded fields for result rows (``--extra``): extra fields of dict results, ``log_extra``, the
reasons of code rewards and judges."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from guerdon.profile.function_profile import plain

if TYPE_CHECKING:
    from guerdon.results import RewardBatch

__all__ = ["extra_of", "extra_text"]


def extra_of(result: RewardBatch) -> list[dict[str, dict[str, Any]]]:
    """One dict a sample: by function, its records of that sample, by field."""
    samples = len(result)
    found: list[dict[str, dict[str, Any]]] = [{} for _ in range(samples)]
    for name, recorded in zip(result.functions, result._recorded, strict=True):
        for column, values in recorded.extra:
            field = column.removeprefix(f"{name}/")
            if len(values) == 1:  # of a whole batch
                values = values * samples
            if len(values) != samples:
                continue  # no values of samples
            for sample, value in enumerate(values):
                if value is not None:
                    found[sample].setdefault(name, {})[field] = value
    return found


def extra_text(extra: dict[str, dict[str, Any]]) -> str:
    """Returns it as JSON, which has no NaN and no infinity: those are null. It can be encoded,
    whatever halves of surrogate pairs are in it."""
    text = json.dumps(plain(extra), ensure_ascii=False, default=str)
    return text if text.isascii() or _is_whole(text) else json.dumps(plain(extra), default=str)


def _is_whole(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)

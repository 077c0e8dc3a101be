"""Recorded fields for result rows (``--extra``) and the summary: extra fields of dict results,
``log_extra``, the reasons of code rewards and judges."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from guerdon._system.safe_text import one_line
from guerdon.profile.function_profile import plain
from guerdon.results.status import Status

if TYPE_CHECKING:
    from guerdon.results import RewardBatch

__all__ = ["ZeroReasons", "extra_of", "extra_text"]

_REASON: Final = "reason"
_MOST_REASONS: Final = 1000
_SHOWN: Final = 3
_WIDTH: Final = 100


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


class ZeroReasons:
    """Why samples scored 0, of functions that say so in a field ``reason``; keeps a bounded number
    of reasons."""

    def __init__(self, functions: Sequence[str]) -> None:
        self._reasons: dict[str, Counter[str]] = {name: Counter() for name in functions}
        self._zeros: Counter[str] = Counter()
        self._scored: Counter[str] = Counter()

    def add(self, result: RewardBatch) -> None:
        """Count one batch."""
        count = len(result.functions)
        rewards, status = result.rewards.reshape(-1, count), result.status.reshape(-1, count)
        for place, (name, recorded) in enumerate(zip(result.functions, result._recorded, strict=True)):
            scored = status[:, place] == Status.OK
            zeros = np.flatnonzero(scored & (rewards[:, place] == 0)).tolist()
            self._scored[name] += int(scored.sum())
            self._zeros[name] += len(zeros)
            texts = next((values for column, values in recorded.extra if column == f"{name}/{_REASON}"), None)
            if texts is None or len(texts) != len(result):
                continue
            known = self._reasons[name]
            for sample in zeros:
                text = texts[sample]
                if isinstance(text, str) and text.strip() and (text in known or len(known) < _MOST_REASONS):
                    known[text] += 1

    def text(self) -> str:
        """A line for each function with reasons; empty if there are none."""
        return "\n".join(self._line(name, known) for name, known in self._reasons.items() if known)

    def _line(self, name: str, known: Counter[str]) -> str:
        shown = [f"{one_line(reason, _WIDTH)} ({count})" for reason, count in known.most_common(_SHOWN)]
        others = self._zeros[name] - sum(count for _, count in known.most_common(_SHOWN))
        more = [f"others ({others})"] if others else []
        return f"{name}: {self._zeros[name]} of {self._scored[name]} scored 0: {', '.join([*shown, *more])}"

"""`MathReward`: the item of a dispatcher's list, and a plain function like TRL's.

- A dispatcher's worker decides natively, and asks math-verify if that isn't certain.
- A plain call decides natively on the caller's thread; what is left goes to the helper's worker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from guerdon._functions import options as checked
from guerdon._native import math_decision
from guerdon.errors import DataError, RegistrationError
from guerdon.rewards.math.helper import ask
from guerdon.rewards.math.lenient import prepared
from guerdon.rewards.math.plain_gold import plain_score, unsigned, warn_unread
from guerdon.rewards.math.verify import PARSE_S, MathSample, is_missing, package_missing
from guerdon.rewards.worker_reward import WorkerReward

__all__ = ["NOTATIONS", "MathReward"]

NOTATIONS: Final = ("math-verify", "lenient")


class MathReward(WorkerReward):
    """Compares an answer with the gold one: made by `guerdon.rewards.math_reward`.

    It is callable as TRL calls reward functions, ``(prompts, completions, **columns)``, and then
    gives a list with 1.0, 0.0 or None for each completion.

    Attributes:
        spec: What the dispatcher needs to know about it.
    """

    def __init__(
        self,
        made_by: Callable[..., MathReward],
        column: str,
        strict: bool,
        notation: str,
        options: Mapping[str, Any],
        known: Mapping[str, Any],
    ) -> None:
        if notation not in NOTATIONS:
            raise RegistrationError(
                f"{made_by.__name__}(): notation={notation!r}: expected one of {', '.join(map(repr, NOTATIONS))}."
            )
        self._strict = strict
        self._lenient = notation == "lenient"
        super().__init__(
            (
                made_by,
                {"column": column, "strict": checked.flag(made_by.__name__, "strict", strict), "notation": notation},
            ),
            MathSample(column, strict=strict, lenient=self._lenient),
            column,
            options,
            known,
            least_timeout=float(PARSE_S),
            missing=package_missing,
        )
        if why := package_missing():
            logging.getLogger("guerdon").warning("%s: %s Without it such samples are an error.", self.name, why)

    def __call__(
        self, prompts: object = None, completions: object = None, completion_ids: object = None, **columns: object
    ) -> list[float | None]:
        """The scores of a batch.

        Raises:
            DataError: A column is missing, or a gold answer is no text.
            ImportError: A pair needs math-verify, which is not installed.
        """
        scores: list[float | None] = []
        left: list[tuple[int, str, str]] = []
        for sample, (text, gold) in enumerate(self._rows(prompts, completions, completion_ids, columns)):
            without = is_missing(gold)
            if not without and not isinstance(gold, str):
                kind = type(gold).__name__
                raise DataError(
                    f"reward function {self.name!r}: sample {sample}: the gold answer is a {kind}, no text."
                )
            if without:
                scores.append(None)
                continue
            gold = str(gold)
            if self._lenient:
                found = prepared(gold, text)
                if not isinstance(found, tuple):
                    scores.append(self._without_math(gold, text) if found is None else found)
                    continue
                gold, text = found
            gold = unsigned(gold)
            decision = math_decision(gold, text, reward=True, strict=self._strict or self._lenient)
            if decision is None:
                left.append((sample, gold, text))
            elif decision == "no gold":
                scores.append(self._without_math(gold, text))
                continue
            scores.append(None if decision is None else float(decision))
        if left:
            answered = ask([(gold, answer) for _, gold, answer in left], reward=True)
            for (sample, gold, text), value in zip(left, answered, strict=True):
                scores[sample] = self._without_math(gold, text) if value is None else value
        return scores

    def _without_math(self, gold: str, text: str) -> float | None:
        """The score where math-verify reads no gold answer."""
        value = plain_score(gold, text, strict=self._strict)
        if value is None:
            warn_unread(self._column or "", gold)
        return value

"""`MathReward`: the item of a dispatcher's list, and a plain function like TRL's.

- A dispatcher's worker decides natively, and asks math-verify if that isn't certain.
- A plain call decides natively on the caller's thread; what is left goes to the helper's worker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from guerdon._functions import options as checked
from guerdon.errors import DataError, RegistrationError
from guerdon.rewards.math.helper import ask
from guerdon.rewards.math.plain_gold import plain_score, warn_unread
from guerdon.rewards.math.verify import PARSE_S, MathSample, native_score, package_missing
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
            DataError: A column is missing, or a gold answer is not a text.
            ImportError: A pair needs math-verify, which is not installed.
        """
        scores: list[float | None] = []
        left: list[tuple[int, str, str]] = []
        golds: list[object] = []
        for sample, (text, gold) in enumerate(self._rows(prompts, completions, completion_ids, columns)):
            try:
                found = native_score(gold, text, strict=self._strict, lenient=self._lenient)
            except DataError as error:
                raise DataError(f"reward function {self.name!r}: sample {sample}: {error}.") from None
            if isinstance(found, tuple):
                left.append((sample, *found))
                found = None
            scores.append(found)
            golds.append(gold)
        if left:
            answered = ask([(gold, answer) for _, gold, answer in left], reward=True)
            for (sample, gold, text), value in zip(left, answered, strict=True):
                strict = self._strict or self._lenient
                scores[sample] = plain_score(gold, text, strict=strict) if value is None else value
        for gold, value in zip(golds, scores, strict=True):
            if value is None and isinstance(gold, str):
                warn_unread(self._column or "", gold)
        return scores

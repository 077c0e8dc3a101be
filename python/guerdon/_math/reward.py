"""`MathReward`: the item of a dispatcher's list, and a plain function like TRL's.

- In a dispatcher a worker decides natively, and asks math-verify where that isn't certain.
- A plain call decides natively on the caller's thread; what is left goes to the helper's worker.
- It pickles as the arguments that it was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from guerdon._columns import Single, collect
from guerdon._math.helper import ask
from guerdon._math.verify import PARSE_S, MathSample, is_missing, package_missing
from guerdon._native import math_decision
from guerdon._registration import options as checked
from guerdon._registration.conditions import checked_run_if
from guerdon._registration.factory import Factory
from guerdon._registration.options import Options
from guerdon._registration.plain_columns import given_column, missing_column
from guerdon._registration.policy import checked_policy
from guerdon._registration.signature import Wants
from guerdon._registration.spec import FunctionSpec
from guerdon.errors import DataError, RegistrationError

__all__ = ["MathReward"]


class MathReward:
    """Whether an answer is the gold one: made by `guerdon.rewards.math_reward`.

    It is callable as TRL calls reward functions, ``(prompts, completions, **columns)``, and then
    gives a list with 1.0, 0.0 or None for each completion.

    Attributes:
        spec: What the dispatcher needs to know about it.
    """

    __guerdon_decorated__ = True

    def __init__(
        self,
        made_by: Callable[..., MathReward],
        column: str,
        strict: bool,
        options: Mapping[str, Any],
        known: Mapping[str, Any],
    ) -> None:
        usual = made_by.__name__
        unknown = sorted(set(options) - set(known))
        if unknown:
            own = ", ".join(known)
            raise RegistrationError(f"{usual}() has no option {unknown[0]!r}. Beside its own it takes {own}.")
        name = checked.label(usual, "name", options.get("name")) or usual
        given_column: object = column
        if not isinstance(given_column, str) or not given_column:
            raise RegistrationError(f"reward function {name!r}: column={column!r}: expected the name of a column.")
        self._made = made_by, {"column": column, "strict": checked.flag(name, "strict", strict), **options}
        self._column = column
        self._sample = MathSample(column, strict=strict)
        given = Options(**{**options, "name": name})
        self.spec = FunctionSpec(
            name=name,
            item=self,
            target=self._sample,
            lane="process",
            shape="sample",
            policy=checked_policy(name, given, "sample"),
            wants=Wants(required=("text", column), positional=True),
            decorated=True,
            run_if=checked_run_if(name, given.run_if, given.otherwise),
            factory=Factory(
                made_by, self._made[1], {"column": column}, least_timeout=float(PARSE_S), missing=package_missing
            ),
        )
        self.__name__ = name

    @property
    def __guerdon_target__(self) -> MathSample:
        """What a worker runs in place of this object."""
        return self._sample

    @property
    def name(self) -> str:
        """Its name in metrics, files and messages."""
        return self.spec.name

    def __call__(
        self, prompts: object = None, completions: object = None, completion_ids: object = None, **columns: object
    ) -> list[float | None]:
        """The scores of a batch.

        Raises:
            DataError: A column is missing, or a gold answer is no text.
            ImportError: A pair needs math-verify, which is not installed.
        """
        data = collect(prompts, completions, completion_ids, columns, singles=True)
        if self._column not in data.dataset:
            raise missing_column(self.spec, self._column, data)
        values = given_column(self.name, self._column, data)
        golds = [values.value] * data.samples if isinstance(values, Single) else values
        scores: list[float | None] = []
        left: list[tuple[int, str, str]] = []
        for sample, (gold, answer) in enumerate(zip(golds, data.texts, strict=True)):
            without = is_missing(gold)
            if not without and not isinstance(gold, str):
                kind = type(gold).__name__
                raise DataError(
                    f"reward function {self.name!r}: sample {sample}: the gold answer is a {kind}, no text."
                )
            text, strict = str(answer), self._sample.strict
            decision = "no gold" if without else math_decision(str(gold), text, reward=True, strict=strict)
            if decision is None:
                left.append((sample, str(gold), text))
            scores.append(None if decision is None or decision == "no gold" else float(decision))
        if left:
            answered = ask([(gold, answer) for _, gold, answer in left], reward=True)
            for (sample, _, _), value in zip(left, answered, strict=True):
                scores[sample] = value
        return scores

    def __reduce__(self) -> tuple[Callable[..., MathReward], tuple[Any, ...]]:
        return _remade, self._made

    def __repr__(self) -> str:
        return f"<reward function {self.name!r}: process lane, timeout {self.spec.policy.timeout:g} s>"


def _remade(made_by: Callable[..., MathReward], given: dict[str, Any]) -> MathReward:
    return made_by(**given)

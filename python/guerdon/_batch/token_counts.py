"""Counting the tokens of calls before they are made, by the function that a `Limit` was given.

The function gets a sample's columns by name, as a per-sample reward function does; live
environments too, since it runs in this process. An error, or an answer that is not a count, refuses
the batch before any call, naming function and sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from guerdon._batch.columns import TEXT, Data, Single
from guerdon._functions.signature import Wants, inspect_wants
from guerdon._system.units import number
from guerdon._worker.invoke.reasons import reason_of
from guerdon._worker.invoke.returned_values import short_repr
from guerdon.errors import DataError, RegistrationError

if TYPE_CHECKING:
    from guerdon._functions.spec import FunctionSpec

__all__ = ["Counting", "counting"]


@dataclass(frozen=True)
class Counting:
    """Rule for counting the tokens of one reward function's calls."""

    function: Callable[..., Any]
    called: str
    wants: Wants

    def count(self, data: Data, sources: Mapping[str, tuple[str, str]], names: tuple[str, ...]) -> list[float]:
        """Returns the count of each sample.

        Raises:
            DataError: The function failed, or returned no count.
        """
        columns = {name: _values(data, *sources[name]) for name in names}
        counts = []
        for sample in range(data.samples):
            row = {name: _of(values, sample) for name, values in columns.items()}
            try:
                found = self.function(**row)
            except Exception as error:
                raise DataError(f"{self.called} failed on sample {sample}: {reason_of(error)}.") from error
            count = number(found)
            if not 0 <= count < math.inf:
                raise DataError(
                    f"{self.called} gave {short_repr(found)} for sample {sample}: expected a number of tokens."
                )
            counts.append(count)
        return counts


def counting(spec: FunctionSpec) -> Counting | None:
    """Returns the rule for counting a reward function's tokens; None if no function does.

    Raises:
        RegistrationError: No batch can satisfy its signature, or it wants to record.
    """
    tokens = spec.policy.limit.tokens if spec.policy.limit is not None else None
    if tokens is None or not callable(tokens):
        return None
    wants = inspect_wants(tokens, f"{spec.name}, Limit(tokens=)", "sample")
    if wants.records:
        problem = f"can't take {' or '.join(wants.records)}: it only counts"
        raise RegistrationError(f"the function of {spec.name!r}, Limit(tokens=), {problem}.")
    return Counting(tokens, f"the function of {spec.name!r}, Limit(tokens=),", wants)


def _values(data: Data, kind: str, name: str) -> list[object] | Single:
    if kind == "state":
        return Single(data.trainer_state)
    if kind == "own":
        return data.texts if name == TEXT else data.own[name]
    return data.dataset[name]


def _of(values: list[object] | Single, sample: int) -> object:
    return values.value if isinstance(values, Single) else values[sample]

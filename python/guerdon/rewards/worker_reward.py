"""Reward functions that come with Guerdon and run in workers: items of a dispatcher's list, and
plain functions like TRL's.

A worker calls `sample`, with a completion's text and the value of a column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from guerdon._batch.columns import Single, collect
from guerdon._functions import options as checked
from guerdon._functions.conditions import checked_run_if
from guerdon._functions.factory import Factory, nothing_missing
from guerdon._functions.options import Options
from guerdon._functions.policy import checked_policy
from guerdon._functions.signature import Wants
from guerdon._functions.spec import FunctionSpec
from guerdon.errors import RegistrationError, option_names, unknown_option
from guerdon.rewards.plain_columns import BuiltInReward, given_column

__all__ = ["WorkerReward"]


class WorkerReward(BuiltInReward):
    """Base of reward functions of `guerdon.rewards` that run in workers."""

    def __init__(
        self,
        made: tuple[Callable[..., WorkerReward], Mapping[str, Any]],
        sample: Callable[..., float | None],
        column: str | None,
        options: Mapping[str, Any],
        known: Mapping[str, Any],
        *,
        least_timeout: float = 0.0,
        missing: Callable[[], str | None] = nothing_missing,
    ) -> None:
        """Checks its options.

        Args:
            made: The factory, and its own arguments by name.
            sample: What a worker calls: ``sample(text, value)``, or ``sample(text)`` without a
                column.
            column: The column that it takes, if any.
            options: The user's other options, of those that `known` names.
            least_timeout: As in `Factory`, like `missing`.

        Raises:
            RegistrationError: An option is wrong.
        """
        made_by, own = made
        usual = made_by.__name__
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise unknown_option(usual, unknown[0], (*option_names(made_by), *known))
        name = checked.label(usual, "name", options.get("name")) or usual
        given_column: object = column
        if given_column is not None and (not isinstance(given_column, str) or not given_column):
            raise RegistrationError(f"reward function {name!r}: column={column!r}: expected the name of a column.")
        made = made_by, {**own, **options}
        self._column = column
        self._sample = sample
        given = Options(**{**options, "name": name})
        columns = () if column is None else (column,)
        spec = FunctionSpec(
            name=name,
            item=self,
            target=sample,
            lane="process",
            shape="sample",
            policy=checked_policy(name, given, "sample"),
            wants=Wants(required=("text", *columns), positional=True),
            decorated=True,
            run_if=checked_run_if(name, given.run_if, given.otherwise),
            factory=Factory(
                made_by,
                made[1],
                {} if column is None else {"column": column},
                least_timeout=least_timeout,
                missing=missing,
            ),
        )
        super().__init__(made, spec)

    @property
    def __guerdon_target__(self) -> Callable[..., float | None]:
        """The callable that a worker runs in place of this object."""
        return self._sample

    def _rows(
        self, prompts: object, completions: object, completion_ids: object, columns: Mapping[str, object]
    ) -> Iterator[tuple[str, object]]:
        """The text of each completion, with its value of the column, or None without one.

        Raises:
            DataError: A column is missing.
        """
        data = collect(prompts, completions, completion_ids, dict(columns), singles=True)
        values: list[object] = [None] * data.samples
        if self._column is not None:
            given = given_column(self.spec, self._column, data)
            values = [given.value] * data.samples if isinstance(given, Single) else given
        return zip(map(str, data.texts), values, strict=True)

"""Base of the reward functions that come with Guerdon, and the columns of their plain calls,
``reward(completions=…, gold=…)``.

Trainers may pass one value for all samples there, but a text is a list that lost its brackets:
`Dispatcher.score` refuses it, and so does a plain call; a column of `reward_funcs` takes what the
trainer gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from guerdon._batch.columns import Data, Single, as_values
from guerdon._functions.spec import FunctionSpec
from guerdon.errors import DataError

__all__ = ["BuiltInReward", "given_column"]


class BuiltInReward:
    """An item of a dispatcher's list, and as a rule a plain function like TRL's.

    It pickles as the arguments that it was made from.

    Attributes:
        spec: What the dispatcher needs to know about it.
    """

    __guerdon_decorated__ = True

    def __init__(self, made: tuple[Callable[..., Any], Mapping[str, Any]], spec: FunctionSpec) -> None:
        self._made = made
        self.spec = spec
        self.__name__ = spec.name

    @property
    def name(self) -> str:
        """Its name in metrics, files and messages."""
        return self.spec.name

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _remade, self._made

    def __repr__(self) -> str:
        return f"<reward function {self.name!r}: {self.spec.lane} lane, {self.spec.policy.timeout_text}>"


def _remade(made_by: Callable[..., Any], given: dict[str, Any]) -> Any:
    return made_by(**given)


def given_column(spec: FunctionSpec, column: str, data: Data) -> list[object] | Single:
    """The column's values.

    Raises:
        DataError: It is missing, or one text, which would be compared with every completion.
    """
    if column not in data.dataset:
        call = None if spec.factory is None else spec.factory.to_name(column, data.dataset)
        raise DataError(
            f"reward function {spec.name!r} asks for the column {column!r}, which this batch doesn't have. "
            f"Its columns: {', '.join(data.dataset) or 'none'}." + (f" Add it, or name yours: {call}." if call else "")
        )
    values = data.dataset[column]
    if isinstance(values, Single) and isinstance(values.value, (str, bytes)):
        try:
            as_values(column, values.value, data.samples)
        except DataError as error:
            raise DataError(f"reward function {spec.name!r}: {error}") from None
    return values

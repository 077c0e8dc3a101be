"""Columns of a plain call of a function that comes with Guerdon, ``reward(completions=…, gold=…)``.

Trainers may pass one value for all samples there, but a text is a list that lost its brackets:
`Dispatcher.score` refuses it, and so does a plain call; a column of `reward_funcs` takes what the
trainer gives.
"""

from __future__ import annotations

from guerdon._batch.columns import Data, Single, as_values
from guerdon._functions.spec import FunctionSpec
from guerdon.errors import DataError

__all__ = ["given_column", "missing_column"]


def given_column(name: str, column: str, data: Data) -> list[object] | Single:
    """The column's values.

    Raises:
        DataError: It is one text, which would be compared with every completion.
    """
    values = data.dataset[column]
    if isinstance(values, Single) and isinstance(values.value, (str, bytes)):
        try:
            as_values(column, values.value, data.samples)
        except DataError as error:
            raise DataError(f"reward function {name!r}: {error}") from None
    return values


def missing_column(spec: FunctionSpec, column: str, data: Data) -> DataError:
    """Returns the error for a column that a batch lacks."""
    call = None if spec.factory is None else spec.factory.to_name(column, data.dataset)
    return DataError(
        f"reward function {spec.name!r} asks for the column {column!r}, which this batch doesn't have. "
        f"Its columns: {', '.join(data.dataset) or 'none'}." + (f" Add it, or name yours: {call}." if call else "")
    )

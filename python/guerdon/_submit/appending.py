"""How samples get into a batch that is still open.

- I-1  An addition is checked whole before any of it counts: what is refused leaves the batch as it was.
- I-2  Every addition brings the columns that the first one brought to the functions.
- I-3  What the trainer's state is was said when the batch was opened: it is the same for all samples.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from guerdon._serialization.column_values import dumps
from guerdon._submit.column_routing import Uses, unshippable
from guerdon._submit.columns import TRAINER_STATE, collect, refuse_singular
from guerdon.errors import ClosedError, DataError

if TYPE_CHECKING:
    from guerdon._native import Batch


class Intake:
    """Takes samples into one batch.

    Args:
        batch: The engine's batch.
        uses: Which columns the dispatcher's functions get.
        trainer_state: For all samples (I-3).
    """

    def __init__(self, batch: Batch, uses: Uses, trainer_state: object) -> None:
        self._batch = batch
        self._uses = uses
        self._trainer_state = trainer_state
        self._names: list[str] | None = None  # written by the first addition (I-2)

    def add(
        self,
        completions: object,
        prompts: object,
        completion_ids: object,
        columns: Mapping[str, object],
        group: object = None,
        samples: object = None,
    ) -> list[int]:
        """The places of the samples, which count from now on.

        Raises:
            DataError: They can't be scored, or there is no such place (I-1).
            ClosedError: The batch takes no more samples.
        """
        refuse_singular(columns)
        if columns.get(TRAINER_STATE) is not None:
            raise DataError("trainer_state is the same for all samples: give it to submit(), not to add().")
        data = collect(prompts, completions, completion_ids, {**columns, TRAINER_STATE: self._trainer_state})
        index, indexes = _index("group", group), _indexes(samples, data.samples)
        if index is not None and indexes is not None:
            raise DataError("samples= says where each sample belongs: leave group= out.")
        plan = self._uses.of(data, grows=True)
        if self._names is not None and plan.names != self._names:
            raise DataError(
                f"these samples bring the columns {', '.join(plan.names)} to the functions, those before them "
                f"{', '.join(self._names)}: give the same columns with every add()."
            )
        try:
            added = self._batch.add(
                plan.columns, plan.uses, count=data.samples, dumps=dumps, group=index, samples=indexes
            )
        except TypeError as error:
            raise unshippable(error, plan) from error
        except ValueError as error:
            raise DataError(f"{error}. Nothing was added.") from None
        except RuntimeError as error:
            raise ClosedError(f"this batch is closed: {error}.") from None
        self._names = plan.names
        return added

    def finish(self) -> None:
        """No more samples come.

        Raises:
            DataError: A group lacks samples; the batch stays open.
        """
        try:
            self._batch.finish()
        except ValueError as error:
            raise DataError(
                f"{error} samples. Add the missing ones, or give the batch up with cancel(); it is still open."
            ) from None
        except RuntimeError as error:
            raise ClosedError(f"this batch is closed: {error}.") from None


def _index(name: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise DataError(f"{name}={value!r}: expected an index.")
    index = operator.index(value)
    if not 0 <= index < 1 << 62:
        raise DataError(f"{name}={value!r}: expected an index of at least 0.")
    return index


def _indexes(values: Any, samples: int) -> list[int] | None:
    if values is None:
        return None
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise DataError(f"samples={values!r}: expected a list with the index of each sample.")
    if len(values) != samples:
        raise DataError(f"samples= has {len(values)} indexes, but there are {samples} completions.")
    indexes = [_index("samples", value) for value in values]
    if None in indexes:
        raise DataError(f"samples={values!r}: expected the index of each sample.")
    return [index for index in indexes if index is not None]

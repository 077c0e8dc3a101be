"""Adds samples to a batch that is still open.

- An addition is checked completely before any of it counts: a refused one changes nothing.
- Every addition brings the same columns to the functions as the first.
- The trainer's state is given when the batch is opened: it is the same for all samples.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from guerdon._batch.column_routing import ColumnRouter, unshippable
from guerdon._batch.columns import TRAINER_STATE, collect, refuse_singular
from guerdon._functions.serialization.column_values import BatchPickler
from guerdon.errors import ClosedError, DataError

if TYPE_CHECKING:
    from guerdon._native import Batch


class Appender:
    """Adds samples to one batch.

    Args:
        batch: The engine's batch.
        router: Which columns the dispatcher's functions get.
        trainer_state: For all samples.
    """

    def __init__(self, batch: Batch, router: ColumnRouter, trainer_state: object) -> None:
        self._batch = batch
        self._router = router
        self._trainer_state = trainer_state
        self._names: list[str] | None = None  # written by the first addition

    def add(
        self,
        completions: object,
        prompts: object,
        completion_ids: object,
        columns: Mapping[str, object],
        group: object = None,
        indices: object = None,
    ) -> list[int]:
        """Adds samples and returns the index of each in the batch.

        Raises:
            DataError: They can't be scored, or there is no such index.
            ClosedError: The batch takes no more samples.
        """
        refuse_singular(columns)
        if columns.get(TRAINER_STATE) is not None:
            raise DataError("trainer_state is the same for all samples: give it to stream(), not to add().")
        data = collect(prompts, completions, completion_ids, {**columns, TRAINER_STATE: self._trainer_state})
        group_index, places = _index("group", group), _indices(indices, data.samples)
        if group_index is not None and places is not None:
            raise DataError("indices= says where each sample belongs: leave group= out.")
        routed = self._router.route(data, is_open=True)
        if self._names is not None and routed.names != self._names:
            raise DataError(
                f"these samples bring the columns {', '.join(routed.names)} to the functions, those before them "
                f"{', '.join(self._names)}: give the same columns with every add()."
            )
        try:
            added = self._batch.add(
                routed.columns,
                routed.uses,
                count=data.samples,
                dumps=BatchPickler().dumps,
                group=group_index,
                samples=places,
                journal=routed.journal,
            )
        except TypeError as error:
            raise unshippable(error, routed) from error
        except ValueError as error:
            raise DataError(f"{error}. Nothing was added.") from None
        except RuntimeError as error:
            raise ClosedError(f"{error}.") from None
        self._names = routed.names
        return added

    def finish(self) -> None:
        """Ends additions.

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
            raise ClosedError(f"{error}.") from None


def _index(name: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise DataError(f"{name}={value!r}: expected an index.")
    index = operator.index(value)
    if not 0 <= index < 1 << 62:
        raise DataError(f"{name}={value!r}: expected an index of at least 0, and below 2**62.")
    return index


def _indices(values: Any, samples: int) -> list[int] | None:
    if values is None:
        return None
    if getattr(values, "ndim", None) == 1 and hasattr(values, "tolist"):  # an array, a tensor
        values = values.tolist()
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise DataError(f"indices={values!r}: expected a list with the index of each sample.")
    if len(values) != samples:
        raise DataError(f"indices= has {len(values)} entries, but there are {samples} completions.")
    found = [_index("indices", value) for value in values]
    if None in found:
        raise DataError(f"indices={values!r}: expected the index of each sample.")
    return [index for index in found if index is not None]

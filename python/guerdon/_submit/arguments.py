"""The arguments of one batch, as the dispatcher's methods got them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from guerdon import _options
from guerdon._submit.delivery import checked
from guerdon.errors import DataError, RegistrationError

if TYPE_CHECKING:
    from guerdon._registration.spec import FunctionSpec


@dataclass(frozen=True)
class Given:
    """What `Dispatcher.score` and `Dispatcher.submit` take."""

    completions: object
    prompts: object
    num_generations: int | None
    completion_ids: object
    columns: Mapping[str, object]
    groups: object
    batch_timeout: float | None
    max_pending: int | None = None

    def terms(self, size: int, specs: Sequence[FunctionSpec], batch_timeout: float | None) -> dict[str, Any]:
        """How long the batch and its groups are waited for, as the engine gets it; `budget` is the dispatcher's.

        Raises:
            DataError: That can't work.
        """
        quorum, within, max_pending = checked(self.groups, size, self.max_pending, specs)
        if self.batch_timeout is not None:
            try:
                batch_timeout = _options.bound("batch_timeout", self.batch_timeout)
            except RegistrationError as error:
                raise DataError(str(error)) from None
        terms = {"batch_timeout": batch_timeout, "group_quorum": quorum, "group_timeout": within}
        return terms if max_pending is None else {**terms, "max_pending": max_pending}

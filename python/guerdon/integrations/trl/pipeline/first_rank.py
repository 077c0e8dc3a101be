"""The part of a batch that rank 0 scores for all ranks: agreed by all of them before it is
generated."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from guerdon._system.launcher import ranks_on_host
from guerdon.errors import GuerdonWarning
from guerdon.integrations.trl.pipeline.functions_that_stay import reason_to_stay, stays
from guerdon.integrations.trl.pipeline.overlap import columns_of
from guerdon.integrations.trl.pipeline.rank_offers import RankColumns, RankOffer, exchange_offers
from guerdon.integrations.trl.pipeline.shared_scoring import SharedScoring
from guerdon.integrations.trl.trainer_context import raise_together


class FirstRank:
    """The decisions of one trainer.

    Args:
        trainer: TRL's, with its `dispatchers`; not kept.
    """

    def __init__(self, trainer: Any) -> None:
        self._stay = tuple(map(reason_to_stay, trainer.dispatchers))
        # Message of the main process. A filter may make an error of it, so it is said behind the
        # first batch's collectives.
        self._unsaid = [] if not trainer.accelerator.is_main_process else _used_before(trainer, self._stay)
        # The same on all ranks; None before the first batch.
        self._reported: set[str | None] | None = None

    def scoring(self, trainer: Any, prompts: Any, inputs: Any) -> SharedScoring | None:
        """Returns the part that rank 0 scores of a batch that is about to be generated; None if
        nothing. Collective.

        Args:
            prompts: One for each row of this rank.
            inputs: The data's rows.
        """
        columns: RankColumns | None = None
        try:
            columns = RankColumns(columns_of(inputs), prompts, trainer.state)
            offer = columns.offer(trainer.dispatchers, self._stay)
        except Exception as error:  # this rank alone must not raise: the others wait for it
            reason = f"the rows of a rank can't be read ({type(error).__name__}: {error})"
            offer = RankOffer(len(prompts), (reason,) * len(trainer.dispatchers))
        reasons, names = exchange_offers(offer)
        pairs = zip(trainer.dispatchers, reasons, strict=True)
        dispatchers = [dispatcher for dispatcher, reason in pairs if reason is None]
        brought = columns.send(names) if dispatchers and columns is not None else None
        self._report(trainer, reasons)
        if not dispatchers or columns is None:
            return None
        accelerator = trainer.accelerator
        place = accelerator.process_index, accelerator.num_processes
        return SharedScoring(dispatchers, *place, len(prompts), trainer._group_size, trainer._common, brought)

    def _report(self, trainer: Any, reasons: tuple[str | None, ...]) -> None:
        """Reports new reasons on the main process. Collective where there may be something."""
        if self._reported is not None and self._reported.issuperset(reasons):
            return
        error: Exception | None = None
        # Why functions stay that can't move was said when the trainer was made.
        known = {None, *self._stay} | (self._reported or set())
        try:
            if trainer.accelerator.is_main_process:
                for message in [*self._unsaid, *_new(trainer, reasons, known)]:
                    warnings.warn(message, GuerdonWarning, stacklevel=4)
        except Exception as refused:  # a filter that makes errors of warnings
            error = refused
        self._unsaid = []
        self._reported = (self._reported or set()).union(reasons)
        raise_together(trainer, error)


def _new(trainer: Any, reasons: tuple[str | None, ...], known: set[str | None]) -> Iterator[str]:
    """Yields messages about dispatchers that stay for unknown reasons, each reason once."""
    for dispatcher, reason in zip(trainer.dispatchers, reasons, strict=True):
        if reason is not None and reason not in known:
            known.add(reason)
            yield stays(dispatcher.names, reason)


def _used_before(trainer: Any, stay: tuple[str | None, ...]) -> list[str]:
    """Returns messages about dispatchers that are too small for all ranks of the host, because they
    run already."""
    ranks = ranks_on_host()
    return [
        f"overlap: rank 0 scores for {trainer.accelerator.num_processes} ranks, with the workers of one: the "
        f"dispatcher of {', '.join(map(repr, dispatcher.names))} was used before the trainer was made. Make a "
        "dispatcher for the trainer alone."
        for dispatcher, reason in zip(trainer.dispatchers, stay, strict=True)
        if reason is None and not dispatcher._serve_ranks(ranks)
    ]

"""Dispatchers of a batch that the first rank scores for all, and the columns that it needs.

Each rank makes its offer; all ranks see all offers and come to the same result. A dispatcher goes
to the first rank or stays as a whole: its functions share a batch. Rows travel to the first rank
alone, and only the columns that functions and journals ask for.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import gather_object

from guerdon._batch.columns import PROMPTS
from guerdon.errors import DataError

if TYPE_CHECKING:
    from guerdon.dispatcher import Dispatcher

# A column of one rank: the values as bytes, equal ones once, because the rows of a group have the
# same prompt; and which of them each row has.
Packed = tuple[list[bytes], list[int]]


@dataclass(frozen=True)
class RankOffer:
    """Offer of one rank for a batch.

    Attributes:
        rows: How many it has.
        dispatchers: Of each the columns that it needs, or why it stays.
    """

    rows: int
    dispatchers: tuple[frozenset[str] | str, ...]


def exchange_offers(offer: RankOffer) -> tuple[tuple[str | None, ...], frozenset[str]]:
    """Returns for each dispatcher the reason why it stays, None for one that goes to the first
    rank, and the columns that those need. Collective."""
    offers: list[RankOffer] = gather_object([offer])
    reasons = tuple(_agreed(offers, index) for index in range(len(offer.dispatchers)))
    pairs = zip(offers[0].dispatchers, reasons, strict=True)
    needs = [asked for asked, reason in pairs if reason is None and not isinstance(asked, str)]
    return reasons, frozenset().union(*needs)


def _agreed(offers: Sequence[RankOffer], index: int) -> str | None:
    if len({one.rows for one in offers}) > 1:
        return f"ranks have different numbers of rows ({', '.join(str(one.rows) for one in offers)})"
    asked = [one.dispatchers[index] for one in offers]
    for one in asked:
        if isinstance(one, str):
            return one
    for rank, one in enumerate(asked):
        if one != asked[0]:
            names = ", ".join(map(repr, sorted(set(one) ^ set(asked[0]))))
            return f"the columns of rank {rank} are not those of rank 0: they differ by {names}"
    return None


class RankColumns:
    """The columns of this rank's rows, by name, as they are sent.

    Args:
        columns: Those of the data, as TRL gives them to reward functions.
        prompts: One a row.
        trainer_state: The trainer's.
    """

    def __init__(self, columns: Mapping[str, list[Any]], prompts: Sequence[Any], trainer_state: object) -> None:
        self._columns = dict(columns)
        self._values = {**columns, PROMPTS: list(prompts)}
        self._rows = len(prompts)
        self._trainer_state = trainer_state
        self._packed: dict[str, Packed] = {}

    def offer(self, dispatchers: Sequence[Dispatcher], stay: Sequence[str | None]) -> RankOffer:
        """Returns this rank's offer.

        Args:
            stay: Of each dispatcher why it stays, as far as its functions say.
        """
        pairs = zip(dispatchers, stay, strict=True)
        return RankOffer(self._rows, tuple(self._asked(one) if reason is None else reason for one, reason in pairs))

    def send(self, names: frozenset[str]) -> dict[str, list[Any]] | Exception | None:
        """The columns of the rows of all ranks, in their order, or why they can't be read; None but
        on the first rank. Collective."""
        brought = gather_on_first({name: self._packed[name] for name in sorted(names)})
        if brought is None:
            return None
        try:
            return _joined(brought, names)
        except Exception as error:
            return error

    def _asked(self, dispatcher: Dispatcher) -> frozenset[str] | str:
        try:
            sources = dispatcher._submitter.sources(self._columns, self._trainer_state)
        except DataError as error:  # of the batch, whoever scores it
            return str(error)
        names = frozenset(name for kind, name in sources if kind == "dataset" or name == PROMPTS)
        for name in names:
            if name in self._packed:
                continue
            try:
                self._packed[name] = _packed(self._values[name])
            except Exception as error:
                return f"the column {name!r} can't be sent to another process ({type(error).__name__}: {error})"
        return names


def _joined(brought: Sequence[Mapping[str, Packed]], names: frozenset[str]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for of_rank in brought:
        for name, (values, rows) in of_rank.items():
            # an object for each row
            columns[name].extend(pickle.loads(values[place]) for place in rows)
    return columns


def gather_on_first(value: Any) -> list[Any] | None:
    """The values of all ranks, on the first one. Collective."""
    dist: Any = torch.distributed
    values: list[Any] | None = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(value, values, dst=0)
    return values


def _packed(values: Sequence[Any]) -> Packed:
    places: dict[bytes, int] = {}
    rows = [places.setdefault(pickle.dumps(one, pickle.HIGHEST_PROTOCOL), len(places)) for one in values]
    return list(places), rows

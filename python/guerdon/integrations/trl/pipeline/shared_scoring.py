"""The samples of all ranks in one batch, which the first rank scores.

The first rank holds the batch; each rank takes the results of its rows. All ranks meet at the same
points, on the main thread: when all is generated, before training takes groups, and when the batch
is complete. An error on the first rank travels in place of its results, so that no rank waits for
one that has left.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from accelerate.utils import broadcast_object_list, gather_object

from guerdon.errors import ClosedError, DataError, GuerdonError, RegistrationError, RewardFailureError
from guerdon.integrations.trl.pipeline.completion_order import Cells, cells_of, complete_groups, open_groups
from guerdon.integrations.trl.pipeline.rank_offers import gather_on_first
from guerdon.integrations.trl.pipeline.result_slices import slices

if TYPE_CHECKING:
    from guerdon._batch.appending import Appender
    from guerdon._batch.trainer.batches import TrainerBatch
    from guerdon._native import Batch
    from guerdon.dispatcher import Dispatcher
    from guerdon.results import RewardBatch

# Other errors ask for more than a message when they are made anew.
_MADE_OF_A_MESSAGE = frozenset({GuerdonError, DataError, ClosedError, RegistrationError, RewardFailureError})


class SharedScoring:
    """The part of one batch's rewards that the first rank has to do with.

    Args:
        dispatchers: Those that score there.
        rank: This rank.
        ranks: How many there are.
        rows: Rows of each rank.
        size: Completions per prompt.
        arguments: What a trainer gives reward functions beside the batch.
        columns: On the first rank those of all rows, by name, or why they can't be read.
    """

    def __init__(
        self,
        dispatchers: Sequence[Dispatcher],
        rank: int,
        ranks: int,
        rows: int,
        size: int,
        arguments: Mapping[str, Any],
        columns: Mapping[str, list[Any]] | Exception | None,
    ) -> None:
        self.dispatchers = tuple(dispatchers)
        self.arguments = arguments
        self.order: list[int] = []  # groups of this rank that are complete and known here
        self.held: list[Batch] = []  # on the first rank, what it scores
        self.early = 0  # of this rank, rows whose scoring began early; written by `begin_rest`
        self._rank = rank
        self._ranks = ranks
        self._rows = rows
        self._size = size
        self._least = 0  # groups that each rank knows at least; the same on all ranks
        self._cells: dict[tuple[int, int], Cells] = {}  # by dispatcher and group of this rank
        # Of the first rank alone.
        self._columns = columns
        self._started: list[tuple[Dispatcher, TrainerBatch]] = []
        self._appenders: list[Appender] = []
        self._begun: dict[int, bytes] = {}  # fingerprints by row, of all ranks
        self._sent: dict[int, None] = {}  # groups that their rank knows
        self._known = [0] * ranks  # how many each rank knows

    @property
    def scores(self) -> bool:
        """Returns whether this is the rank that scores."""
        return self._rank == 0

    def add(self, rows: Sequence[int], completions: Sequence[Any], ids: Sequence[list[int]]) -> None:
        """Starts the functions on rows of any ranks, counted over all of them.

        Raises:
            DataError: They can't be scored as they are.
        """
        if isinstance(self._columns, Exception):
            raise self._columns
        assert self._columns is not None
        if not self._started:
            self._open()
        columns = {name: [values[row] for row in rows] for name, values in self._columns.items()}
        prompts = columns.pop("prompts", None)
        for appender in self._appenders:
            appender.add(completions, prompts, ids, columns, indices=rows)
        for row, completion, tokens in zip(rows, completions, ids, strict=True):
            self._begun[row] = fingerprint(completion, tokens)

    def begin_rest(
        self, error: Exception | None, completions: Sequence[Any], ids: Sequence[list[int]]
    ) -> Exception | None:
        """Begins the scoring of the remaining rows, once all is generated. Rows that differ from
        the scored ones are scored again, with all others. Collective.

        Args:
            error: What went wrong on this rank before.
            completions: Of this rank's rows, as TRL gives them to reward functions.
            ids: Their tokens.

        Returns:
            The error, or what goes wrong here.
        """
        prints: list[bytes] = []
        try:
            prints = [fingerprint(*one) for one in zip(completions, ids, strict=True)]
        except Exception as refused:  # a rank must not raise before the others are told
            error = error or refused
        reports = gather_object([(error is not None, prints)])
        if any(failed for failed, _ in reports):
            return error
        # rows to send, and by rank those begun early
        decided: tuple[list[int], list[int]] | Exception = ([], [])
        if self.scores:
            try:
                decided = self._compare([one for _, of_rank in reports for one in of_rank])
            except Exception as refused:
                decided = refused
        agreed = _from_first(_plain(decided))
        if isinstance(agreed, Exception):
            return agreed
        rest, early = agreed
        self.early = early[self._rank]
        if rest:
            first = self._rank * self._rows
            own = [row - first for row in rest if first <= row < first + self._rows]
            texts, tokens = [completions[row] for row in own], [list(ids[row]) for row in own]
            brought = gather_on_first(_packed((texts, tokens), f"the completions of rank {self._rank}"))
        if self.scores:
            try:
                if rest:
                    pairs = [pair for one in brought or () for pair in zip(*_opened(one), strict=True)]
                    self.add(rest, [text for text, _ in pairs], [tokens for _, tokens in pairs])
                for appender in self._appenders:
                    appender.finish()
                self._columns = None  # the engine has them
            except Exception as refused:
                return refused
        return None

    def expect(self, groups: int) -> None:
        """Waits until `groups` groups of each rank are complete, counted from the first; `order`
        and `cells` have those of this rank then. Collective.

        Raises:
            ClosedError: A dispatcher was closed meanwhile.
        """
        if self._least >= groups:
            return
        news: list[Any] = []
        if self.scores:
            try:
                news = self._news(groups)
            except Exception as failed:
                news = [failed] * self._ranks
        self._least, new = self._own(news)
        for group, cells in new:
            self.order.append(group)
            self._cells.update({(index, group): one for index, one in enumerate(cells)})

    def cells(self, dispatcher: Dispatcher, group: int) -> Cells:
        """Rewards and statuses of a group that is in `order`."""
        return self._cells[self.dispatchers.index(dispatcher), group]

    def result(self, dispatcher: Dispatcher) -> RewardBatch:
        """The result of this rank's rows, once the batch is complete. Collective.

        Raises:
            ClosedError: The dispatcher was closed meanwhile.
        """
        parts: list[Any] = []
        if self.scores:
            try:
                batch = dict(self._started)[dispatcher]
                parts = [*slices(dispatcher._trainer_batches.whole(batch), self._ranks)]
            except Exception as failed:
                parts = [failed] * self._ranks
        found: RewardBatch = self._own(parts)
        return found

    def open_groups(self) -> int:
        """Groups that are not complete now, of all ranks; 0 where another rank knows."""
        return open_groups(self._started, self._size)

    def _open(self) -> None:
        samples = self._rows * self._ranks
        for dispatcher in self.dispatchers:
            batches = dispatcher._trainer_batches
            batch, appender = batches.open(self.arguments, samples, self.held, of_all_ranks=True)
            self._started.append((dispatcher, batch))
            self._appenders.append(appender)

    def _compare(self, prints: Sequence[bytes]) -> tuple[list[int], list[int]]:
        """The rows whose scoring is still to begin, and of each rank how many began early."""
        if any(prints[row] != begun for row, begun in self._begun.items()):
            for _, batch in self._started:
                batch.pending.cancel()
            self._started, self._appenders, self._begun = [], [], {}
        early = [0] * self._ranks
        for row in self._begun:
            early[row // self._rows] += 1
        return [row for row in range(len(prints)) if row not in self._begun], early

    def _news(self, groups: int) -> list[Any]:
        """Returns by rank the least number of groups that each rank has, and those new to it, as
        ``(group of the rank, cells by dispatcher)``. Waits until that are `groups`."""
        news: list[list[Any]] = [[] for _ in range(self._ranks)]
        each = self._rows // self._size
        coming = complete_groups(self._started, self._sent)
        while min(self._known) < groups:
            for group in next(coming):
                cells = [cells_of(*pair, group) for pair in self._started]
                self._sent[group] = None
                self._known[group // each] += 1
                news[group // each].append((group % each, cells))
        return [(min(self._known), new) for new in news]

    def _own(self, parts: Sequence[Any]) -> Any:
        """This rank's part of what the first rank has for all; an error there is raised on all."""
        try:
            sent = [pickle.dumps(_plain(part), pickle.HIGHEST_PROTOCOL) for part in parts[1:]]
        except Exception as error:
            parts = [_unsent("what rank 0 scored", error)] * self._ranks
            sent = [pickle.dumps(part) for part in parts[1:]]
        received = _from_first(sent)
        own = parts[0] if self.scores else pickle.loads(received[self._rank - 1])
        if isinstance(own, Exception):
            raise own
        return own


def fingerprint(completion: Any, ids: Sequence[int]) -> bytes:
    """Returns a fingerprint by which ranks check that they have the same completion."""
    return hashlib.blake2b(repr((completion, list(ids))).encode(errors="surrogatepass"), digest_size=16).digest()


def _plain(part: Any) -> Any:
    """An error as every rank can read it."""
    if isinstance(part, Exception):
        return (type(part) if type(part) in _MADE_OF_A_MESSAGE else GuerdonError)(str(part))
    return part


def _packed(value: Any, what: str) -> bytes:
    """Bytes for a collective, in which no rank may raise: of an error where there are none."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        return pickle.dumps(_unsent(what, error))


def _opened(packed: bytes) -> Any:
    value = pickle.loads(packed)
    if isinstance(value, Exception):
        raise value
    return value


def _unsent(what: str, error: Exception) -> DataError:
    return DataError(f"{what} can't be sent to another process ({type(error).__name__}: {error})")


def _from_first(value: Any) -> Any:
    """The first rank's value. Collective."""
    box = [value]
    broadcast_object_list(box, from_process=0)
    return box[0]

"""Completions of all ranks, passed on as they end while a vLLM server generates the rest.

TRL asks the server on rank 0, and broadcasts all completions when the last is there. Rank 0 passes
each one on beside TRL's collectives, in the store through which the ranks have found each other,
and a thread of its rank reads it. Nothing depends on the feed: rows that a rank has not seen by the
broadcast are scored from then on.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from torch.distributed import PrefixStore, Store, distributed_c10d

from guerdon._system.warning import warn

OnComplete = Callable[[list[int], list[list[int]]], None]

_POLL_S: Final = 0.02  # between looks for the next completion
_feeds = itertools.count()  # alike on all ranks, which make their trainers together


class CompletionFeed:
    """The feed of one rank, in a store of all ranks; by default that of their process group."""

    def __init__(self, rank: int, store: Store | None = None) -> None:
        self._store = PrefixStore(f"guerdon/{next(_feeds)}", store or distributed_c10d._get_default_store())
        self._rank = rank
        self._generation = 0  # counts alike on all ranks
        self._sent: Counter[int] = Counter()  # by rank, messages of this generation
        self._broken = False

    def begin(self) -> None:
        """Begins to send the completions of one generation, on rank 0."""
        self._generation += 1
        self._sent.clear()

    def send(self, rows: Sequence[int], ids: Sequence[list[int]], count: int) -> None:
        """Passes on the rows of other ranks.

        Args:
            rows: Counted over all ranks.
            count: Rows of each rank.
        """
        of_rank: dict[int, tuple[list[int], list[list[int]]]] = {}
        for row, tokens in zip(rows, ids, strict=True):
            places, texts = of_rank.setdefault(row // count, ([], []))
            places.append(row % count)
            texts.append(tokens)
        of_rank.pop(self._rank, None)
        for rank, message in of_rank.items():
            if not self._broken:
                self._put(f"{self._generation}/{rank}/{self._sent[rank]}", message)
                self._sent[rank] += 1

    @contextmanager
    def receiving(self, on_complete: OnComplete) -> Iterator[None]:
        """One generation, on another rank. A thread calls `on_complete` with rows of this rank and
        their token ids, until the generation has ended and all are read."""
        self._generation += 1
        over = threading.Event()
        reader = threading.Thread(target=self._read, args=(over, on_complete), name="guerdon-feed", daemon=True)
        reader.start()
        try:
            yield
        finally:
            over.set()
            reader.join()

    def _put(self, key: str, message: object) -> None:
        try:
            self._store.set(key, json.dumps(message))
        except RuntimeError as error:
            self._broken = True
            warn(
                f"overlap: rank 0 can't pass completions on to other ranks ({error}), whose scoring begins when all are "
                "generated. (Said once.)"
            )

    def _read(self, over: threading.Event, on_complete: OnComplete) -> None:
        with suppress(RuntimeError):  # rank 0 is gone, or says why
            for number in itertools.count():
                key = f"{self._generation}/{self._rank}/{number}"
                ended = False
                while not self._store.check([key]):
                    if ended:
                        return
                    ended = over.wait(_POLL_S)
                message = json.loads(self._store.get(key))
                self._store.delete_key(key)
                on_complete(*message)

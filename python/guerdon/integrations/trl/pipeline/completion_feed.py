"""Completions of all ranks, passed on as they end while a vLLM server generates the rest.

TRL asks the server on rank 0, and broadcasts all completions when the last is there. Rank 0 passes
each one on beside TRL's collectives, and a thread of its rank reads it. Nothing depends on the
feed: rows that a rank has not seen by the broadcast are scored from then on.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Final

from accelerate.utils import broadcast_object_list, gather_object
from torch.distributed import TCPStore

from guerdon._system.warning import warn

OnComplete = Callable[[list[int], list[list[int]]], None]

_CONNECT: Final = timedelta(seconds=60)
_GENERATION: Final = timedelta(days=7)  # a wait for the next completion ends with rank 0
_LAST_S: Final = 5.0  # for the message that follows the last completion
_WITHOUT: Final = (
    "overlap: rank 0 can't pass completions on to other ranks ({}), whose scoring begins when all are generated"
)


class CompletionFeed:
    """The feed of one rank.

    Args:
        store: Of all ranks; rank 0 serves it.
        rank: This rank.
    """

    def __init__(self, store: TCPStore, rank: int) -> None:
        store.set_timeout(_GENERATION)
        self._store = store
        self._rank = rank
        self._generation = 0  # counts alike on all ranks
        self._sent: dict[int, int] = {}  # by rank, messages of this generation
        self._broken = False
        self._reader: threading.Thread | None = None

    @contextmanager
    def sending(self, ranks: int) -> Iterator[None]:
        """One generation, on rank 0."""
        self._generation += 1
        self._sent = dict.fromkeys(range(1, ranks), 0)
        try:
            yield
        finally:
            for rank in self._sent:
                self._put(rank, None)

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
        for rank in of_rank.keys() & self._sent.keys():
            self._put(rank, of_rank[rank])

    @contextmanager
    def receiving(self, on_complete: OnComplete) -> Iterator[None]:
        """One generation, on another rank. A thread calls `on_complete` with rows of this rank and
        their token ids, until the generation ends."""
        self._generation += 1
        if self._reader is not None and self._reader.is_alive():
            self._break("its last message did not come")
            yield
            return
        lock, over = threading.Lock(), threading.Event()

        def while_it_lasts(rows: list[int], ids: list[list[int]]) -> None:
            with lock:
                if not over.is_set():
                    on_complete(rows, ids)

        self._reader = threading.Thread(
            target=self._read, args=(self._generation, while_it_lasts), name="guerdon-feed", daemon=True
        )
        self._reader.start()
        try:
            yield
            self._reader.join(_LAST_S)
        finally:
            with lock:
                over.set()

    def _put(self, rank: int, message: Any) -> None:
        number, self._sent[rank] = self._sent[rank], self._sent[rank] + 1
        if self._broken:
            return
        try:
            self._store.set(f"{self._generation}/{rank}/{number}", json.dumps(message))
        except RuntimeError as error:
            self._break(error)

    def _break(self, why: object) -> None:
        if not self._broken:
            self._broken = True
            warn(f"{_WITHOUT.format(why)}. (Said once.)")

    def _read(self, generation: int, on_complete: OnComplete) -> None:
        with suppress(RuntimeError):  # rank 0 is gone, or says why
            for number in itertools.count():
                key = f"{generation}/{self._rank}/{number}"
                message = json.loads(self._store.get(key))
                self._store.delete_key(key)
                if message is None:
                    return
                on_complete(*message)


def connect_ranks(accelerator: Any) -> CompletionFeed | None:
    """A feed between all ranks; None, with a warning, if a rank can't reach rank 0. Collective."""
    rank = accelerator.process_index
    host = os.environ.get("MASTER_ADDR") or socket.gethostname()
    store, error = _store(host, 0, serves=True) if rank == 0 else (None, None)
    place: list[Any] = [host, 0 if store is None else store.port]
    broadcast_object_list(place, from_process=0)
    if rank and place[1]:
        store, error = _store(*place, serves=False)
    errors = [f"rank {one}: {text}" for one, text in enumerate(gather_object([error])) if text is not None]
    if errors and rank == 0:
        warn(f"{_WITHOUT.format(errors[0])}. Let ranks connect to each other on any port.")
    return None if errors or store is None else CompletionFeed(store, rank)


def _store(host: str, port: int, *, serves: bool) -> tuple[TCPStore | None, str | None]:
    try:
        return TCPStore(host, port, is_master=serves, timeout=_CONNECT, wait_for_workers=False), None
    except RuntimeError as error:
        return None, str(error)

"""Completions that rank 0 passes on to other ranks."""

from __future__ import annotations

import itertools
import queue
from typing import Any

import pytest

pytest.importorskip("trl")

from torch.distributed import HashStore, TCPStore

from guerdon import GuerdonWarning
from guerdon.integrations.trl.pipeline import completion_feed
from guerdon.integrations.trl.pipeline.completion_feed import CompletionFeed


def test_a_completion_reaches_its_rank_while_others_are_generated() -> None:
    # The other backend keeps a pipe open as long as the process lives.
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False, use_libuv=False)
    connected = TCPStore("localhost", store.port, is_master=False, wait_for_workers=False, use_libuv=False)
    with pytest.MonkeyPatch.context() as patch:
        feeds = []
        for rank, one in enumerate((store, connected)):
            patch.setattr(completion_feed, "_feeds", itertools.count())  # two processes count alike
            feeds.append(CompletionFeed(rank, one))
    asking, other = feeds
    came: queue.Queue[Any] = queue.Queue()
    for _ in range(2):
        asking.begin()
        with other.receiving(lambda rows, ids: came.put((rows, ids))):
            asking.send([1, 2, 3], [[7], [8, 9], []], count=2)
            assert came.get(timeout=60) == ([0, 1], [[8, 9], []])
            asking.send([0, 3], [[7], [9]], count=2)
        assert came.get_nowait() == ([1], [[9]])  # it was there when the generation ended
        assert came.empty()
    assert store.num_keys() <= 1  # one is the store's own


class Broken:
    def set(self, *_: Any) -> None:
        raise RuntimeError("connection reset")


def test_a_feed_that_breaks_says_so_once_and_ends_nothing() -> None:
    feed = CompletionFeed(0, HashStore())
    feed._store = Broken()  # type: ignore[assignment]
    feed.begin()
    with pytest.warns(GuerdonWarning, match=r"can't pass completions on.*connection reset"):
        feed.send([4], [[1]], count=4)
    feed.send([5], [[1]], count=4)  # warnings are errors in tests

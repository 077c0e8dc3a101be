"""The rewards of one generated batch, as a trainer takes them."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("accelerate")

from guerdon import Dispatcher, reward
from guerdon._batch import pending as pending_batch
from guerdon._batch.pending import PendingBatch
from guerdon.integrations.trl.pipeline import scoring


def test_a_group_that_completes_between_two_looks_is_not_slept_over(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()

    def patient(text: str) -> float:
        may_end.wait(120)
        return float(len(text))

    look = PendingBatch.completed
    looks = []

    def completed(pending: PendingBatch) -> list[int]:
        seen = look(pending)
        looks.append(seen)
        if len(looks) == 1:  # all ends just behind the first look
            may_end.set()
            pending.wait()
        return seen

    with Dispatcher([reward(patient, lane="thread")], num_generations=2) as dispatcher:
        scored = scoring.BatchScoring(dispatcher.reward_funcs, 2, 2)
        scored.begin({"completions": ["a", "bcd"]})
        monkeypatch.setattr(pending_batch, "_SLICE_S", 60.0)
        monkeypatch.setattr(PendingBatch, "completed", completed)
        taken: list[int] = []
        taker = threading.Thread(target=lambda: taken.append(scored.next_group()))
        taker.start()
        taker.join(20)
        late = taker.is_alive()
        taker.join()
        assert taken == [0]
        assert not late
        assert [column() for column in scored.columns([0, 1])] == [[1.0, 3.0]]

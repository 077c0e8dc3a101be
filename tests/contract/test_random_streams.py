"""Scripted streams through the whole engine: what `test_random_batches` says of batches, of batches
that grow.

Whatever is added in whatever order and pieces, and wherever the groups are taken: each group is
delivered once, complete, and the array equals a serial loop's bit for bit; what a quorum or a
cancel cut short says so.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon import ClosedError, Dispatcher, Group, OpenBatch, PendingBatch, Status
from tests.contract.scripted_batches import DEADLY, Batch, check, examples, scripted, scripts
from tests.contract.scripted_functions import EVERY_LANE, awaited, awaited_group, killable, threaded
from tests.contract.scripts import ran

CUTTABLE = [killable, threaded, awaited]
WITH_GROUPS = [*CUTTABLE, awaited_group]


@pytest.fixture(scope="module")
def cuttable() -> Iterator[Dispatcher]:
    with Dispatcher(CUTTABLE, workers=2, max_failure_rate=1.0) as made:
        yield made


@pytest.fixture(scope="module")
def with_groups() -> Iterator[Dispatcher]:
    with Dispatcher(WITH_GROUPS, workers=2, max_failure_rate=1.0) as made:
        yield made


class Stream:
    """A scripted batch that is given bit by bit."""

    def __init__(self, batch: Batch, seed: int) -> None:
        self.batch = batch
        self._chance = np.random.default_rng(seed)

    def pieces(self) -> list[list[int]]:
        """All samples, in a random order and in random pieces."""
        order = self._chance.permutation(len(self.batch.texts))
        if self._chance.random() < 0.3:
            order.sort()
        cuts = np.sort(self._chance.integers(0, len(order) + 1, self._chance.integers(0, len(order) + 1)))
        return [piece.tolist() for piece in np.split(order, cuts) if len(piece)]

    def columns(self, samples: Sequence[int]) -> dict[str, Any]:
        batch = self.batch
        cells = {
            f"{spec.name}_cell": [cells[sample] for sample in samples]
            for spec, cells in zip(batch.specs, batch.cells, strict=True)
        }
        return {"completions": [batch.texts[sample] for sample in samples], "prompts": ["p"] * len(samples), **cells}

    def open(self, dispatcher: Dispatcher, **terms: Any) -> OpenBatch:
        return dispatcher.stream(num_generations=self.batch.size, **terms)

    def feed(self, pending: OpenBatch, producers: int = 1) -> None:
        """Adds all samples, each piece from one of some threads."""
        pieces = self.pieces()

        def produce(number: int) -> None:
            for piece in pieces[number::producers]:
                try:
                    assert pending.add(**self.columns(piece), indices=piece) == piece
                except ClosedError:
                    return  # it was cancelled

        threads = [threading.Thread(target=produce, args=(number,)) for number in range(producers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(200)


def consumed(pending: PendingBatch) -> tuple[threading.Thread, list[Group]]:
    """A consumer elsewhere, and what it saw."""
    seen: list[Group] = []
    thread = threading.Thread(target=lambda: seen.extend(pending.groups(timeout=200)))
    thread.start()
    return thread, seen


@pytest.mark.fault(
    "open batches, in any order and pieces, with any mix of failures and deaths (searched)",
    sees="what a serial loop gives; each cell and each group once",
)
@examples(12)
@given(script=scripts(EVERY_LANE, DEADLY, most=8), seed=st.integers(0, 2**32), producers=st.integers(1, 3))
def test_streams_equal_a_serial_loop(
    every_lane: Dispatcher, folder: Path, script: Any, seed: int, producers: int
) -> None:
    stream = Stream(scripted(EVERY_LANE, script, folder), seed)
    pending = stream.open(every_lane)
    thread, beside = consumed(pending)
    stream.feed(pending, producers)
    pending.finish()
    groups = list(pending.groups(timeout=200))
    thread.join(200)
    assert [group.index for group in beside] == [group.index for group in groups]
    stream.batch.check(pending.result(timeout=200), groups)
    os.unlink(stream.batch.log)


@examples(12)
@given(
    script=scripts(WITH_GROUPS, DEADLY, most=8),
    seed=st.integers(0, 2**32),
    wanted=st.integers(1, 6),
    grouped=st.booleans(),
    is_open=st.booleans(),
)
def test_results_equal_a_serial_loop_if_a_quorum_cuts_nothing(
    cuttable: Dispatcher,
    with_groups: Dispatcher,
    folder: Path,
    script: Any,
    seed: int,
    wanted: int,
    grouped: bool,
    is_open: bool,
) -> None:
    functions, dispatcher = (WITH_GROUPS, with_groups) if grouped else (CUTTABLE, cuttable)
    prompts, size, changes = script
    wanted = min(wanted, size)
    changes = [change for change in changes if change[0] < len(functions)]
    stream = Stream(scripted(functions, (prompts, size, changes), folder), seed)
    batch = stream.batch
    if is_open:
        pending = stream.open(dispatcher, group_quorum=wanted)
        thread, beside = consumed(pending)
        stream.feed(pending, 2)
        pending.finish()
    else:
        samples = range(len(batch.texts))
        pending = dispatcher.submit(**stream.columns(samples), num_generations=size, group_quorum=wanted)
        thread, beside = consumed(pending)
    result = pending.result(timeout=200)
    thread.join(200)
    batch.check_groups(result, beside)
    batch.check_failures(result)
    batch.check_cut(result, Status.CANCELLED, "quorum", strict=True)
    status = result.status.reshape(len(batch.texts), -1)
    cut = status == Status.CANCELLED
    assert all(spec.shape == "sample" for spec, some in zip(batch.specs, cut.any(axis=0), strict=True) if some)
    left = cut.any(axis=1)
    assert (size - left.reshape(-1, size).sum(axis=1) >= wanted).all()
    started, attempts = ran(batch.log), result.attempts.reshape(len(batch.texts), -1)
    assert all(started[function, sample] <= attempts[sample, function] for function, sample in started)


@examples(10)
@given(
    script=scripts(EVERY_LANE, DEADLY, most=8),
    seed=st.integers(0, 2**32),
    when=st.floats(0, 0.06),
)
def test_a_stream_that_is_cancelled_at_any_moment(
    every_lane: Dispatcher, folder: Path, script: Any, seed: int, when: float
) -> None:
    stream = Stream(scripted(EVERY_LANE, script, folder), seed)
    batch = stream.batch
    pending = stream.open(every_lane)
    thread, beside = consumed(pending)
    timer = threading.Timer(when, pending.cancel)
    timer.start()
    stream.feed(pending, 2)
    timer.join()
    result = pending.result(timeout=200)
    thread.join(200)
    assert sorted(group.index for group in beside) == list(range(pending.num_groups))
    batch.check_cut(result, Status.CANCELLED, "cancelled by the caller")
    check(every_lane, Batch(EVERY_LANE, 2, 3, folder / "after"))

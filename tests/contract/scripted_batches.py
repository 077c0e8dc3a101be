"""Scripted batches: what each call is to do, what must come of it, and how that is looked for;
`EVERY_LANE` runs them."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from guerdon import Dispatcher, Group, PendingBatch, RewardBatch, Status
from guerdon._functions.build import spec_of
from guerdon._functions.spec import FunctionSpec
from tests.contract.scripts import FAILS, Cell, End, foretell, ran

QUIET = ("raise", "exit", "interrupt")
DEADLY = (*QUIET, "die", "kill")
NUMBERS = itertools.count()
DELAYS = (0.001, 0.005, 0.03)  # the last is long enough for what waits behind it to be taken back


def examples(percent: int) -> settings:
    """Part of what the profile asks for (100, if none was chosen)."""
    return settings(max_examples=max(1, settings().max_examples * percent // 100))


class Batch:
    """A scripted batch for a list of functions."""

    def __init__(self, functions: Sequence[Any], prompts: int, size: int, log: Path) -> None:
        self.specs: list[FunctionSpec] = [spec_of(function) for function in functions]
        self.size = size
        self.texts = ["x" * (sample * 7 % 50) for sample in range(prompts * size)]
        self.log = str(log)
        log.touch()
        samples = range(prompts * size)
        self.cells = [[Cell(self.log, number, sample) for sample in samples] for number in range(len(self.specs))]

    def put(self, function: int, sample: int, **changes: Any) -> None:
        self.cells[function][sample] = self.cells[function][sample]._replace(**changes)

    def first(self, function: int, sample: int) -> int:
        """The first sample of the call that `sample` belongs to."""
        return {"sample": sample, "group": sample // self.size * self.size, "batch": 0}[self.specs[function].shape]

    def columns(self, samples: Sequence[int]) -> dict[str, Any]:
        cells = {
            f"{spec.name}_cell": [cells[sample] for sample in samples]
            for spec, cells in zip(self.specs, self.cells, strict=True)
        }
        return {"prompts": ["p"] * len(samples), "completions": [self.texts[sample] for sample in samples], **cells}

    def submit(self, dispatcher: Dispatcher, **terms: Any) -> PendingBatch:
        return dispatcher.submit(**self.columns(range(len(self.texts))), num_generations=self.size, **terms)

    def stream(self, dispatcher: Dispatcher, seed: int, producers: int = 1, **terms: Any) -> PendingBatch:
        """An open batch to which threads add all samples, in a random order and in random
        pieces."""
        pending = dispatcher.stream(num_generations=self.size, **terms)
        chance = np.random.default_rng(seed)
        order = chance.permutation(len(self.texts))
        if chance.random() < 0.3:
            order.sort()
        cuts = np.sort(chance.integers(0, len(order) + 1, chance.integers(0, len(order) + 1)))
        pieces = [piece.tolist() for piece in np.split(order, cuts) if len(piece)]

        def produce(number: int) -> None:
            for piece in pieces[number::producers]:
                assert pending.add(**self.columns(piece), indices=piece) == piece

        def feed() -> None:
            threads = [threading.Thread(target=produce, args=(number,)) for number in range(producers)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(200)
            pending.finish()

        threading.Thread(target=feed).start()
        return pending

    def foretold(self, function: int, sample: int) -> End:
        cells, retries = self.cells[function], self.specs[function].policy.retries
        return foretell(self.texts[sample], cells[sample], cells[self.first(function, sample)], retries)

    def check(self, result: RewardBatch, groups: Sequence[Group]) -> None:
        rewards = np.full(result.rewards.shape, np.nan, np.float32).reshape(len(self.texts), -1)
        status, attempts = np.zeros_like(rewards, np.uint8), np.zeros_like(rewards, np.uint16)
        for function in range(len(self.specs)):
            for sample in range(len(self.texts)):
                end = self.foretold(function, sample)
                status[sample, function], rewards[sample, function], attempts[sample, function] = end
        np.testing.assert_array_equal(result.status, status.reshape(result.status.shape))
        np.testing.assert_array_equal(result.attempts, attempts.reshape(result.status.shape))
        self.check_rewards(result, rewards)
        self.check_failures(result)
        self.check_groups(result, groups)
        started = ran(self.log)
        for function in range(len(self.specs)):
            for sample in range(len(self.texts)):
                if self.first(function, sample) == sample:
                    assert started.pop((function, sample), 0) == attempts[sample, function], (function, sample)
        assert not started

    def check_rewards(self, result: RewardBatch, rewards: Any) -> None:
        """Bit for bit: NaN where there is none, and no other number that is merely close."""
        expected = rewards.reshape(result.rewards.shape)
        np.testing.assert_array_equal(np.isnan(result.rewards), np.isnan(expected))
        there = ~np.isnan(expected)
        np.testing.assert_array_equal(result.rewards[there].view(np.uint32), expected[there].view(np.uint32))

    def check_failures(self, result: RewardBatch) -> None:
        failures = {(failure.function, failure.sample): failure for failure in result.failures()}
        assert len(failures) == int((result.status >= 2).sum())
        for (name, sample), failure in failures.items():
            assert failure.reason, (name, sample)
            assert f"'{name}' on sample {sample}: {failure.status.label}" in str(failure)

    def check_cut(self, result: RewardBatch, status: Status, reason: str, *, strict: bool = False) -> None:
        """Each cell has its own outcome, or this one, or that of an attempt after which there was
        no time for another; `strict`: not the last."""
        reasons = {(failure.function, failure.sample): failure.reason for failure in result.failures()}
        found, rewards = (array.reshape(-1, len(self.specs)) for array in (result.status, result.rewards))
        attempts = result.attempts.reshape(found.shape)
        for function, spec in enumerate(self.specs):
            for sample in range(len(found)):
                got = found[sample, function]
                if got == status and reasons[spec.name, sample] == reason:
                    assert np.isnan(rewards[sample, function])
                    continue
                moves, attempt = self.cells[function][self.first(function, sample)].moves, attempts[sample, function]
                if not strict and attempt <= len(moves) and got == FAILS[moves[attempt - 1]]:
                    continue
                expected = self.foretold(function, sample)
                assert got == expected.status
                np.testing.assert_array_equal(rewards[sample, function], np.float32(expected.value))

    def check_groups(self, result: RewardBatch, groups: Sequence[Group]) -> None:
        assert sorted(group.index for group in groups) == list(range(len(self.texts) // self.size))
        for group in groups:
            np.testing.assert_array_equal(group.rewards, result.rewards[group.index])
            np.testing.assert_array_equal(group.status, result.status[group.index])

    def run(self, pending: PendingBatch) -> tuple[RewardBatch, list[Group]]:
        """The result, and the groups as two iterations at once saw them."""
        beside: list[Group] = []
        thread = threading.Thread(target=lambda: beside.extend(pending.groups(timeout=200)))
        thread.start()
        groups = list(pending.groups(timeout=200))
        thread.join(200)
        assert [group.index for group in beside] == [group.index for group in groups]
        return pending.result(timeout=200), groups


@st.composite
def scripts(draw: st.DrawFn, functions: Sequence[Any], moves: Sequence[str], most: int) -> Any:
    """(prompts, group size, changes): a few cells that do something; all others give their number
    at once."""
    prompts, size = draw(st.integers(1, 8)), draw(st.integers(1, 6))
    specs = [spec_of(function) for function in functions]

    def change(function: int) -> st.SearchStrategy[Any]:
        allowed = [move for move in moves if specs[function].lane == "process" or move in (*QUIET, "hang")]
        steps = st.lists(st.sampled_from(allowed), max_size=3).map(tuple)
        return st.tuples(
            st.just(function),
            st.integers(0, prompts * size - 1),
            st.fixed_dictionaries(
                {},
                optional={
                    "moves": steps,
                    "gives": st.sampled_from(["none", "text"]),
                    "delay": st.sampled_from(DELAYS),
                },
            ),
        )

    changes = draw(st.lists(st.integers(0, len(specs) - 1).flatmap(change), max_size=most))
    return prompts, size, changes


def scripted(functions: Sequence[Any], script: Any, folder: Path) -> Batch:
    prompts, size, changes = script
    batch = Batch(functions, prompts, size, folder / f"log{next(NUMBERS)}")
    for function, sample, change in changes:
        batch.put(function, sample, **change)
    return batch


def check(dispatcher: Dispatcher, batch: Batch, seed: int | None = None, producers: int = 1) -> None:
    """Scores a batch at once, or with a seed as a stream."""
    pending = batch.submit(dispatcher) if seed is None else batch.stream(dispatcher, seed, producers)
    try:
        batch.check(*batch.run(pending))
    finally:
        os.unlink(batch.log)

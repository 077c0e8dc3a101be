"""Chains of functions that ``run_if`` makes wait for each other, over all lanes, with failures,
retries, deaths and cuts: invariants 1, 2 and 3 of docs/internals/promises.md.

A call is made where a serial loop makes it, once an attempt, and nowhere else.
"""

from __future__ import annotations

import itertools
import math
import operator
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon import ClosedError, Dispatcher, RewardBatch, Status
from guerdon._functions.build import spec_of
from tests.contract import gated_functions as functions
from tests.contract.scripted_batches import DEADLY, QUIET, examples
from tests.contract.scripts import Cell, End, foretell, ran
from tests.http.server import serving

NAMES = ["worker", "threaded", "awaited", "served", "shaped", "gathered"]
CONDITIONS: dict[str, dict[str, list[str]]] = {
    "worker": {},
    "threaded": {"worker": [">= 1"]},
    "awaited": {"threaded": ["!= 1"], "worker": ["< 3"]},
    "served": {"awaited": ["> 0"]},
    "shaped": {"served": ["<= 1", ">= -1"]},
    "gathered": {"shaped": ["> 1"]},
}
OTHERWISE = {"threaded": 2.0, "served": -1.0}
RETRIES = {"worker": 1, "threaded": 2, "awaited": 1}
OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "!=": operator.ne}
COUNT = itertools.count()
# Reasons of cells that something outside their call has ended.
CUT = ("batch timeout", "group timeout", "quorum", "cancelled by the caller")


def answer(path: str, body: dict[str, Any]) -> Any:
    cell = Cell(*body["served_cell"])
    time.sleep(cell.delay)
    return (400, {"error": "as planned"}) if cell.moves else {"score": functions.given(cell)}


@pytest.fixture(scope="module")
def chain() -> Iterator[Dispatcher]:
    with serving(answer) as server:
        # Sources stand behind what waits for them: the order in the list is that of the cells.
        made = {spec_of(one).name: one for one in (functions.worker, functions.threaded, functions.awaited)}
        made.update(served=functions.service(server.url), shaped=functions.shaped, gathered=functions.gathered)
        with Dispatcher([made[name] for name in reversed(NAMES)], workers=2, max_failure_rate=1.0) as dispatcher:
            yield dispatcher


class Plan(NamedTuple):
    """What the calls of a batch do."""

    size: int
    cells: dict[str, list[Cell]]
    log: Path

    @property
    def samples(self) -> int:
        return len(self.cells["worker"])

    def columns(self, rows: slice = slice(None)) -> dict[str, Any]:
        cells = {f"{name}_cell": column[rows] for name, column in self.cells.items()}
        return {"prompts": ["p"] * len(self.cells["worker"][rows]), "completions": self.texts[rows], **cells}

    @property
    def texts(self) -> list[str]:
        return ["x" * (sample % 50) for sample in range(self.samples)]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    prompts, size = draw(st.integers(1, 5)), draw(st.integers(1, 4))

    def cell(name: str, number: int, sample: int) -> Cell:
        moves = DEADLY if name in ("worker", "shaped") else QUIET
        steps: tuple[str, ...] = ()
        if name != "gathered" and draw(st.integers(0, 5)) == 0:
            steps = tuple(draw(st.lists(st.sampled_from(moves), max_size=3)))
        gives = draw(st.sampled_from(["0", "1", "1", "2", "3", "none", "text"]))
        return Cell("", number, sample, steps, gives, draw(st.sampled_from([0.0, 0.0, 0.002, 0.01])))

    cells = {
        name: [cell(name, number, sample) for sample in range(prompts * size)] for number, name in enumerate(NAMES)
    }
    return Plan(size, cells, Path())


def placed(plan: Plan, folder: Path) -> Plan:
    """Returns the plan with a new log: abandoned calls may write to the last one for a while."""
    log = folder / f"chain{next(COUNT)}"
    log.touch()
    cells = {name: [cell._replace(log=str(log)) for cell in column] for name, column in plan.cells.items()}
    return plan._replace(cells=cells, log=log)


def is_open(name: str, shown: dict[str, float]) -> bool:
    """Whether all conditions hold for what the sources show."""
    return all(
        OPERATORS[text.split()[0]](shown[source], float(text.split()[1])) and not math.isnan(shown[source])
        for source, texts in CONDITIONS[name].items()
        for text in texts
    )


def serial(plan: Plan) -> list[dict[str, End]]:
    """What a serial loop makes of each sample."""
    ends: list[dict[str, End]] = [{} for _ in range(plan.samples)]
    for name in NAMES:
        for sample, row in enumerate(ends):
            shown = {source: end.value for source, end in row.items()}
            if not is_open(name, shown):
                row[name] = End(Status.SKIPPED, OTHERWISE.get(name, math.nan), 0)
            else:
                row[name] = made(name, plan.cells[name][sample])
        if name == "shaped":
            shape(plan, ends)
    return ends


def made(name: str, cell: Cell) -> End:
    """A call that is made."""
    if name == "served" and cell.moves:
        return End(Status.ERROR, math.nan, 1)
    number = cell.gives not in ("none", "text")
    script = cell._replace(gives="number" if number else cell.gives, moves=() if name == "served" else cell.moves)
    end = foretell("", script, script, RETRIES.get(name, 0))
    return end._replace(value=float(cell.gives)) if end.status == Status.OK else end


def shape(plan: Plan, ends: list[dict[str, End]]) -> None:
    """What ``finish_group`` of the fifth function adds."""
    for first in range(0, plan.samples, plan.size):
        group = ends[first : first + plan.size]
        there = sum(row["shaped"].status == Status.OK for row in group)
        for row in group:
            if row["shaped"].status == Status.OK:
                row["shaped"] = row["shaped"]._replace(value=row["shaped"].value + there)


def check_whole(plan: Plan, result: RewardBatch) -> None:
    """Each cell is the serial loop's, and each attempt was made once."""
    status, rewards, attempts = by_name(result)
    started = ran(str(plan.log))
    for sample, row in enumerate(serial(plan)):
        for number, name in enumerate(NAMES):
            at = f"{name} on sample {sample}"
            assert status[name][sample] == row[name].status, at
            np.testing.assert_array_equal(rewards[name][sample], np.float32(row[name].value), at)
            if row[name].attempts:
                assert attempts[name][sample] == row[name].attempts, at
            if name != "served":
                assert started.pop((number, sample), 0) == row[name].attempts, at
    assert not started
    check_counts(result)


def check_cut(plan: Plan, result: RewardBatch) -> None:
    """Each cell is the serial loop's, was cut, or waits for one that was; no call was made whose
    gate was closed."""
    status, rewards, attempts = by_name(result)
    started = ran(str(plan.log))
    reasons = {(failure.function, failure.sample): failure.reason for failure in result.failures()}
    for sample, row in enumerate(serial(plan)[: len(result)]):
        shown = {name: float(rewards[name][sample]) for name in NAMES}
        cut = False
        for number, name in enumerate(NAMES):
            at = f"{name} on sample {sample}: {Status(int(status[name][sample])).label}"
            has_opened = is_open(name, shown)
            here = reasons.get((name, sample)) in CUT
            got = status[name][sample]
            assert got != Status.SKIPPED or not has_opened, at
            assert not started.get((number, sample)) or has_opened, at
            assert got not in (Status.OK, Status.ABSTAINED) or has_opened, at
            assert started.get((number, sample), 0) <= max(1, attempts[name][sample]), at
            # A failed attempt counts where there was no time for another.
            cut |= here or (bool(plan.cells[name][sample].moves) and got != row[name].status)
            # What finish_group adds depends on the whole group.
            if not cut and name not in ("shaped", "gathered"):
                assert got == row[name].status, at
                np.testing.assert_array_equal(rewards[name][sample], np.float32(row[name].value), at)
    check_counts(result)


def by_name(result: RewardBatch) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    status, rewards, attempts = (
        dict(zip(result.functions, array.reshape(-1, len(NAMES)).T, strict=True))
        for array in (result.status, result.rewards, result.attempts)
    )
    return status, rewards, attempts


def check_counts(result: RewardBatch) -> None:
    """A skipped cell is in no list of failures, and in that of skipped ones."""
    skipped = {
        name: tuple(np.flatnonzero(column == Status.SKIPPED).tolist()) for name, column in by_name(result)[0].items()
    }
    assert result.skipped == {name: rows for name, rows in skipped.items() if rows}
    failed = sum(int(Status(int(state)).failed) for state in result.status.ravel())
    assert len(result.failures()) == failed


@pytest.mark.fault(
    "any mix of failures, retries and deaths in chains of run_if over all lanes (searched)",
    sees="what a serial loop gives; no call behind a condition that does not hold, each cell once",
)
@examples(25)
@given(plan=plans(), streamed=st.booleans(), seed=st.integers(0, 2**32))
def test_chains_over_every_lane_equal_a_serial_loop(
    chain: Dispatcher, folder: Path, plan: Plan, streamed: bool, seed: int
) -> None:
    plan = placed(plan, folder)
    if streamed:
        stream = chain.stream(num_generations=plan.size)
        for rows in pieces(plan, seed):
            stream.add(**plan.columns(rows))
        stream.finish()
        groups = list(stream.groups(timeout=200))
        result = stream.result(timeout=200)
    else:
        pending = chain.submit(num_generations=plan.size, **plan.columns())
        groups = list(pending.groups(timeout=200))
        result = pending.result(timeout=200)
    check_whole(plan, result)
    assert sorted(group.index for group in groups) == list(range(plan.samples // plan.size))
    for group in groups:
        np.testing.assert_array_equal(group.status, result.status[group.index])
        np.testing.assert_array_equal(group.rewards, result.rewards[group.index])


@pytest.mark.fault(
    "a batch with chains of run_if is cut at any moment: cancel, batch_timeout, group_timeout, group_quorum (searched)",
    sees="each cell has its own outcome or that of the cut; what waits for a cut cell is skipped or cut, never called",
)
@examples(25)
@given(
    plan=plans(),
    when=st.floats(0.001, 0.06),
    cut=st.sampled_from(["cancel", "batch_timeout", "group_timeout", "group_quorum"]),
    seed=st.integers(0, 2**32),
)
def test_chains_that_are_cut_at_any_moment(
    chain: Dispatcher, folder: Path, plan: Plan, when: float, cut: str, seed: int
) -> None:
    plan = placed(plan, folder)
    bounds: dict[str, Any] = {cut: when} if cut.endswith("timeout") else {}
    if cut == "group_quorum":
        bounds = {cut: 1 + seed % plan.size}
    stream = chain.stream(num_generations=plan.size, **bounds)
    cancel = threading.Timer(when, stream.cancel)
    if cut == "cancel":
        cancel.start()
    # A stream that has ended takes no more.
    with nullcontext() if cut.startswith("group") else suppress(ClosedError):
        for rows in pieces(plan, seed):
            stream.add(**plan.columns(rows))
        stream.finish()
    if cut == "cancel":
        cancel.join()
    list(stream.groups(timeout=200))
    check_cut(plan, stream.result(timeout=200))
    # What was abandoned harms no later batch.
    check_whole(later := placed(plan, folder), chain.score(num_generations=plan.size, **later.columns()))


def pieces(plan: Plan, seed: int) -> Iterator[slice]:
    """The samples in pieces, as they come."""
    draws, first = np.random.default_rng(seed), 0
    while first < plan.samples:
        count = int(draws.integers(1, plan.samples - first + 1))
        yield slice(first, first + count)
        first += count

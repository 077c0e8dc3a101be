"""A sample's score depends on its own row alone: not on when, where and beside what it is scored.

Three runs serve all comparisons, as each needs processes that have run nothing before: one in
order, one reversed, one in other batches, each with a hash seed of its own. Where two differ, the
check that asks repeats the run under the first seed, and so learns what made the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

from guerdon._functions.options import Options
from guerdon.dispatcher import Dispatcher
from guerdon.functions import RewardFunction
from guerdon.profile.calibration import material
from guerdon.profile.finding import Check, Example, Finding, Severity, excerpt
from guerdon.profile.stand_in import CLOCKS, MODES, THREADS, StandIn, TextStandIn
from guerdon.profile.subject import SEED, Case, Score, Subject
from guerdon.results.status import Status

__all__ = ["CHECKS", "Runs"]

SEEDS: Final = (SEED + 1, SEED + 2)
SMALL: Final = 3
"""Samples of the other batches, unless groups are larger."""

_UNSAID: Final = (Status.TIMEOUT, Status.CANCELLED)


class Runs:
    """The scores of the same samples in changed circumstances; each run is made once."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.samples = material(subject)
        self.group = subject.group_size
        self.is_service = subject.spec.lane == "http"
        size = len(self.samples)
        twice = subject.score(
            [*self.samples, *self.samples], batch=size, workers=1, fresh=True, group=subject.group_size
        )
        self.first, self.second = twice[:size], twice[size:]

    @property
    def steady(self) -> bool:
        """Returns true if both runs in order agree: else no other comparison says anything."""
        return self.same(self.second)

    @property
    def unsaid(self) -> Sequence[Status]:
        """Outcomes that say nothing about a function's value; the errors of a service are those of
        its server."""
        return (*_UNSAID, Status.ERROR) if self.is_service else _UNSAID

    def same(self, scores: Sequence[Score]) -> bool:
        """Returns whether another run agrees with the first."""
        left_out = self.unsaid if self.is_service else ()
        pairs = zip(self.first, scores, strict=True)
        return all(one.same(other) or one.status in left_out or other.status in left_out for one, other in pairs)

    @cached_property
    def ended(self) -> list[tuple[Case, Score]]:
        """The samples that the function scored or abstained on: no others run without a timeout."""
        pairs = zip(self.samples, self.first, strict=True)
        return [(case, score) for case, score in pairs if not score.status.failed]

    @cached_property
    def in_reverse(self) -> list[Score]:
        """The run in reverse order, under the second seed."""
        return self.reversed_order(SEEDS[0])

    @cached_property
    def in_batches(self) -> list[Score]:
        """The run in small batches, under the third seed."""
        return self.batched(SEEDS[1])

    def reversed_order(self, seed: int) -> list[Score]:
        """Groups stay whole."""
        starts = range(0, len(self.samples), self.group)
        places = range(len(self.samples))
        order = [place for start in reversed(starts) for place in places[start : start + self.group]]
        return self._scored(order, seed, None)

    def batched(self, seed: int) -> list[Score]:
        """The second half first, so that each sample has other neighbours and another past."""
        size = len(self.samples)
        middle = size // (2 * self.group) * self.group
        return self._scored([*range(middle, size), *range(middle)], seed, self.batch)

    @property
    def batch(self) -> int:
        """Samples of a small batch."""
        return self.group if self.group > 1 else SMALL

    def _scored(self, order: Sequence[int], seed: int, batch: int | None) -> list[Score]:
        samples = [self.samples[place] for place in order]
        scores = self.subject.score(samples, batch=batch, seed=seed, workers=1, fresh=True, group=self.group)
        back = dict(zip(order, scores, strict=True))
        return [back[place] for place in range(len(order))]

    @property
    def padded(self) -> list[Case]:
        """More samples: what strips or lowers text in place must have something to lose."""
        text = self.subject.completion("  The Answer is SEVEN. \n")
        return [Case(case.row, text) for case, _ in self.ended[:2]]

    @cached_property
    def inspected(self) -> dict[str, list[Score]]:
        """Scores of the samples that ended and of `padded`, by mode of a `StandIn`; empty if none
        can run the function.

        ``"arguments"`` gives 1 where the function changed what it was given.
        """
        subject, cases = self.subject, [case for case, _ in self.ended]
        if subject.own_lane or not cases:
            return {}
        policy = subject.spec.policy
        shared = Options(
            lane="process",
            timeout=4 * subject.timeout,
            batch_size=len(cases) + 2,
            max_failure_rate=1.0,
            memory_limit=policy.memory_limit or subject.memory_limit,
            max_output=policy.max_output or subject.max_output,
        )
        wants = subject.spec.wants
        stand_in = TextStandIn if {"text", "texts"} & {*wants.named} & {*wants.reserved} else StandIn
        functions = [RewardFunction(stand_in(subject.spec, mode, len(cases)), shared, "sample") for mode in MODES]
        environment = {"PYTHONHASHSEED": str(SEED)}
        with Dispatcher(functions, workers=len(MODES), worker_env=environment, max_failure_rate=1.0) as dispatcher:
            result = dispatcher.score(num_generations=1, **subject.columns_of([*cases, *self.padded]))
        found = {}
        for place, mode in enumerate(MODES):
            pairs = zip(result.rewards[:, 0, place].tolist(), result.status[:, 0, place].tolist(), strict=True)
            found[mode] = [Score(value if state == Status.OK else None, Status(state)) for value, state in pairs]
        return found

    def differences(self, mode: str, names: tuple[str, str]) -> list[Example]:
        """Samples that a mode of a `StandIn` scores differently; its failures are left out."""
        scores = self.inspected.get(mode)
        if not scores:
            return []
        shown = [Score(None, Status.CANCELLED) if score.status.failed else score for score in scores[: len(self.ended)]]
        cases, first = zip(*self.ended, strict=True)
        return _differences(cases, first, shown, names, self.unsaid)


def _differences(
    samples: Sequence[Case],
    first: Sequence[Score],
    second: Sequence[Score],
    names: tuple[str, str],
    unsaid: Sequence[Status],
) -> list[Example]:
    """An example for each sample on which two runs differ, to the bit; `unsaid` outcomes are left
    out."""
    return [
        Example(sample.row, excerpt(sample.completion), {names[0]: one.shown, names[1]: other.shown})
        for sample, one, other in zip(samples, first, second, strict=True)
        if not one.same(other) and one.status not in unsaid and other.status not in unsaid
    ]


def _found(check: str, runs: Runs, examples: Sequence[Example], of: int, then: str) -> Iterator[Finding]:
    if examples:
        text = f"{runs.subject.name!r} scores {len(examples)} of {of} samples differently {then}"
        yield Finding(check, "error", text, tuple(examples))


def _compared(check: str, runs: Runs, scores: Sequence[Score], names: tuple[str, str], then: str) -> Iterator[Finding]:
    examples = _differences(runs.samples, runs.first, scores, names, runs.unsaid)
    return _found(check, runs, examples, len(runs.samples), then)


def _repeat(subject: Subject) -> Iterator[Finding]:
    runs = subject.once(Runs)
    yield from _service_faults(runs)
    yield from _compared(
        "repeat",
        runs,
        runs.second,
        ("first", "second"),
        "when asked again. Look for random numbers, the time, counters and caches between calls; seed what is random with "
        "the sample itself.",
    )


def _service_faults(runs: Runs) -> Iterator[Finding]:
    """Requests that failed in one of two runs alone: those in both are found elsewhere."""
    if not runs.is_service:
        return
    pairs = zip(runs.samples, runs.first, runs.second, strict=True)
    failed = [(case, one, other) for case, one, other in pairs if one.status.failed != other.status.failed]
    if failed:
        yield Finding(
            "fails",
            "warning",
            f"Its service failed on {len(failed)} of {len(runs.samples)} samples in one of two runs and answered in the other; they are "
            "left out of the other checks. Look at its server, or allow more retries=.",
            tuple(
                Example(case.row, excerpt(case.completion), {"first": one.shown, "second": other.shown})
                for case, one, other in failed
            ),
        )


def _order(subject: Subject) -> Iterator[Finding]:
    runs = subject.once(Runs)
    if not runs.steady or len(runs.samples) < 2:
        return
    scores = runs.in_reverse
    if not runs.same(scores):
        scores = runs.reversed_order(SEED)  # the order alone
    what = "groups" if runs.group > 1 else "samples"
    yield from _compared(
        "order",
        runs,
        scores,
        ("in order", "reversed"),
        f"when the {what} come in reverse order. A score must depend on its own row alone: look for state that a call leaves "
        "to the next (caches, running means), and for ranks or means over the batch.",
    )


def _batch(subject: Subject) -> Iterator[Finding]:
    runs = subject.once(Runs)
    if not runs.steady or len(runs.samples) < 2:
        return
    scores = runs.in_batches
    if not runs.same(scores):
        scores = runs.batched(SEED)  # the batches alone
    look = (
        "means and ranks over the batch, and for lists that are not aligned. If it is meant to compare the completions of a "
        "prompt, make it a @group_reward."
        if subject.batch
        else "state that a call leaves to the next."
    )
    yield from _compared(
        "batch",
        runs,
        scores,
        ("all together", f"in batches of {runs.batch}"),
        f"in batches of {runs.batch}. A score must depend on its own row alone: look for {look}",
    )


def _process(subject: Subject) -> Iterator[Finding]:
    runs = subject.once(Runs)
    if not runs.steady or subject.own_lane:
        return
    for seed, scores in zip(SEEDS, (runs.in_reverse, runs.in_batches), strict=True):
        if runs.same(scores):
            continue
        again = subject.score(runs.samples, seed=seed, workers=1, fresh=True, group=runs.group)
        found = list(
            _compared(
                "process",
                runs,
                again,
                ("one process", "another"),
                f"in another process (PYTHONHASHSEED={seed} for {SEED}). Workers and ranks would disagree: sort sets before "
                "they are walked, use hashlib for hash(), and read nothing from the process (its id, its time zone, its "
                "memory).",
            )
        )
        if found:
            yield from found
            return


def _threads(subject: Subject) -> Iterator[Finding]:
    runs = subject.once(Runs)
    if not runs.steady or subject.grouped:
        return
    examples = runs.differences("threads", ("alone", "side by side"))
    if not examples:
        return
    together = zip(runs.ended, runs.inspected["threads"], strict=False)
    raised = all(
        score.status.failed or score.status is Status.ABSTAINED or score.same(one) for (_, one), score in together
    )
    lane = subject.spec.lane
    severity: Severity = "error" if lane != "process" else "info" if raised else "warning"
    side = "on one event loop" if lane == "asyncio" else f"on {THREADS} threads"
    do = "Keep what a call needs in local variables." if not raised else "Alarms work on a main thread alone."
    yield Finding(
        "threads",
        severity,
        f"{subject.name!r} {'raises on' if raised else 'scores'} {len(examples)} of {len(runs.ended)} samples"
        f"{'' if raised else ' differently'} when calls run side by side {side}. {do} "
        + (
            "It runs in worker processes now, one call at a time: leave it there."
            if lane == "process"
            else "Or move it to lane='process'."
        ),
        tuple(examples),
    )


def _clock(subject: Subject) -> Iterator[Finding]:
    runs = subject.once(Runs)
    if not runs.steady or subject.grouped:
        return
    examples = next(filter(None, (runs.differences(clock, ("now", "later")) for clock in CLOCKS)), [])
    yield from _found(
        "clock",
        runs,
        examples,
        len(runs.ended),
        "when the clock shows another time. A run could not be repeated: take times from a column, or leave them out.",
    )


def _arguments(subject: Subject) -> Iterator[Finding]:
    runs = subject.once(Runs)
    cases = [*(case for case, _ in runs.ended), *runs.padded]
    examples = [
        Example(case.row, excerpt(case.completion), {"changed": "yes"})
        for case, score in zip(cases, runs.inspected.get("arguments", []), strict=False)
        if score.value == 1.0
    ]
    if examples:
        yield Finding(
            "arguments",
            "error",
            f"{subject.name!r} changes the lists or messages that it is given, on {len(examples)} of {len(runs.ended)} samples. "
            "In a trainer's process the other functions, and the trainer, see the changed ones: copy first (list(…), dict(…)).",
            tuple(examples),
        )


CHECKS: Final = (
    Check("repeat", _repeat),
    Check("order", _order),
    Check("batch", _batch),
    Check("process", _process),
    Check("threads", _threads),
    Check("clock", _clock),
    Check("arguments", _arguments),
)

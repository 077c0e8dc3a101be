"""Runs of a function in a worker that look at more than its scores (`StandIn`): a crash there ends
no audit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from weakref import WeakKeyDictionary

from guerdon._functions.options import Options
from guerdon.dispatcher import Dispatcher
from guerdon.functions import RewardFunction
from guerdon.profile.stand_in import MODES, StandIn, TextStandIn
from guerdon.profile.subject import SEED, Case, Score, Subject
from guerdon.results.status import Status

__all__ = ["inspect_function", "padded"]

_made: Final[WeakKeyDictionary[Subject, dict[str, list[Score]]]] = WeakKeyDictionary()


def inspect_function(subject: Subject, cases: Sequence[Case]) -> dict[str, list[Score]]:
    """Scores of the cases and of those that `padded` adds, by mode; empty if it can't be run.

    ``"arguments"`` gives 1 where the function changed what it was given.
    """
    found = _made.get(subject)
    if found is None:
        found = _made[subject] = {} if subject.own_lane or not cases else _inspected(subject, cases)
    return found


def _inspected(subject: Subject, cases: Sequence[Case]) -> dict[str, list[Score]]:
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
        result = dispatcher.score(num_generations=1, **subject.columns_of([*cases, *padded(subject, cases)]))
    return {
        mode: [
            Score(value if state == Status.OK else None, Status(state))
            for value, state in zip(
                result.rewards[:, 0, place].tolist(), result.status[:, 0, place].tolist(), strict=True
            )
        ]
        for place, mode in enumerate(MODES)
    }


def padded(subject: Subject, cases: Sequence[Case]) -> list[Case]:
    """More samples: what strips or lowers text in place must have something to lose."""
    return [Case(case.row, subject.completion("  The Answer is SEVEN. \n")) for case in cases[:2]]

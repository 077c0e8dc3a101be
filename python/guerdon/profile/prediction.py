"""The reward time of a step of ``P`` prompts and ``G`` completions, from what the functions took.

- It is that of workers which are there already: the first step also starts them and imports.
- The times of the rows stand for those of the step, in random orders: the median of several.
- Of a large step a part is simulated: the whole takes as much longer as it has more prompts.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from guerdon.limits import USUAL_CONCURRENCY
from guerdon.profile.simulation import Phases, Queue, simulate

__all__ = ["FunctionTimes", "StepPrediction", "predict"]

_ORDERS: Final = 5
_MANY_CALLS: Final = 20_000
_MOST_SAMPLES: Final = 10_000
_THREADS: Final = 8
_IN_WORKERS: Final = ("process", "code")
# What the engine adds to a call, and to a batch.
_PER_CALL_S: Final = {"process": 3e-6, "code": 3e-6, "thread": 1e-6, "asyncio": 3e-6, "http": 60e-6, "native": 1e-6}
_PER_BATCH_S: Final = 0.002


@dataclass(frozen=True)
class FunctionTimes:
    """What a prediction needs to know of one function.

    Attributes:
        lane: Where it runs.
        calls: What one call scores: ``"sample"``, ``"group"`` or ``"batch"``.
        seconds: Run times of calls.
        failed: Run times of calls that failed, in the share that they have beside those: a hang has
            its timeout and what comes after that. They are taken to wait, not to compute.
        cpu: CPU seconds a second of run time.
        lock: Share of the run time with the interpreter's lock; None: whenever it computes.
        concurrency: Calls in flight at once; None: the lane's default.
        rows: Samples of a measured call, for a batch function.
    """

    name: str
    lane: str
    calls: str
    seconds: Sequence[float]
    failed: Sequence[float] = ()
    cpu: float = 0.0
    lock: float | None = None
    concurrency: int | None = None
    rows: int = 1


@dataclass(frozen=True)
class StepPrediction:
    """Seconds of a step: the median over orders of the samples, the least and the most.

    Attributes:
        alone: Seconds of each function if it were alone.
    """

    seconds: float
    low: float
    high: float
    workers: int
    prompts: int
    generations: int
    alone: dict[str, float]


def predict(
    functions: Sequence[FunctionTimes], *, prompts: int, generations: int, workers: int, cores: int
) -> StepPrediction:
    """Predict the reward time of a step.

    Args:
        functions: Those of the dispatcher; one without times takes none.
        prompts: ``P``.
        generations: ``G``, completions per prompt.
        workers: Of the process lane.
        cores: That the trainer and its workers may use.
    """
    timed = [function for function in functions if function.seconds or function.failed]
    part = min(prompts, max(1, _MOST_SAMPLES // generations))

    def runs(chosen: Sequence[FunctionTimes], orders: int) -> list[float]:
        times = [_step(chosen, part, generations, workers, cores, seed) for seed in range(orders)]
        return [seconds * prompts / part for seconds in times]

    calls = part * generations * max(1, len(timed))
    orders = 1 if calls > _MANY_CALLS else _ORDERS
    times = runs(timed, orders)
    alone = {function.name: statistics.median(runs([function], orders)) for function in timed}
    return StepPrediction(statistics.median(times), min(times), max(times), workers, prompts, generations, alone)


def _step(
    functions: Sequence[FunctionTimes], prompts: int, generations: int, workers: int, cores: int, seed: int
) -> float:
    order = random.Random(seed)
    pools = [workers]
    queues = []
    overhead = _PER_BATCH_S
    for function in functions:
        count = {"sample": prompts * generations, "group": prompts, "batch": 1}[function.calls]
        step = {"sample": 1, "group": generations, "batch": prompts * generations}[function.calls]
        scale = prompts * generations / function.rows if function.calls == "batch" else 1.0
        measured = [_phases(function, seconds * scale) for seconds in function.seconds]
        measured += [(0.0, 0.0, seconds) for seconds in function.failed]
        # As often as in the rows: what is rare and slow counts most.
        whole, rest = divmod(count, len(measured))
        drawn = measured * whole + order.sample(measured, rest)
        order.shuffle(drawn)
        calls = [(place * step, phases) for place, phases in enumerate(drawn)]
        if function.lane in _IN_WORKERS and function.calls != "batch":
            queues.append(Queue(calls, function.concurrency or workers, 0))
        else:  # a batch function has a worker of its own
            usual = {"thread": _THREADS, "process": 1, "native": cores}.get(function.lane, USUAL_CONCURRENCY)
            pools.append(function.concurrency or usual)
            queues.append(Queue(calls, pools[-1], len(pools) - 1))
        shared = workers if function.lane in _IN_WORKERS else 1
        overhead += count * _PER_CALL_S[function.lane] / shared
    return simulate(queues, pools, cores) + overhead


def _phases(function: FunctionTimes, seconds: float) -> Phases:
    # Programs compute, in processes of their own.
    computes = seconds if function.lane == "code" else min(1.0, function.cpu) * seconds
    waits = seconds - computes
    if function.lane in _IN_WORKERS:
        return computes, 0.0, waits
    if function.lane == "asyncio":  # on one thread, which does nothing else meanwhile
        return 0.0, computes, waits
    held = computes if function.lock is None else min(computes, function.lock * seconds)
    return computes - held, held, waits

"""The reward time of a step of ``P`` prompts and ``G`` completions: arithmetic on measured times.

- A lane takes its calls' seconds divided by the calls that it runs at once, and no less than a slow
  call.
- Lanes run side by side, so the slowest decides, unless all together need more of the cores, or of
  the interpreter's lock, than there is.
- A judge's request takes longer the more of them are in flight: a line through two levels that were
  measured.
- Values beyond the measurement are named in `StepPrediction.beyond`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from guerdon._system.gil import has_gil
from guerdon.limits import USUAL_CONCURRENCY
from guerdon.profile.function_profile import FunctionProfile, Step, StepPrediction
from guerdon.results.status import Status

__all__ = ["FunctionTimes", "predict", "predicted_step", "times_for"]

_THREADS: Final = 8
_IN_WORKERS: Final = ("process", "code")
# The engine's own time for a call, and for a batch.
_PER_CALL_S: Final = {
    "process": 3e-6,
    "code": 3e-6,
    "thread": 1e-6,
    "asyncio": 3e-6,
    "http": 60e-6,
    "native": 1e-6,
    "compose": 120e-6,
}
_PER_BATCH_S: Final = 0.002
_MOST_WORKERS: Final = 64
_GOOD_ENOUGH: Final = 1.1


@dataclass(frozen=True)
class FunctionTimes:
    """The times of one function.

    Attributes:
        lane: Where it runs.
        calls: What one call scores: ``"sample"``, ``"group"`` or ``"batch"``.
        seconds: Run times of calls.
        failed: Run times of calls that failed, in the share that they have beside those: a hang has
            its timeout and what comes after that. They are taken to wait, not to compute.
        cpu: CPU seconds a second of run time.
        concurrency: Calls in flight at once; None: the lane's default.
        rows: Samples of a measured call, for a batch function.
        levels: Of a judge: requests in flight at once, and their median time.
    """

    name: str
    lane: str
    calls: str
    seconds: Sequence[float]
    failed: Sequence[float] = ()
    cpu: float = 0.0
    concurrency: int | None = None
    rows: int = 1
    levels: Sequence[tuple[int, float]] = ()


@dataclass(frozen=True)
class _Load:
    """One function's calls in a step: how many, how many at once, seconds of one and of a slow
    one."""

    of: FunctionTimes
    calls: int
    slots: int
    mean: float
    slow: float

    @property
    def busy(self) -> float:
        return self.calls * self.mean

    def seconds(self) -> float:
        """The time of all calls, in rounds of as many as run at once."""
        return max(-(-self.calls // self.slots) * self.mean, self.slow)


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
    loads = [_load(each, prompts, generations, workers, cores) for each in functions if each.seconds or each.failed]
    return StepPrediction(
        _together(loads, workers, cores),
        workers if any(load.of.lane in _IN_WORKERS for load in loads) else 0,
        sum(load.slots for load in loads if load.of.lane == "thread"),
        {load.of.name: _together([load], workers, cores) for load in loads},
        tuple(text for load in loads for text in _beyond(load)),
    )


def _load(function: FunctionTimes, prompts: int, generations: int, workers: int, cores: int) -> _Load:
    samples = prompts * generations
    calls = {"sample": samples, "group": prompts, "batch": 1}[function.calls]
    if function.calls == "batch":  # it has a worker, or a thread, of its own
        slots = 1
    elif function.lane in _IN_WORKERS:
        slots = min(function.concurrency or workers, workers)
    else:
        usual = {"thread": _THREADS, "native": cores}.get(function.lane, USUAL_CONCURRENCY)
        slots = function.concurrency or usual
    scale = samples / function.rows if function.calls == "batch" else 1.0
    scale *= _slower(function, min(slots, calls))
    times = np.array([*(scale * each for each in function.seconds), *function.failed])
    return _Load(function, calls, slots, float(times.mean()), float(np.quantile(times, 1 - 1 / (calls + 1))))


def _slower(function: FunctionTimes, at_once: int) -> float:
    """Returns the factor by which a request takes longer at this concurrency than at the larger
    measured one."""
    levels = sorted(function.levels)
    if len(levels) < 2 or levels[-1][1] <= 0:
        return 1.0
    (few, quick), (many, slow) = levels[0], levels[-1]
    each = max(0.0, (slow - quick) / (many - few))
    return max(quick, slow + each * (at_once - many)) / slow


def _together(loads: Sequence[_Load], workers: int, cores: int) -> float:
    in_workers = [load.busy for load in loads if load.of.lane in _IN_WORKERS and load.of.calls != "batch"]
    computing = sum(load.busy * _computes(load.of) for load in loads)
    locked = sum(load.busy * _locks(load.of) for load in loads)
    overhead = sum(
        load.calls * _PER_CALL_S[load.of.lane] / (workers if load.of.lane in _IN_WORKERS else 1) for load in loads
    )
    lanes = [load.seconds() for load in loads]
    return max([*lanes, sum(in_workers) / workers, computing / max(1, cores), locked]) + overhead + _PER_BATCH_S


def _computes(function: FunctionTimes) -> float:
    """The share of its calls in which it computes; programs do, in processes of their own."""
    answered = len(function.seconds) / max(1, len(function.seconds) + len(function.failed))
    return answered * (1.0 if function.lane == "code" else min(1.0, function.cpu))


def _locks(function: FunctionTimes) -> float:
    """The share of its calls in which nothing else of the trainer's process computes: what computes
    on a thread is taken to hold the interpreter's lock, if there is one."""
    return _computes(function) if function.lane == "asyncio" or (function.lane == "thread" and has_gil()) else 0.0


def _beyond(load: _Load) -> Iterator[str]:
    """Yields the quantities over which the times of a function are extrapolated."""
    function, at_once = load.of, min(load.slots, load.calls)
    most = max((level for level, _ in function.levels), default=0)
    if function.lane == "http" and at_once > most:
        yield f"{function.name} was measured with {most or 'an unknown number of'} requests at once, not {at_once}"
    if function.calls == "batch" and function.rows > 1 and load.calls:
        yield f"{function.name} was measured with batches of {function.rows} rows"


def predicted_step(
    functions: Sequence[FunctionProfile], prompts: int, generations: int, workers: int, cores: int
) -> Step | None:
    """The step's time as the functions are, and as they are advised to be; None where no function
    was run.

    Args:
        workers: Of the process lane, as things are.
        cores: That the trainer and its workers may use.
    """
    ran = [(function, times_for(function)) for function in functions]
    ran = [(function, times) for function, times in ran if times.seconds or times.failed]
    if not ran:
        return None
    now = [times for _, times in ran]
    advised = [
        replace(
            times,
            lane=function.advice.lane,
            concurrency=replace(function.spec, lane=function.advice.lane).concurrency,
            failed=_failed(function, function.advice.timeout),
        )
        for function, times in ran
        if function.advice is not None
    ]
    waits = any(each.cpu < 0.5 for each in advised if each.lane in _IN_WORKERS)
    counts = {count for count in (1, 2, 4, 8, 16, 32, _MOST_WORKERS) if count <= cores or waits} | {cores}
    tried = [
        predict(advised, prompts=prompts, generations=generations, workers=count, cores=cores)
        for count in sorted(counts)
    ]
    least = min(each.seconds for each in tried)
    best = next(each for each in tried if each.seconds <= _GOOD_ENOUGH * least)
    if not best.workers:
        reason = "no function runs in a worker"
    elif best.workers > cores:
        reason = "more than cores, as functions in workers mostly wait"
    elif best.workers == cores and not waits:
        reason = f"one a usable core, of which there are {cores}"
    else:
        reason = "more would not make the step faster"
    as_is = predict(now, prompts=prompts, generations=generations, workers=workers, cores=cores)
    return Step(prompts, generations, workers, as_is, best, reason)


def times_for(function: FunctionProfile) -> FunctionTimes:
    """The times of a function as it is."""
    spec, found = function.spec, function.measurement
    asks_judges = spec.lane == "compose" and bool(spec.plans)
    one_at_a_time = spec.lane == "asyncio" and found is not None and found.blocks
    return FunctionTimes(
        spec.name,
        "http" if asks_judges else spec.lane,
        spec.shape,
        function.seconds,
        _failed(function, None),
        cpu=0.0 if found is None or found.cpu_s is None else found.cpu_s,
        concurrency=1 if one_at_a_time else spec.concurrency,
        rows=1 if found is None else found.rows_of_call,
        levels=[(int(at_once), seconds) for at_once, seconds in function.judge.get("levels", ())],
    )


def _failed(function: FunctionProfile, timeout: float | None) -> list[float]:
    """Returns the expected times in training of the calls that failed: their measured time, but of
    a hang the function's own timeout, or this one, and its own grace, in each attempt."""
    found, policy = function.measurement, function.spec.policy
    if found is None:
        return []
    timeout = policy.timeout if timeout is None else timeout
    most = float("inf") if policy.total_timeout is None else policy.total_timeout
    times = []
    for _, score in found.failures:
        seconds = score.run_s
        if score.status is Status.TIMEOUT:
            late = max(0.0, seconds - found.timeout)
            # One that did not end at its timeout either was killed.
            seconds = timeout + (policy.grace if late >= 0.8 * found.grace > 0 else late)
        elif score.status is Status.CRASHED:
            seconds *= 2  # it is tried once more, alone
        times.append(min(most, seconds * (1 + policy.retries)))
    return times

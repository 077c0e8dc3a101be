"""The predicted reward time of a step, as the functions are and as they are advised to be, and how
many workers that takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from guerdon.profile.function_profile import FunctionProfile, Step
from guerdon.profile.prediction import FunctionTimes, StepPrediction, predict

__all__ = ["predicted_step", "times_for"]

_MOST_WORKERS = 64
_GOOD_ENOUGH = 1.1


def predicted_step(
    functions: Sequence[FunctionProfile], prompts: int, generations: int, workers: int, cores: int
) -> Step | None:
    """The step's time; None where no function was run.

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
        replace(times, lane=function.advice.lane, failed=_failed(function, function.advice.timeout))
        for function, times in ran
        if function.advice is not None
    ]

    def predicted(chosen: Sequence[FunctionTimes], count: int) -> StepPrediction:
        return predict(chosen, prompts=prompts, generations=generations, workers=count, cores=cores)

    best, reason = _workers(advised, predicted, cores)
    return Step(predicted(now, workers), best, reason)


def times_for(function: FunctionProfile) -> FunctionTimes:
    """What a prediction needs of a function as it is."""
    spec, found = function.spec, function.measurement
    return FunctionTimes(
        spec.name,
        spec.lane,
        spec.shape,
        function.seconds,
        _failed(function, None),
        cpu=0.0 if found is None or found.cpu_s is None else found.cpu_s,
        lock=None if found is None else found.lock_share,
        concurrency=spec.concurrency,
        rows=1 if found is None else found.rows_of_call,
    )


def _failed(function: FunctionProfile, timeout: float | None) -> list[float]:
    """What the calls that failed would take in training: their measured time, but of a hang the
    function's own timeout, or this one, and its own grace, in each attempt."""
    found, policy = function.measurement, function.spec.policy
    if found is None:
        return []
    timeout = policy.timeout if timeout is None else timeout
    most = float("inf") if policy.total_timeout is None else policy.total_timeout
    times = []
    for failure in found.failures:
        seconds = failure.run_s
        if failure.status == "timeout":
            late = max(0.0, seconds - found.timeout)
            # One that did not end at its timeout either was killed.
            seconds = timeout + (policy.grace if late >= 0.8 * found.grace > 0 else late)
        elif failure.status == "crashed":
            seconds *= 2  # it is tried once more, alone
        times.append(min(most, seconds * (1 + policy.retries)))
    return times


def _workers(
    functions: Sequence[FunctionTimes], predicted: Callable[[Sequence[FunctionTimes], int], StepPrediction], cores: int
) -> tuple[StepPrediction, str]:
    """The fewest workers that are as good as more."""
    in_workers = [function for function in functions if function.lane in ("process", "code")]
    if not in_workers:
        return predicted(functions, 1), "no function runs in a worker"
    waits = any(function.cpu < 0.5 for function in in_workers)
    counts = [count for count in (1, 2, 4, 8, 16, 32, _MOST_WORKERS) if count <= cores or waits]
    if cores not in counts:
        counts.append(cores)
    tried = [predicted(functions, count) for count in sorted(counts)]
    least = min(each.seconds for each in tried)
    best = next(each for each in tried if each.seconds <= _GOOD_ENOUGH * least)
    if best.workers >= cores and not waits:
        return best, f"one a usable core, of which there are {cores}"
    if best.workers > cores:
        return best, "more than cores, as functions in workers mostly wait"
    return best, "more would not make the step faster"

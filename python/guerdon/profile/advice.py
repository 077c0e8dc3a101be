"""Advice on a function's lane and timeout, with reasons; the line to paste.

- A function that hung, crashed or took too much memory belongs into a worker, which can be killed.
- A function whose every call failed gets none before it works.
- A timeout leaves room above the slowest call that ended, and is a round number, or the function's
  own where that is shorter and leaves room too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Final

from guerdon._functions.factory import Factory
from guerdon._functions.options import Lane, Options
from guerdon._functions.spec import FunctionSpec
from guerdon._system.gil import has_gil
from guerdon._system.units import plural
from guerdon.functions import RewardFunction
from guerdon.profile.measurement import Measurement

__all__ = ["Advice", "advise"]

_WAITS: Final = 0.2
_COMPUTES: Final = 0.5
_SHORT_S: Final = 0.001
_LEAST_TIMEOUT_S: Final = 1.0
_ROOM: Final = 3.0
_ROOM_OF_P99: Final = 10.0


@dataclass(frozen=True)
class Advice:
    """Recommended options.

    Attributes:
        lane: Where it should run.
        lane_reason: Why, in a sentence.
        timeout: Seconds of one call; None where nothing was measured.
        timeout_reason: Why.
        decorator: The line to paste; None where it should stay as it is.
    """

    lane: Lane
    lane_reason: str
    timeout: float | None
    timeout_reason: str
    decorator: str | None


def advise(spec: FunctionSpec, found: Measurement, p99: float | None, *, independent: bool = True) -> Advice:
    """Returns the recommended options of a function.

    Args:
        p99: Of its run times, seconds.
        independent: Nothing shows that a row's score depends on other rows.
    """
    lane, why = _lane(spec, found)
    timeout, room = _timeout(spec, found, p99)
    return Advice(lane, why, timeout, room, _decorator(spec, lane, timeout, independent=independent))


def _lane(spec: FunctionSpec, found: Measurement) -> tuple[Lane, str]:
    counts = found.counts()
    if not found.works:
        return spec.lane, "every call failed: mend that first"
    if spec.lane == "code":
        return "code", "programs run in processes of their own, behind fences"
    if spec.is_engine_made:
        what = {"http": "requests are made", "native": "kernels are run"}.get(spec.lane, "calls of members are made")
        return spec.lane, f"{what} by the engine, without Python"
    if spec.factory is not None:
        return spec.lane, "it comes with its lane"
    if "environment" in spec.wants.named or "environments" in spec.wants.named:
        return "thread", "it takes live environments, which can't leave the trainer's process"
    for status, what in (("timeout", "hung"), ("crashed", "ended its worker")):
        if counts[status]:
            return "process", f"it {what} on {plural(counts[status], 'row')}: only a worker can be killed and replaced"
    if any(score.lacks_memory for _, score in found.failures):
        return "process", "it needs more memory than it may have: only a worker can be limited"
    cpu = found.cpu_s
    if cpu is None:
        return spec.lane, "nothing could be measured, so its lane stays"
    share = f"{min(cpu, 1):.0%}"
    slow = not found.seconds or sorted(found.seconds)[len(found.seconds) // 2] >= _SHORT_S
    if spec.is_async:
        if cpu >= _COMPUTES and slow:
            return "process", f"it computes for {share} of its time, in which its event loop serves no other call"
        if found.blocks and cpu < _WAITS:
            return "thread", "it waits without await, which blocks its event loop: await, or make it a plain def there"
        if found.blocks:
            return "process", "it blocks its event loop: calls at once take as long there as one after another"
        return "asyncio", f"it is async and computes for {share} of its time only: one loop serves hundreds of calls"
    if cpu < _WAITS and slow:
        return (
            "thread",
            f"it waits for {1 - cpu:.0%} of its time and did not hang: waiting threads cost next to nothing",
        )
    if not slow:
        return "process", "it is short, and in a worker a hang can be ended"
    if not has_gil():
        return (
            "thread",
            "it computes and did not hang: without the GIL, threads compute side by side, and nothing is pickled",
        )
    return (
        "process",
        f"it computes for {share} of its time: a thread would take the interpreter's lock from the trainer",
    )


def _timeout(spec: FunctionSpec, found: Measurement, p99: float | None) -> tuple[float | None, str]:
    if p99 is None:
        return None, "no call succeeded"
    longer = [seconds for _, seconds in found.long if seconds is not None]
    slowest = max([*found.seconds, *longer])
    if spec.lane == "code" and spec.factory is not None:
        return spec.policy.timeout, _programs_timeout(spec.policy.timeout, spec.factory)
    least = max(_LEAST_TIMEOUT_S, 0.0 if spec.factory is None else spec.factory.least_timeout)
    needed = max(least, _ROOM * slowest, _ROOM_OF_P99 * p99)
    timeout, given = _round_up(needed), spec.policy.timeout
    if _ROOM * slowest <= given < timeout:
        return given, f"its own, as the slowest call took {_seconds(slowest)}"
    if needed == least:
        more = "" if least == _LEAST_TIMEOUT_S else f", but others may take {least:g} s"
        return timeout, f"the slowest call took {_seconds(slowest)}{more}"
    by = f"{_ROOM:g} × the slowest" if needed == _ROOM * slowest else f"{_ROOM_OF_P99:g} × p99"
    return timeout, f"{by} of {_seconds(slowest if needed == _ROOM * slowest else p99)}, rounded up"


def _programs_timeout(whole: float, factory: Factory) -> str:
    program = float(factory.value("timeout"))
    return (
        f"its own: {program:g} s for the cases of a program (timeout={program:g}), and {whole - program:g} s for what is no "
        "program's time: its process, comparisons, compiling"
    )


def _round_up(seconds: float) -> float:
    """The next of 1, 2, 5, 10, 20 …"""
    power = 10.0 ** math.floor(math.log10(seconds))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= seconds * 0.999)


def _decorator(spec: FunctionSpec, lane: str, timeout: float | None, *, independent: bool) -> str | None:
    if lane == "code" or (timeout is None and lane == spec.lane):
        return None  # a code reward's timeout is its program's
    if spec.factory is not None and lane != "http":
        return spec.factory.call(timeout=timeout)
    if lane in ("http", "native", "compose"):
        return f"timeout={timeout:g}"
    options = {"lane": repr(lane).replace("'", '"')}
    if timeout is not None:
        options["timeout"] = f"{timeout:g}"
    given = spec.item.options if isinstance(spec.item, RewardFunction) else Options()
    kept = {**options, **_given(given, lane)}
    if spec.decorated:
        listed = ", ".join(f"{name}={text}" for name, text in kept.items())
        return f"@{'group_reward' if spec.shape == 'group' else 'reward'}({listed})"
    if spec.stateful:
        listed = ", ".join(f"{name}={text}" for name, text in kept.items())
        return f"reward({spec.name}(…), {listed})"
    if not independent:
        return None
    listed = ", ".join(f"{name}={text}" for name, text in {"rowwise": "True", **kept}.items())
    return f"reward({spec.name}, {listed})"


def _given(given: Options, lane: str) -> dict[str, str]:
    """The other options that it was given and that its new lane allows."""
    usual = Options()
    gone = {"lane", "timeout"} | (set() if lane == "asyncio" else {"loop"})
    if lane != "process":
        gone |= {"isolation", "memory_limit", "max_output", "env"}
    kept: dict[str, str] = {}
    for each in fields(Options):
        value: Any = getattr(given, each.name)
        if each.name not in gone and value != getattr(usual, each.name) and value is not None:
            kept[each.name] = repr(value)
    return kept


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds >= 0.1 else f"{seconds * 1e3:.2g} ms"

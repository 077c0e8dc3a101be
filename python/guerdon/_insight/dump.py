"""Snapshot of a dispatcher: every call in flight, its age, its worker, its Python stack.

- Taking a dump takes no longer than its bound, changes nothing, and may be done from any thread and
  in a signal handler.
- A stack is shown only beside the call that it belongs to: a call that ended meanwhile has
  none.
- Stacks from workers are text for people; source lines are read from plain files only.
"""

from __future__ import annotations

import os
import re
import stat
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, overload

from guerdon._insight.endpoint import Endpoint, endpoints_of
from guerdon._system.gil import has_gil
from guerdon._system.units import plural

if TYPE_CHECKING:
    from guerdon._functions.spec import FunctionSpec
    from guerdon._insight.stack_source import StackFrame, StackSource
    from guerdon._native import BatchCall, Engine

__all__ = ["Dump", "InFlight", "with_source"]

Phase = Literal["call", "arguments", "setup", "loading"]
_DOES: dict[str, str] = {
    "call": "runs",
    "arguments": "has its arguments unpickled",
    "setup": "runs setup()",
    "loading": "is loaded",
}
_LARGEST_SOURCE = 16 << 20
_FRAME = re.compile(r'  File "(.*)", line (\d+), in (.*)')


@dataclass(frozen=True)
class InFlight:
    """One call in flight.

    Attributes:
        function: Name of the reward function.
        samples: Of the call: one, a group's or a batch's. Before ``phase`` is ``"call"``, all that
            wait for it to end.
        lane: ``"process"``, ``"code"``, ``"thread"``, ``"asyncio"``, ``"http"`` or
            ``"native"``.
        attempt: Number of this attempt, from 1.
        age_s: Seconds since it began.
        worker: Process id of its worker; name of its thread or event loop in the other lanes; of a
            request its server; of a call on another node ``"node NAME"``; in the engine that
            ranks of this host share, its name.
        stack: Where the user's code stands, outermost frame first, as in a traceback. None if it
            can't be had.
        phase: ``"call"``; before it ``"loading"`` (its module is imported), ``"setup"``,
            ``"arguments"`` (unpickled).
        batch: Number of its batch, from 1: the dispatcher's first.
        no_stack: Why there is no stack.
    """

    function: str
    samples: Sequence[int]
    lane: str
    attempt: int
    age_s: float
    worker: int | str
    stack: str | None
    phase: Phase = "call"
    batch: int = 1
    no_stack: str | None = None

    def __str__(self) -> str:
        again = f", attempt {self.attempt}" if self.attempt > 1 else ""
        place = f"process {self.worker}" if isinstance(self.worker, int) else f"{self.worker!r}"
        head = (
            f"{self.function!r} on {_samples(self.samples)} of batch {self.batch}{again}: {_DOES[self.phase]} for "
            f"{self.age_s:.3g} s in {place} ({self.lane})"
        )
        below = f"  no stack: {self.no_stack}" if self.stack is None else self.stack.rstrip("\n")
        return f"{head}\n{below}"


class Dump(Sequence[InFlight]):
    """The calls in flight at one moment, the oldest first; ``print`` it.

    Attributes:
        waiting: Samples by function that have neither an outcome nor a call in flight: they wait
            for a place, for a retry or for their group.
        throttled: Of the functions whose samples wait for a limit, or for a server that throttles
            them: its endpoints, and for how many seconds. Without endpoints ``"the function"``,
            or ``""`` where it has no limit of its own.
        workers: Process ids of the workers alive.
        endpoints: Of each judge or reward service with several, by function: their state.
        nodes: With a cluster, of each node by name: its state, and how many calls it has of this
            dispatcher.
    """

    def __init__(
        self,
        calls: Sequence[InFlight],
        waiting: Mapping[str, int],
        workers: Sequence[int],
        endpoints: Mapping[str, Sequence[Endpoint]] = MappingProxyType({}),
        nodes: Mapping[str, tuple[str, int]] = MappingProxyType({}),
        throttled: Mapping[str, tuple[str, float]] = MappingProxyType({}),
    ) -> None:
        self._calls = tuple(sorted(calls, key=lambda call: -call.age_s))
        self.waiting = dict(waiting)
        self.workers = tuple(workers)
        self.endpoints = {name: tuple(each) for name, each in endpoints.items()}
        self.nodes = dict(nodes)
        self.throttled = dict(throttled)
        self._taken = time.time()

    def __len__(self) -> int:
        return len(self._calls)

    @overload
    def __getitem__(self, index: int) -> InFlight: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[InFlight]: ...
    def __getitem__(self, index: int | slice) -> InFlight | Sequence[InFlight]:
        return self._calls[index]

    def __str__(self) -> str:
        waiting = [
            f"{name!r}: {plural(count, 'sample')} waiting{self._why(name)}"
            for name, count in self.waiting.items()
            if count
        ]
        alive = f"{plural(len(self), 'call')} in flight, {plural(len(self.workers), 'worker process', 'worker processes')} alive"
        fleets = [
            "\n".join([f"endpoints of {name!r}:", *(f"  {one}" for one in each)])
            for name, each in self.endpoints.items()
        ]
        nodes = [
            f"{_place(name)}: {state}, has {plural(count, 'call')} of this dispatcher"
            for name, (state, count) in self.nodes.items()
        ]
        return "\n".join([alive, *map(str, self._calls), *waiting, *nodes, *fleets])

    def _why(self, name: str) -> str:
        if name not in self.throttled:
            return ""
        endpoint, seconds = self.throttled[name]
        until = time.strftime("%H:%M:%S", time.localtime(self._taken + seconds))
        why = f"waits for the limit of {endpoint}" if endpoint else "put off by its server (429) or RetryAfter"
        return f": {why} until {until} (in {seconds:.3g} s)"

    def __repr__(self) -> str:
        return f"<Dump of {plural(len(self), 'call')} in flight>"


def take(engine: Engine | None, supervisor: StackSource | None, specs: Sequence[FunctionSpec], timeout: float) -> Dump:
    """Takes a dump of this engine; without an engine an empty one."""
    if engine is None:
        return Dump((), {spec.name: 0 for spec in specs if spec.member_of is None}, ())
    calls = _here(engine, supervisor, specs)
    for one in engine.in_flight_elsewhere(timeout):
        worker = _holder(one) if one["node"] is None else _place(one["node"])
        calls.append(_call(specs, one, worker, _from_text(one["stack"]), one["no_stack"]))
    owners = {spec.name: spec.member_of or spec.name for spec in specs}
    visible = (spec.name for spec in specs if spec.member_of is None)
    waiting = dict(zip(visible, engine.open_cells(), strict=True))
    for call in calls:
        owner = owners[call.function]
        waiting[owner] = max(0, waiting[owner] - len(call.samples))
    fleets = {
        spec.name: endpoints_of(engine, index, spec.fleet) for index, spec in enumerate(specs) if spec.fleet is not None
    }
    several = {name: each for name, each in fleets.items() if len(each) > 1}
    nodes = {node["name"]: (node["state"], node["calls"]) for node in engine.nodes()}
    throttled: dict[str, tuple[str, float]] = {}
    for spec, seconds in zip(specs, engine.limit_waits(), strict=True):
        if seconds is not None and waiting[owners[spec.name]]:
            throttled.setdefault(owners[spec.name], (_place_of_limit(spec), seconds))
    return Dump(calls, waiting, engine.worker_pids(), several, nodes, throttled)


def _place_of_limit(spec: FunctionSpec) -> str:
    """The endpoints of a function's requests, or the function itself; empty without a limit."""
    if spec.fleet is None:
        return "" if spec.policy.limit is None else "the function"
    shown = [spec.fleet.shown(url) for url, _ in spec.fleet.endpoints]
    return f"{shown[0]} and {len(shown) - 1} more" if len(shown) > 1 else "".join(shown)


def _here(engine: Engine, supervisor: StackSource | None, specs: Sequence[FunctionSpec]) -> list[InFlight]:
    """The calls in flight in this process."""
    seen = engine.in_flight()
    read = [_read(one, supervisor) for one in seen]
    still = {_identity(one) for one in engine.in_flight()}
    calls = []
    for one, found in zip(seen, read, strict=True):
        if found is None:
            calls.append(_call(specs, one, _holder(one), [], one["no_stack"]))
        else:
            # A stack is shown only with the call that it belongs to.
            worker, stack = found
            goes_on = _identity(one) in still
            no_stack = "none of the user's code is on it" if goes_on else "the call ended meanwhile"
            if not has_gil():
                no_stack = "not readable on free-threaded Python"
            calls.append(_call(specs, one, worker, stack if goes_on else [], no_stack))
    return calls


def _read(one: BatchCall, supervisor: StackSource | None) -> tuple[str, list[StackFrame]] | None:
    """Returns the name of a call's thread or event loop and its stack there; None for other
    calls."""
    thread, on_loop = one["thread"], one["on_loop"]
    if supervisor is not None and thread is not None:
        number, ident = thread
        return supervisor.thread_name(one["function"], number), supervisor.stack_of_thread(ident)
    if supervisor is not None and on_loop is not None:
        return supervisor.loop_name(on_loop[0]), supervisor.stack_of_call(one)
    return None


def _holder(one: BatchCall) -> int | str:
    """Returns the process id of a call's worker, or the name of its thread, loop, server or
    node."""
    return one["place"] if one["pid"] is None else one["pid"]


def _identity(one: BatchCall) -> tuple[object, ...]:
    """Returns a key that stays the same as long as the call runs."""
    place = one["thread"], one["on_loop"]
    return one["function"], one["batch"], tuple(one["spans"]), one["phase"], one["attempt"], place


def _call(
    specs: Sequence[FunctionSpec], one: BatchCall, worker: int | str, stack: list[StackFrame], no_stack: str | None
) -> InFlight:
    ranges = [range(first, end) for first, end in one["spans"]]
    samples: Sequence[int] = ranges[0] if len(ranges) == 1 else [sample for span in ranges for sample in span]
    spec = specs[one["function"]]
    return InFlight(
        function=spec.name,
        samples=samples,
        lane=spec.lane,
        attempt=one["attempt"],
        age_s=one["age_s"],
        worker=worker,
        stack=_text(stack) if stack else None,
        phase=one["phase"],
        batch=one["batch"],
        no_stack=None if stack else no_stack,
    )


def _place(node: str) -> str:
    """Returns the name of a node beside other places; an engine that ranks share has its name."""
    return node if node.startswith("the engine ") else f"node {node}"


def with_source(stack: str) -> str:
    """A stack that comes without source lines, with those that exist here."""
    return _text(_from_text(stack))


def _from_text(stack: str | None) -> list[StackFrame]:
    """The frames of a stack that a worker wrote; the line that says that some are left out counts
    as none."""
    found = (_FRAME.fullmatch(line) for line in (stack or "").split("\n"))
    return [(match[1], int(match[2]), match[3]) for match in found if match]


def _text(stack: list[StackFrame]) -> str:
    """Returns it in the form of a traceback, with the source lines that exist."""
    frames = [
        traceback.FrameSummary(file, line, name, line=None if _is_source(file) else "") for file, line, name in stack
    ]
    return "".join(traceback.StackSummary.from_list(frames).format())


def _is_source(file: str) -> bool:
    """Returns whether lines of it may be looked up; cells of a notebook have them in memory."""
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        return True
    return stat.S_ISREG(found.st_mode) and found.st_size <= _LARGEST_SOURCE


def _samples(samples: Sequence[int]) -> str:
    if len(samples) == 1:
        return f"sample {samples[0]}"
    return f"samples {samples[0]} to {samples[-1]} ({len(samples)})" if samples else "no sample"

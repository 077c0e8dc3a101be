"""How long a step's calls take together: a simulation of lanes, cores and the interpreter's lock.

- A call computes, then waits. Calls that compute share the cores evenly; of those in the trainer's
  process that hold the interpreter's lock, one computes at a time.
- A call starts when its lane and its function have a free slot, the first in the batch first.
- Nothing else is modelled: no cold start, no rate limits of servers, no other load of the machine.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Phases", "Queue", "simulate"]

_CORES: Final = 0
_LOCK: Final = 1
_WAIT: Final = 2
_NOTHING: Final = 1e-12

Phases = tuple[float, float, float]
"""Seconds that a call computes on a core, computes with the lock, and waits."""


@dataclass
class Queue:
    """The calls of one function, in order.

    Attributes:
        calls: ``(place in the batch, phases)``.
        slots: Of its calls, how many may run at once.
        pool: Functions of one pool share its slots.
    """

    calls: Sequence[tuple[int, Phases]]
    slots: int
    pool: int


def simulate(queues: Sequence[Queue], pools: Sequence[int], cores: int) -> float:
    """Seconds until all calls have ended.

    Args:
        queues: One per function.
        pools: Slots of each pool.
        cores: Cores of the machine.
    """
    return _Simulation(queues, pools, cores).run()


class _Resource:
    """Calls that progress at one rate: each ends when the resource's own clock is at its end."""

    def __init__(self) -> None:
        self.clock = 0.0
        self.rate = 1.0
        self.ends: list[tuple[float, int, int, Phases]] = []

    def next(self) -> float:
        """Seconds until the next of them ends."""
        return max(0.0, self.ends[0][0] - self.clock) / self.rate if self.ends else float("inf")


class _Simulation:
    def __init__(self, queues: Sequence[Queue], pools: Sequence[int], cores: int) -> None:
        self._queues = queues
        self._waiting = [deque(queue.calls) for queue in queues]
        self._slots = [queue.slots for queue in queues]
        self._pools = list(pools)
        self._cores = max(1, cores)
        self._resources = (_Resource(), _Resource(), _Resource())
        self._number = 0

    def run(self) -> float:
        now = 0.0
        for pool in range(len(self._pools)):
            self._start(pool)
        while True:
            self._share()
            steps = [resource.next() for resource in self._resources]
            step = min(steps)
            if step == float("inf"):
                return now
            now += step
            for resource in self._resources:
                resource.clock += step * resource.rate
            self._end(self._resources[steps.index(step)])

    def _share(self) -> None:
        """The rates, by what computes now."""
        cores, lock, _ = self._resources
        computing = len(cores.ends) + (1 if lock.ends else 0)
        each = min(1.0, self._cores / computing) if computing else 1.0
        cores.rate = each
        lock.rate = each / max(1, len(lock.ends))

    def _end(self, resource: _Resource) -> None:
        """The first phase of this resource ends: the call's next one begins, or the call has
        ended."""
        _, _, function, rest = heapq.heappop(resource.ends)
        if not self._enter(function, rest):
            self._slots[function] += 1
            pool = self._queues[function].pool
            self._pools[pool] += 1
            self._start(pool)

    def _enter(self, function: int, phases: Phases) -> bool:
        for kind in (_CORES, _LOCK, _WAIT):
            if phases[kind] > _NOTHING:
                resource = self._resources[kind]
                self._number += 1
                rest = (0.0, phases[1] if kind < _LOCK else 0.0, phases[2] if kind < _WAIT else 0.0)
                heapq.heappush(resource.ends, (resource.clock + phases[kind], self._number, function, rest))
                return True
        return False

    def _start(self, pool: int) -> None:
        """Starts what has a slot, the first in the batch first."""
        while self._pools[pool] > 0:
            ready = [
                (waiting[0][0], function)
                for function, waiting in enumerate(self._waiting)
                if waiting and self._slots[function] > 0 and self._queues[function].pool == pool
            ]
            if not ready:
                return
            _, function = min(ready)
            _, phases = self._waiting[function].popleft()
            if self._enter(function, phases):
                self._slots[function] -= 1
                self._pools[pool] -= 1

"""The process that does the harm in the chaos soak: kills, stops and starves the workers of one
trainer, at random.

    python -m tests.stress.chaos_process TRAINER SEED RATE LONGEST

What it does, when, to which of the processes there are, and for how long is drawn from the seed
alone. It says when it begins, writes a line of JSON for each thing it did, and ends when its
standard input does; whatever it stopped then goes on.
"""

from __future__ import annotations

import heapq
import json
import os
import random
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

# What is done to whom, and how often beside the others.
ACTIONS = {
    ("kill", "worker"): 30,
    ("stop", "worker"): 25,
    ("stop long", "worker"): 8,
    ("starve", "worker"): 12,
    ("burn", "machine"): 8,
    ("kill", "loader"): 3,
    ("kill", "stem"): 2,
    ("stop", "loader"): 3,
    ("stop", "stem"): 3,
}
BURNERS = 3


class Step(NamedTuple):
    """One line of the schedule.

    Attributes:
        wait: Seconds since the step before.
        action: What to do.
        to: To whom.
        which: In [0, 1), where the victim stands among all.
        seconds: How long.
    """

    wait: float
    action: str
    to: str
    which: float
    seconds: float


def schedule(seed: int, rate: float, longest: float) -> Iterator[Step]:
    """What the seed says, without end: about `rate` steps a second; a long stop takes `longest`
    seconds."""
    chance = random.Random(seed)
    while True:
        (action, to), *_ = chance.choices(list(ACTIONS), weights=list(ACTIONS.values()))
        seconds = longest if action == "stop long" else chance.uniform(0.001, 0.2)
        yield Step(chance.expovariate(rate), action, to, chance.random(), seconds)


class Tree(NamedTuple):
    """The engine's processes, oldest first."""

    stem: list[int]
    loader: list[int]
    worker: list[int]


def tree(trainer: int) -> Tree:
    """The zygote's stem is a child of the trainer, its loader a child of that; workers are children
    of either, and print elsewhere."""
    stems = [pid for pid in children(trainer) if is_ours(pid)]
    shown = {output(pid) for pid in stems}
    below = [pid for stem in stems for pid in children(stem) if is_ours(pid)]
    loaders = [pid for pid in below if output(pid) in shown]
    workers = [pid for pid in below if output(pid) not in shown | {""}]
    return Tree(stems, loaders, workers + [pid for one in below for pid in children(one) if is_ours(pid)])


def output(pid: int) -> str:
    """Where it prints to; empty if it ended."""
    try:
        return os.readlink(f"/proc/{pid}/fd/1")
    except OSError:
        return ""


def children(pid: int) -> list[int]:
    """Of all its threads, by their numbers."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, path.read_text().split())
        except OSError:  # the thread ended
            continue
    return sorted(found)


def is_ours(pid: int) -> bool:
    try:
        return b"_zygote.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@contextmanager
def hold(pid: int) -> Iterator[int]:
    """A descriptor of the process, -1 if it is none of the engine's any more; signals through it
    can't meet another."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        yield -1
        return
    try:
        yield descriptor if is_ours(pid) else -1
    finally:
        os.close(descriptor)


class Chaos:
    """Does what the schedule says."""

    def __init__(self, trainer: int) -> None:
        self._trainer = trainer
        # When to let a stopped process go on: (time, pid).
        self._stopped: list[tuple[float, int]] = []
        self._burners: list[int] = []

    def run(self, steps: Iterator[Step]) -> None:
        due = time.monotonic()
        for step in steps:
            due += step.wait
            while (left := due - time.monotonic()) > 0:
                if self._stopped:
                    left = min(left, max(0.0, self._stopped[0][0] - time.monotonic()))
                if select.select([sys.stdin], [], [], left)[0]:
                    return
                self._go_on(time.monotonic())
            self._do(step)
            # What took long is not made up for: the engine would only see a hail of it.
            due = max(due, time.monotonic() - 0.1)

    def end(self) -> None:
        self._go_on(float("inf"))
        for pid in self._burners:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _do(self, step: Step) -> None:
        if step.action == "burn":
            self._burn(step.seconds)
            self._say(step, 0)
            return
        victims = getattr(tree(self._trainer), step.to)
        if not victims:
            return
        pid = victims[int(step.which * len(victims))]
        try:
            if step.action == "starve":
                os.setpriority(os.PRIO_PROCESS, pid, 19)
            elif not self._signal(pid, signal.SIGKILL if step.action == "kill" else signal.SIGSTOP):
                return
        except OSError:  # it ended
            return
        if step.action.startswith("stop"):
            heapq.heappush(self._stopped, (time.monotonic() + step.seconds, pid))
        self._say(step, pid)

    def _go_on(self, now: float) -> None:
        while self._stopped and self._stopped[0][0] <= now:
            _, pid = heapq.heappop(self._stopped)
            self._signal(pid, signal.SIGCONT)
        for pid in list(self._burners):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self._burners.remove(pid)

    def _burn(self, seconds: float) -> None:
        for _ in range(BURNERS):
            pid = os.fork()
            if pid == 0:
                until = time.monotonic() + seconds
                while time.monotonic() < until:
                    pass
                os._exit(0)
            self._burners.append(pid)

    @staticmethod
    def _signal(pid: int, number: int) -> bool:
        with hold(pid) as descriptor:
            if descriptor < 0:
                return False
            try:
                signal.pidfd_send_signal(descriptor, number)
            except OSError:
                return False
            return True

    @staticmethod
    def _say(step: Step, pid: int) -> None:
        line = {"at": time.monotonic(), "action": step.action, "to": step.to, "pid": pid, "seconds": step.seconds}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def main() -> None:
    trainer, seed, rate, longest = sys.argv[1:]
    chaos = Chaos(int(trainer))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    try:
        chaos.run(schedule(int(seed), float(rate), float(longest)))
    finally:
        chaos.end()


if __name__ == "__main__":
    main()

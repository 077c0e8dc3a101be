"""Processes and descriptors, as the kernel shows them. Every environment of tests has this module:
it needs nothing but the standard library."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def runs(pid: int) -> bool:
    """Returns whether a process lives; an ended orphan may wait a while for init to reap it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] not in "ZX"


def gone(pids: list[int]) -> bool:
    return not any(runs(pid) for pid in pids)


def descriptors() -> dict[int, str]:
    """The open descriptors of this process, and what they lead to."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # the listing's own
            continue
    return found


def eventfds() -> int:
    """Counts the descriptors that wake somebody who waits, without those of garbage."""
    gc.collect()
    return sum("eventfd" in target for target in descriptors().values())


@contextmanager
def without_collector() -> Iterator[None]:
    """Turns Python's garbage collector off: an object ends because nothing refers to it."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _command(program: str | Path, arguments: tuple[object, ...], flags: Sequence[str] = ()) -> list[str]:
    start = [str(program)] if isinstance(program, Path) else ["-c", textwrap.dedent(program)]
    return [sys.executable, *flags, *start, *map(str, arguments)]


@contextmanager
def started_python(
    program: str | Path, *arguments: object, says: str | None = None, **options: Any
) -> Iterator[subprocess.Popen[str]]:
    """Starts a program of its own, source text or a file, which ends with the block at the latest.

    Args:
        says: The first line that it prints, which is waited for.
        options: Of `subprocess.Popen`.
    """
    with subprocess.Popen(
        _command(program, arguments), **{"stdout": subprocess.PIPE, "text": True, **options}
    ) as started:
        try:
            if says is not None:
                assert started.stdout is not None
                assert started.stdout.readline() == f"{says}\n"
            yield started
        finally:
            started.kill()


def run_python(program: str | Path, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a program of its own, which has to end well, and returns its streams.

    Args:
        program: Source text, which may be indented, or a file.
        options: Of `subprocess.run`; ``env`` is beside this process's variables, ``prefix`` stands
            before the interpreter and ``flags`` behind it.
    """
    command = [*options.pop("prefix", ()), *_command(program, arguments, options.pop("flags", ()))]
    env, timeout = {**os.environ, **options.pop("env", {})}, options.pop("timeout", 250)
    ended = subprocess.run(
        command, env=env, capture_output=True, text=True, errors="replace", timeout=timeout, check=False, **options
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended

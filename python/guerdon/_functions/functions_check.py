"""Checks that functions can run on this machine, before any call: they are imported, and their
`setup()` runs, in a process like a worker's.

It ends in bounded time and leaves nothing behind, whatever user code does: what it writes goes to a
file, as somebody may hold a pipe open for ever.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
from collections.abc import Callable, Mapping
from typing import IO, Any, Final

from guerdon.errors import RegistrationError

__all__ = ["check"]

_END_S: Final = 5.0
"""Time in which the process must end its children after SIGTERM."""
_MOST_BYTES: Final = 4 << 20
"""Longest part of its lines; more comes from user code."""


def check(
    python: str,
    folder: str,
    functions: bytes,
    environment: Mapping[bytes, bytes],
    timeout: float,
    begun: Callable[[subprocess.Popen[bytes]], object] | None = None,
) -> None:
    """Refuses functions that can't run on this machine.

    Args:
        python: The interpreter of workers.
        folder: That of their program.
        functions: What they load.
        environment: All of theirs.
        timeout: Seconds that the functions may take together.
        begun: Called with the process once it runs: its SIGTERM ends the check.

    Raises:
        RegistrationError: One can't; each with its reason.
        OSError: No process can be started.
    """
    # Not a file in a folder: no folder may be writable.
    with os.fdopen(os.memfd_create("guerdon-check"), "w+b") as output:
        command = [python, os.path.join(folder, "_zygote.py"), "check", str(os.getpid())]
        in_time = _run(command, functions, environment, output, timeout, begun)
        found = _answers(output, len(pickle.loads(functions)["functions"]))
    missing = "ended the process that loaded it" if in_time else f"was not ready within {round(timeout, 1):g} s"
    reasons = {index: entry.get("error", missing) for index, entry in found.items()}
    wrong = [f"{_name(functions, index)} {why}" for index, why in reasons.items() if why is not None]
    if wrong or not found:
        raise RegistrationError("; ".join(wrong) or f"the first function {missing}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Sends SIGTERM, at which the process ends its descendants, then kills the rest."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()


def _run(
    command: list[str],
    functions: bytes,
    environment: Mapping[bytes, bytes],
    output: IO[bytes],
    timeout: float,
    begun: Callable[[subprocess.Popen[bytes]], object] | None,
) -> bool:
    """Returns whether the process ended in time; after it no process of its group is left."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=output, env=dict(environment), start_new_session=True
    )
    try:
        if begun is not None:
            begun(process)
        process.communicate(functions, timeout=timeout)
        return True
    except subprocess.TimeoutExpired:
        return False
    finally:
        _end(process)


def _answers(output: IO[bytes], functions: int) -> dict[int, dict[str, Any]]:
    """Returns the last line about each function; output of user code in between is skipped."""
    output.seek(0)
    found: dict[int, dict[str, Any]] = {}
    for line in output.read(_MOST_BYTES).splitlines():
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and entry.get("function") in range(functions):
            found[entry["function"]] = entry
    return found


def _name(functions: bytes, index: int) -> str:
    return f"reward function {pickle.loads(functions)['functions'][index]['recipe']['name']!r}"

"""The last check of a node before any call: its functions are imported, and their `setup()` runs,
in a process like a worker's.

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
import tempfile
import time
from typing import IO, TYPE_CHECKING, Any, Final

from guerdon.errors import RegistrationError

if TYPE_CHECKING:
    from guerdon._cluster.agent import NodeAgent

__all__ = ["check_functions"]

_END_S: Final = 5.0
"""How long the process may take to end what it started, when asked to."""
_MOST_BYTES: Final = 4 << 20
"""Of its lines; more comes from user code."""


def check_functions(agent: NodeAgent, timeout: float) -> None:
    """Refuses functions that can't run on this machine.

    Args:
        agent: The one that is to run them.
        timeout: Seconds that they may take together.

    Raises:
        RegistrationError: One can't; each with its reason.
    """
    # All that functions name in env=: each of them may need some in its setup().
    named = dict(pair for options in agent.content.functions for pair in options.get("env", ()))
    end = time.monotonic() + timeout
    for functions, environment in (
        (agent.functions, dict(agent.environment) | named),
        (agent.own_functions, dict(os.environb)),
    ):
        if functions is not None:
            _check(agent, functions, environment, timeout, end)


def _check(agent: NodeAgent, functions: bytes, environment: dict[bytes, bytes], timeout: float, end: float) -> None:
    with tempfile.TemporaryFile() as output:
        in_time = _run(agent, functions, environment, output, max(0.0, end - time.monotonic()))
        found = _answers(output, len(pickle.loads(functions)["functions"]))
    missing = "ended the process that loaded it" if in_time else f"was not ready within {timeout:g} s"
    reasons = {index: entry.get("error", missing) for index, entry in found.items()}
    wrong = [f"{_name(functions, index)} {why}" for index, why in reasons.items() if why is not None]
    if wrong or not found:
        raise RegistrationError("; ".join(wrong) or f"the first function {missing}")


def _run(
    agent: NodeAgent, functions: bytes, environment: dict[bytes, bytes], output: IO[bytes], timeout: float
) -> bool:
    """Whether the process ended in time; after it no process of its group is left."""
    process = subprocess.Popen(
        [agent.python, os.path.join(agent.worker_dir, "_zygote.py"), "check"],
        stdin=subprocess.PIPE,
        stdout=output,
        env=environment,
        start_new_session=True,
    )
    try:
        process.communicate(functions, timeout=timeout)
        return True
    except subprocess.TimeoutExpired:
        return False
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Asks it to end all that it started, then ends what is left of it."""
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


def _answers(output: IO[bytes], functions: int) -> dict[int, dict[str, Any]]:
    """The last line about each function; what user code wrote among them is skipped."""
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

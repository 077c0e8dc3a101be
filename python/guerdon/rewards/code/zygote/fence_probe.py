"""Tries forbidden acts in a fenced child, and what honest programs do, in a process of its
own: never in the trainer.

- `probe` returns the level that holds here, found once a process. `attempts` starts the process
  that tries the acts, which begins at `main`.
- The process that acts are tried on keeps out of the fences; the one that prepares them is its
  child, and ends with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from guerdon._worker.linux import exit_with_parent, reset_signals
from guerdon.errors import RegistrationError
from guerdon.rewards.code.zygote.acts import ACTS, Missing, Targets
from guerdon.rewards.code.zygote.allowed_acts import abilities
from guerdon.rewards.code.zygote.fence import FenceSpec, PreparedFence, prepare
from guerdon.rewards.code.zygote.level import Attempt, Level, checked_level

__all__ = ["FenceTrial", "ProbeError", "attempts", "main", "probe"]

_BOOT: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); from guerdon.rewards.code.zygote.fence_probe import main; "
    "exec(sys.argv[3]); main(sys.argv[2])"
)
_TOTAL_S: Final = 120.0
# Time of one act, which takes milliseconds. An act that does not end is killed, and counts as not
# refused.
_ACT_S: Final = 10.0


class ProbeError(RuntimeError):
    """The fences could not be tried."""


@dataclass(frozen=True)
class FenceTrial:
    """All acts, for each layer whether it holds, with a remark, and the acts that an honest program
    can't do."""

    layers: dict[str, tuple[bool, str]]
    acts: tuple[Attempt, ...]
    shortcomings: tuple[str, ...] = ()


@cache
def probe(spec: FenceSpec) -> Level:
    """The level that holds on this machine.

    Raises:
        RegistrationError: Something forbidden succeeded under ``"strict"``, could not be tried, or
            honest programs can't do their work there.
    """
    if spec.isolation == "none":
        return Level("none")
    try:
        found = attempts(spec)
    except ProbeError as error:
        raise RegistrationError(f'code_reward: isolation="strict" could not be tried here: {error}') from error
    level = checked_level(found.layers, found.acts)
    if found.shortcomings:
        raise RegistrationError(
            f'code_reward: isolation="strict" keeps honest programs from their work here: none can {found.shortcomings[0]}'
        )
    return level


def attempts(spec: FenceSpec, setup: str = "") -> FenceTrial:
    """Try all acts on this machine, with fences as in `spec`.

    Args:
        spec: What programs may do.
        setup: Python that the probe's process runs first: for tests, which take rights from it.

    Raises:
        ProbeError: A child could not be fenced, or the probe did not end.
    """
    where = str(Path(__file__).resolve().parents[4])
    command = [sys.executable, "-s", "-c", _BOOT, where, json.dumps(asdict(spec)), setup]
    kept = {name: os.environ[name] for name in ("HOME", "LD_LIBRARY_PATH", "TMPDIR") if name in os.environ}
    try:
        run = subprocess.run(
            command, env=kept, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, timeout=_TOTAL_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProbeError(str(error)) from error
    try:
        answer: dict[str, Any] = json.loads(run.stdout)
    except ValueError:
        report = run.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ProbeError(report[-1] if report else f"it ended with status {run.returncode}") from None
    if "error" in answer:
        raise ProbeError(answer["error"])
    layers = {name: (bool(holds), str(text)) for name, (holds, text) in answer["layers"].items()}
    acts = [Attempt(name, tuple(refusing), outcome, detail) for name, refusing, outcome, detail in answer["acts"]]
    return FenceTrial(layers, tuple(acts), tuple(map(str, answer["shortcomings"])))


def main(spec: str) -> None:
    """Runs in the probe's process: prints the answer."""
    reset_signals()
    given = json.loads(spec)
    with _targets(FenceSpec(**given)) as targets:
        pid = os.fork()
        if pid == 0:
            try:
                exit_with_parent(targets.outer)
                answer = _tried(FenceSpec(**given), targets)
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            os.write(1, json.dumps(answer).encode())
            os._exit(0)
        os.waitpid(pid, 0)


@contextlib.contextmanager
def _targets(spec: FenceSpec) -> Iterator[Targets]:
    """Makes targets for the acts, open to everyone: only the fences are in the way."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="guerdon-probe-"))
        canary = Path(folder, "canary")
        canary.write_text("x")
        os.chmod(canary, 0o666)
        os.chmod(folder, 0o777)
        tcp = stack.enter_context(socket.socket())
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        inherited = stack.enter_context(canary.open("rb"))
        yield Targets(
            outer=os.getpid(),
            zygote=0,
            sibling=0,
            folder=folder,
            tcp=tcp.getsockname()[1],
            inherited=os.dup(inherited.fileno()),
            own=None,
            spec=spec,
        )


def _tried(spec: FenceSpec, targets: Targets) -> dict[str, object]:
    prepared = prepare(spec)
    lacking = []
    for ability in abilities(prepared.folder, spec):
        outcome, detail = _try(prepared, ability.attempt)
        if outcome != "succeeded":
            lacking.append(f"{ability.name} ({detail[:300]}): {ability.advice}")
    sibling = _start_sibling(prepared)
    targets = replace(targets, zygote=os.getpid(), sibling=sibling, own=prepared.folder)
    layers, acts = prepared.layers, []
    try:
        for act in ACTS:
            outcome, detail = _try(prepared, partial(act.attempt, targets))
            if outcome == "ended":  # its abilities are unknown
                raise ProbeError(f"the process that tried to {act.name} {detail}")
            # One that does not end was refused nothing.
            acts.append((act.name, act.layers, "succeeded" if outcome == "hung" else outcome, detail))
    finally:
        os.kill(sibling, signal.SIGKILL)
        os.waitpid(sibling, 0)
    return {"layers": layers, "acts": acts, "shortcomings": lacking}


def _start_sibling(prepared: PreparedFence) -> int:
    theirs, ours = os.pipe()
    pid = prepared.fork()
    if pid == 0:
        try:
            prepared.enter((0, 1, 2, ours))
            os.write(ours, b"x")
            time.sleep(2 * _TOTAL_S)
        finally:
            os._exit(0)
    os.close(ours)
    os.read(theirs, 1)
    os.close(theirs)
    return pid


def _try(prepared: PreparedFence, attempt: Callable[[], object]) -> tuple[str, str]:
    """Tries an act in a separate child: its outcome, and the reason."""
    theirs, ours = os.pipe()
    pid = prepared.fork()
    if pid == 0:
        _attempt(prepared, attempt, ours)
    os.close(ours)
    report = b"hung did not end"
    try:
        if select.select([theirs], [], [], _ACT_S)[0]:
            report = os.read(theirs, 4096)
    finally:
        os.close(theirs)
        os.kill(pid, signal.SIGKILL)
        _, ended = os.waitpid(pid, 0)
    prepared.clear_folder()
    outcome, _, detail = report.decode("utf-8", "replace").partition(" ")
    if outcome == "unfenced":
        raise ProbeError(f"a child could not be fenced: {detail}")
    return (outcome, detail) if outcome else ("ended", f"ended: {os.waitstatus_to_exitcode(ended)}")


def _attempt(prepared: PreparedFence, attempt: Callable[[], object], pipe: int) -> None:
    report = "unfenced it ended"
    try:
        prepared.enter((0, 1, 2, pipe))
        report = "refused"
        attempt()
        report = "succeeded"
    except Missing as reason:
        report = f"missing {reason}"
    except BaseException as error:  # refused, in whatever way, or not even fenced
        report = f"{report.partition(' ')[0]} {type(error).__name__}: {error}"
    finally:
        os.write(pipe, report.encode("utf-8", "replace")[:4000])
        os._exit(0)

"""The zygote as its driver sees it: started when first needed, started again when it is lost.

- Its methods raise a `ZygoteLostError` where it is gone: that is not a program's fault.
- One program at a time: `fork`, then `end`, which leaves nothing of it behind.
- A forked copy of the driver's process has no zygote: it starts its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from guerdon.errors import DataError
from guerdon.rewards.code.child.child import ENTERED, PRELUDE
from guerdon.rewards.code.zygote.deadline import Deadline
from guerdon.rewards.code.zygote.fence import ONE_ARENA, FenceSpec
from guerdon.rewards.code.zygote.zygote import ANSWER, CLEAR, FAILED, FORK, KILL, TIME

__all__ = ["AGAIN_S", "START_S", "ProgramEnd", "ProgramZygote", "ZygoteLostError"]

START_S: Final = 60.0
AGAIN_S: Final = 20.0
"""Seconds for a start while programs wait, whose time has room for no more."""
# Time for a process to reach its program, which takes milliseconds. One that is killed sooner had
# too little time left; one that took longer met a fault of this machine's.
_ENTER_S: Final = 0.2
# Time from the kill of a process to its end: what the kernel needs to free its memory.
_END_S: Final = 20.0
# A process that waits is not displaced; one that computes is, after some milliseconds each time.
_DISPLACED_A_SECOND: Final = 2
# Variable that the interpreter needs again: where shared libraries are, as a user's shell sets it.
_KEPT: Final = ("LD_LIBRARY_PATH",)
_BOOT: Final = (
    "import sys, json; sys.path[:] = [one for one in sys.path if one]; where = sys.argv[1]; "
    "added = where not in sys.path; sys.path[:0] = [where] * added; "
    "from guerdon.rewards.code.zygote.zygote import main; sys.path[:1] = [] if added else sys.path[:1]; "
    "given = json.loads(sys.argv[2]); del sys.argv[1:]; main(*given)"
)


class ZygoteLostError(RuntimeError):
    """The zygote could not be started, or ended: programs can't be run."""


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """End of a program's process.

    Attributes:
        status: Its exit status; negative the signal that ended it.
        seconds: Of a processor that it used.
        displaced: How often others took that from it.
    """

    status: int
    seconds: float
    displaced: int

    def was_starved(self, deadline: Deadline) -> bool:
        """Says whether others had most of the time until that."""
        few = self.seconds < deadline.seconds / 2
        return few and self.displaced > _DISPLACED_A_SECOND * deadline.passed()


class ProgramZygote:
    """A zygote with these fences, of which some layers must hold; see the module."""

    def __init__(self, fence: FenceSpec, held: Sequence[str] = ()) -> None:
        self._fence = fence
        self._held = tuple(held)
        self._forked = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._owner = 0
        self._running = False
        self._kept: bytes | None = None  # a report of an end that came with another answer

    def start(self, seconds: float = START_S) -> None:
        """Start it, if it does not run, within these seconds."""
        if self._process is not None and self._owner == os.getpid() and self._process.poll() is None:
            return
        self.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # The kernel ends a process with the thread that forked it.
        parent = os.getpid() if threading.current_thread() is threading.main_thread() else 0
        given = [theirs.fileno(), parent, json.dumps(asdict(self._fence))]
        where = str(Path(__file__).resolve().parents[4])
        # One hash seed for all: a program's sets have the same order in each run.
        environment = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1", **ONE_ARENA}
        environment |= {name: os.environ[name] for name in _KEPT if name in os.environ}
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-s", "-c", _BOOT, where, json.dumps(given)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environment,
                cwd="/",
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise ZygoteLostError(f"no interpreter for programs: {error}") from error
        finally:
            theirs.close()
        self._control, self._owner, self._running = ours, os.getpid(), False
        answer = self._receive(time.monotonic() + seconds)
        if answer is None:
            why = f"it did not start within {seconds:g} s"
        elif answer[:1] == FAILED or len(answer) < ANSWER.size:
            why = answer[1:].decode("utf-8", "replace") or "it did not start"
        else:
            holds = json.loads(answer[ANSWER.size :])
            missing = [name for name in self._held if name not in holds]
            if not missing:
                return
            why = f"of its fences {' and '.join(missing)} held when this reward was made, and not in it"
        self.close()
        raise ZygoteLostError(f"the process that starts programs ended: {why}")

    def fork(self, mode: str, descriptors: Sequence[int]) -> None:
        """A process for a program, with these descriptors as 0, 1, 2 and so on."""
        if self._running and self._owner == os.getpid() and self._control is not None:
            with contextlib.suppress(ZygoteLostError, DataError):
                self.end()  # the call that waited for it was interrupted
        self._send(FORK + mode.encode(), descriptors)
        self._running, self._kept = True, None
        self._forked = time.monotonic()

    def clear_folder(self) -> None:
        """Empty the folder of programs, for the next that is forked."""
        self._send(CLEAR)

    def _send(self, request: bytes, descriptors: Sequence[int] = ()) -> None:
        self.start(AGAIN_S)
        assert self._control is not None
        try:
            socket.send_fds(self._control, [request], list(descriptors))
        except OSError as error:
            self.close()
            raise ZygoteLostError(f"the process that starts programs is gone: {error}") from error

    @property
    def ended(self) -> bool:
        """Whether its end was told while `used` was asked for."""
        return self._kept is not None

    def used(self) -> float:
        """Seconds of a processor that the program's process used so far."""
        if self._control is None or self._kept is not None:
            return 0.0
        with contextlib.suppress(OSError):
            self._control.send(TIME)
        while answer := self._receive(time.monotonic() + _END_S):
            if answer[:1] == TIME:
                return float(ANSWER.unpack(answer)[1])
            self._kept = answer
        self.close()
        raise ZygoteLostError("the process that starts programs ended")

    @property
    def running(self) -> bool:
        """Returns whether there is a program's process whose end was not reported yet."""
        return self._running

    def fileno(self) -> int:
        """Readable when the program's process has ended."""
        assert self._control is not None
        return self._control.fileno()

    def end(self, deadline: float | None = None) -> ProgramEnd | None:
        """Wait for the end of the program's process; None if it still runs at `deadline`.

        It is killed if there is no deadline. A process that ended before it came to the program is
        as lost as a zygote.

        Raises:
            DataError: The prelude failed, before the program ran.
        """
        if self._control is None:
            raise ZygoteLostError("the process that starts programs ended")
        if deadline is None:
            with contextlib.suppress(OSError):
                self._control.send(KILL)
        answer, self._kept = self._kept, None
        answer = answer or self._receive(time.monotonic() + _END_S if deadline is None else deadline)
        if answer is None:
            if deadline is not None:
                return None
            self.close()
            raise ZygoteLostError(f"a program did not end within {_END_S:g} s of its kill")
        if answer[:1] == FAILED or len(answer) < ANSWER.size:
            self.close()
            why = answer[1:].decode("utf-8", "replace")
            raise ZygoteLostError(f"the process that starts programs ended{': ' if why else ''}{why}")
        self._running = False
        _, seconds, displaced, status = ANSWER.unpack_from(answer)
        code, reported = os.waitstatus_to_exitcode(status), answer[ANSWER.size :]
        failed = ENTERED + PRELUDE
        if reported.startswith(failed):
            raise DataError(f"prelude can't be run: {reported.removeprefix(failed).decode('utf-8', 'replace')}")
        in_time = time.monotonic() - self._forked < _ENTER_S
        if reported != ENTERED and (reported or deadline is not None or not in_time):
            how = reported.removeprefix(ENTERED).decode("utf-8", "replace") or f"it ended with status {code}"
            raise ZygoteLostError(f"a program could not be started: {how}")
        return ProgramEnd(code, seconds, displaced)

    def close(self) -> None:
        """End it, and the program that it runs."""
        process, control = self._process, self._control
        running, self._running = self._running, False
        self._process = self._control = None
        if control is not None:
            control.close()
        if process is None or self._owner != os.getpid():
            return
        try:
            process.wait(_END_S if running else 2.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _receive(self, deadline: float) -> bytes | None:
        """The next answer; None if nothing comes by then, empty if nothing will come."""
        assert self._control is not None
        left = max(0.0, deadline - time.monotonic())
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        if not poll.poll(left * 1000):
            return None
        try:
            return self._control.recv(8192)
        except OSError:
            return b""

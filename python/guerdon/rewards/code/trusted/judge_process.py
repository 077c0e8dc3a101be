"""Main module of the process of a `Judge`: it makes one judgement after the other."""

from __future__ import annotations

import fcntl
import logging
import mmap
import os
import pickle
import resource
import select
import signal
import sys
from typing import Any, Final

from guerdon._worker import linux
from guerdon.rewards.code.child.frames import receive_blocking, send_blocking
from guerdon.rewards.code.trusted.judge_state import SIZE, JudgeState
from guerdon.rewards.code.trusted.scorer import CodeScorer, Judging

__all__ = ["main"]

_F_SETSIG: Final = 10  # missing in Python's fcntl
# For what it makes of the cases, the tests and what programs gave: some GB, so that no program has
# its tests fill the machine; and for each byte of output.
_MEMORY: Final = 2 << 30
_OF_OUTPUT: Final = 40


def main(channel: int, page: int, parent: int) -> None:
    """Answer until the channel is closed.

    Args:
        page: Where `JudgeState` is kept.
        parent: The process to end with; 0 where only the channel tells of its end.
    """
    linux.reset_signals()
    for each in (channel, page):
        os.set_inheritable(each, False)  # what functions of the user's start must not hold them
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if parent:
        linux.exit_with_parent(parent)
    _exit_with_stdin()
    state = JudgeState.from_buffer(mmap.mmap(page, SIZE))
    scorer: CodeScorer | None = None
    logged = _Logged()
    log = logging.getLogger("guerdon")
    log.addHandler(logged)
    log.propagate = False
    while (message := receive_blocking(channel)) is not None:
        try:
            what, given = pickle.loads(message)
            if what == "begin":  # the first
                path, judging = given
                scorer, answer = _scorer(path, judging, state), (True, None)
            else:
                answer = True, getattr(scorer, what)(*given)
        except BaseException as error:
            answer = False, _sendable(error)
        send_blocking(channel, pickle.dumps((*answer, logged.taken())))
    if scorer is not None:
        scorer.close()


def _exit_with_stdin() -> None:
    """The kernel kills this process when the pipe on standard input closes.

    Standard input is empty from now on.
    """
    pipe = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
    with open(os.devnull, "rb") as empty:
        os.dup2(empty.fileno(), 0)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([pipe], [], [], 0)[0]:  # closed already
        os._exit(1)


def _scorer(path: list[str], pickled: bytes, state: JudgeState) -> CodeScorer:
    sys.path[:] = path
    judging: Judging = pickle.loads(pickled)
    if not judging.has_functions:  # these may load what they need
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        limit = _MEMORY + _OF_OUTPUT * judging.rules.max_output
        resource.setrlimit(resource.RLIMIT_DATA, (limit if most < 0 else min(limit, most), most))
    return CodeScorer(judging, state)


class _Logged(logging.Handler):
    """Records since they were last taken."""

    def __init__(self) -> None:
        super().__init__()
        self._records: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append((record.levelno, record.getMessage()))

    def taken(self) -> list[tuple[int, str]]:
        records, self._records = self._records, []
        return records


def _sendable(error: BaseException) -> Any:
    """Returns the exception, or one with its text if it can't be sent or must not be raised
    elsewhere."""
    try:
        if isinstance(error, Exception):
            pickle.loads(pickle.dumps(error))
            return error
    except Exception:
        pass
    return RuntimeError(f"{type(error).__name__}: {error}")

"""`Judge`: judgements are made in a separate process, which is killed if it does not end.

- Tests and functions of the user's run there, with the program's values. Once the program has
  answered, a hang or crash there is 0.0: a program must not decide whether it is judged.
- The process is started when first needed, and again after it was killed. It ends with this one.
- Its warnings are logged here.
"""

from __future__ import annotations

import logging
import mmap
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from guerdon._functions.serialization.function_pickler import dumps
from guerdon._functions.stateful import StatefulReward
from guerdon.errors import DataError
from guerdon.rewards.code.child.frames import receive_blocking, send_blocking
from guerdon.rewards.code.trusted.judge_state import COMPARE, EXTRACT, REFERENCE, SIZE, TESTS, JudgeState
from guerdon.rewards.code.trusted.judgement import Judgement
from guerdon.rewards.code.trusted.scorer import CodeScorer, Judging
from guerdon.rewards.code.trusted.warn_once import warn_of_compare, warn_of_extract, warn_once
from guerdon.rewards.code.zygote.script_run import signal_name
from guerdon.rewards.code.zygote.zygote_process import ZygoteLostError

__all__ = ["BESIDE_S", "EndedError", "Judge"]

BESIDE_S: Final = 15.0
"""Time for tests and functions of the user's beside that of a program."""
REFERENCE_S: Final = 5.0
"""Has a function ``compare=`` compare the expected value with itself."""
# Functions of the user's may load what they need.
_LONGEST_START_S: Final = 300.0
_END_S: Final = 20.0
# Between two looks at a judge that has used nearly all of its time.
_LEAST_WAIT_S: Final = 0.05
_BOOT: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); from guerdon.rewards.code.trusted.judge_process import main; "
    "del sys.path[0]; main(*map(int, sys.argv[2:]))"
)


class EndedError(Exception):
    """The judge was killed, or ended by itself: how, in words."""


class Judge(StatefulReward):
    """Judges completions; see the module. A worker of the code lane runs it."""

    def __init__(self, judging: Judging) -> None:
        self.judging = judging
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        return {"judging": self.judging}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def setup(self) -> None:
        """Start the process, and the zygote in it."""
        try:
            self._ask("setup", _LONGEST_START_S)
        except EndedError as error:
            raise ZygoteLostError(f"the process that judges could not be started: {error}") from None

    def score(self, **row: Any) -> dict[str, Any]:
        """The judgement on one completion, as fields."""
        return {**self.judge(row).fields(), "isolation": self.judging.level.name}

    def judge(self, row: Mapping[str, Any]) -> Judgement:
        """The judgement on one completion."""
        for again in (False, True):
            try:
                judgement: Judgement = self._ask("judge", BESIDE_S, row)
                return judgement
            except EndedError as error:
                if self._state.waits and not again:
                    continue  # perhaps by chance: it had none of the program's values
                found = self._without_end(row, str(error))
                if found is not None:
                    return found
                if again:  # the same fault twice is not chance
                    raise ZygoteLostError(f"the process that judges {error}") from None
        raise AssertionError

    def close(self) -> None:
        """End it, and what it runs."""
        process = self._process
        if self._here is not None:
            self._here.close()
        if process is not None and self._owner == os.getpid():
            assert self._channel is not None
            with suppress(OSError):
                self._channel.shutdown(socket.SHUT_RDWR)  # forked children hold copies
            self._channel.close()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._kill()
            assert process.stdin is not None
            process.stdin.close()
        self._forget()

    def _forget(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._state = JudgeState()
        self._here: CodeScorer | None = None  # judges in this process
        self._owner = 0

    def _without_end(self, row: Mapping[str, Any], how: str) -> Judgement | None:
        """Returns the judgement on a program whose judge ended without one; None if the program is
        not to blame."""
        last = self._state
        share = last.passed / last.cases if last.cases and self.judging.rules.score == "share" else 0.0
        case = f"case {last.place}: " if last.place >= 0 else ""
        if last.act == EXTRACT:
            if not callable(self.judging.extract):
                return Judgement(0.0, reason=f"looking for the program {how}")
            why = f"the function extract= {how}"
            warn_of_extract("end", why)
            return Judgement(0.0, reason=why)
        if last.act == REFERENCE:
            raise DataError(f"compare {how} on what is expected")
        if last.act == TESTS and not last.answers:
            raise DataError(f"check {how} before it called the program")
        if not last.answers:
            return None
        passed, cases = last.passed, last.cases
        if last.act == COMPARE:
            try:
                self._ask("compare_reference", REFERENCE_S, row, last.place)
            except (Exception, SystemExit) as error:
                raise DataError(f"compare {how}, and fails on what is expected, too") from error
            warn_of_compare(how)
        what = {COMPARE: "compare", TESTS: "the tests"}.get(last.act, "judging")
        return Judgement(share, passed, cases, f"{case}{what} {how} with what the program gave")

    def _ask(self, what: str, seconds: float, *given: Any) -> Any:
        """Sends the process a request; it may take `seconds` beside the time of programs.

        Raises:
            EndedError: It ended, or was killed.
            Exception: What was raised there.
        """
        try:
            message = pickle.dumps((what, given), 5)
        except Exception as error:
            raise DataError(f"a column can't be sent to the process that judges: {error}") from error
        self._start()
        if self._here is not None:
            return getattr(self._here, what)(*given)
        return self._done(message, seconds)

    def _done(self, message: bytes, seconds: float) -> Any:
        """As `_ask`, of a process that was started."""
        assert self._channel is not None
        fd = self._channel.fileno()
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        self._state.begin()
        try:
            send_blocking(fd, message)
            while not poll.poll(1000 * max(_LEAST_WAIT_S, seconds - self._state.used())):
                if self._state.used() >= seconds:
                    raise TimeoutError
            answer = receive_blocking(fd)
            if answer is None:
                raise EOFError
            succeeded, value, logged = pickle.loads(answer)
        except TimeoutError:
            self._kill()
            raise EndedError(f"did not end within {seconds:g} s") from None
        except (EOFError, OSError):
            raise EndedError(self._kill()) from None
        except BaseException:
            self._kill()  # the caller was interrupted: this answer would be taken for the next one
            raise
        for level, text in logged:
            logging.getLogger("guerdon").log(level, "%s", text)
        if succeeded:
            return value
        raise value

    def _kill(self) -> str:
        """Ends the process at once, with all processes of user functions; returns how it ended."""
        process, channel = self._process, self._channel
        self._process = self._channel = None
        assert process is not None
        assert channel is not None
        channel.close()
        with suppress(ProcessLookupError):  # where SIGCHLD is ignored, the kernel has reaped it
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        assert process.stdin is not None
        process.stdin.close()
        return f"ended by {signal_name(-code)}" if code < 0 else f"ended with status {code}"

    def _start(self) -> None:
        if self._here is not None or (self._process is not None and self._owner == os.getpid()):
            return
        self._forget()
        try:
            judging = dumps(self.judging) if self.judging.has_functions else pickle.dumps(self.judging)
            self._launch()
            self._done(pickle.dumps(("begin", (sys.path, judging))), _LONGEST_START_S)
        except (EndedError, ZygoteLostError):
            raise
        except Exception as error:  # of a function of the user's
            warn_once(
                ("judge", id(self)),
                "code_reward: %s: %s, so it runs in this process and can't be ended where it hangs",
                type(error).__name__,
                str(error),
            )
            self.close()
            self._here = CodeScorer(self.judging)

    def _launch(self) -> None:
        try:
            self._channel, theirs = socket.socketpair()
            page = os.memfd_create("judge", os.MFD_CLOEXEC)
        except OSError as error:
            self._forget()
            raise ZygoteLostError(f"no descriptors for the process that judges: {error}") from error
        os.ftruncate(page, SIZE)
        # The kernel signals a parent's death when the thread ends that forked the process. The pipe
        # covers calls from other threads, unless a forked process holds it open.
        parent = os.getpid() if threading.current_thread() is threading.main_thread() else 0
        given = [theirs.fileno(), page, parent]
        try:
            self._state = JudgeState.from_buffer(mmap.mmap(page, SIZE))
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _BOOT, str(Path(__file__).resolve().parents[4]), *map(str, given)],
                stdin=subprocess.PIPE,  # closes when this process ends
                pass_fds=given[:2],
                start_new_session=True,
            )
        except OSError as error:
            self._forget()
            raise ZygoteLostError(f"no interpreter for the process that judges: {error}") from error
        finally:
            theirs.close()
            os.close(page)
        self._owner = os.getpid()

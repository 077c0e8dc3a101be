"""Calls of a program's functions, in a process that defines it once.

- An answer bears the nonce of its call: text that was written before the call, or twice, is not an
  answer.
- After a hang or a crash the next call has a new process; each call is made once.
- A program that can't be defined answers no call, and is not tried again.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from dataclasses import dataclass
from typing import Any, Final

from guerdon.rewards.code.child.arguments import pack
from guerdon.rewards.code.child.decoding import decode
from guerdon.rewards.code.child.encoding import EncodingError
from guerdon.rewards.code.child.frames import ChannelClosedError, OverLimitError, receive, send
from guerdon.rewards.code.trusted.case_time import ProgramTime
from guerdon.rewards.code.trusted.compare import shown
from guerdon.rewards.code.trusted.judge_state import JudgeState
from guerdon.rewards.code.zygote.deadline import Deadline
from guerdon.rewards.code.zygote.script_run import signal_name
from guerdon.rewards.code.zygote.zygote_process import ProgramEnd, ProgramZygote

__all__ = ["CallAnswer", "ProgramCalls"]

_MEASURE_S: Final = 0.25
_NULL: Final = os.devnull
# Around the value of an answer: its nonce and kind.
_ENVELOPE: Final = 1024


@dataclass(frozen=True)
class CallAnswer:
    """Answer to a call.

    Attributes:
        value: What the function returned.
        fault: Why there is no value; "" where there is one.
        raised: The name of the exception that it raised, its text, and the builtin one that it is,
            if it names that; None where it was not even called, or did not end: it hung, or the
            process ended.
        waited: Its time was up by the clock on the wall, while it hardly ran.
    """

    value: Any = None
    fault: str = ""
    raised: tuple[str, ...] | None = None
    waited: bool = False


class ProgramCalls:
    """The functions of one program; see the module.

    Attributes:
        starved: One of its processes was ended at its time limit, though others had most of the
            processor time.
    """

    def __init__(
        self,
        zygote: ProgramZygote,
        source: str,
        prelude: str,
        max_output: int,
        state: JudgeState,
        program_time: ProgramTime,
    ) -> None:
        self._zygote = zygote
        self._state = state
        self._time = program_time
        self._source = source
        self._prelude = prelude
        self._limit = max_output
        self._channel: socket.socket | None = None
        self._unusable: CallAnswer | None = None
        self._measured = 0.0  # when it was known what its process used
        self.starved = False

    def call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> CallAnswer:
        """Call a function of the program."""
        nonce = secrets.token_bytes(8)
        # Before anything else: an unsendable value is not the program's fault.
        message = pack((nonce, name, args, kwargs))
        with self._time.asked():
            if self._unusable is None and self._channel is None:
                self._define()
            if self._unusable is not None:
                return self._unusable
            # Now and then: its process can't use more than the time that passes.
            if time.monotonic() - self._measured > _MEASURE_S:
                self._measure()
            return self._answer(message, nonce, self._time.to_answer())

    def close(self, late: Deadline | None = None) -> None:
        """End the program's process; nothing of it is left."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
            if self._zygote.running:
                self._ended(self._zygote.end(), late)

    def _ended(self, ended: ProgramEnd | None, late: Deadline | None = None) -> ProgramEnd:
        assert ended is not None  # it ended by itself, or was killed
        self._time.process_ended(ended.seconds)
        self.starved |= late is not None and ended.was_starved(late)
        return ended

    def _measure(self) -> None:
        self._time.measured(self._zygote.used())
        self._measured = time.monotonic()

    def _define(self) -> None:
        ours, theirs = socket.socketpair()
        null = os.open(_NULL, os.O_RDWR | os.O_CLOEXEC)
        try:
            with self._state.waiting():
                self._zygote.fork("calls", [null, null, null, theirs.fileno()])
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(null)
        self._channel, self._measured = ours, time.monotonic()
        nonce = secrets.token_bytes(8)
        request = {"source": self._source, "prelude": self._prelude, "nonce": nonce, "limit": self._limit}
        answer = self._answer(pack(request), nonce, self._time.to_load())
        if answer.fault:
            self._unusable = CallAnswer(None, f"the program could not be loaded: {answer.fault}")
            self.close()

    def _answer(self, message: bytes, nonce: bytes, deadline: Deadline) -> CallAnswer:
        assert self._channel is not None
        began, before = time.monotonic(), self._time.used
        waited = False

        def used() -> float:
            self._measure()
            return self._time.used - before

        def more() -> float:
            return 0.0 if deadline.is_over(used) else deadline.at

        try:
            try:
                with self._state.waiting():
                    send(self._channel, message, deadline.end)
                    received = receive(self._channel, self._limit + _ENVELOPE, deadline.at, more)
            finally:  # its code may have written even what says that it is defined, or ended it
                self._state.answered()
            self._time.ran(time.monotonic() - max(began, self._measured))
            answer = decode(received)
        except TimeoutError:
            fault = f"no answer within {deadline.seconds:.2g} s"
            waited = used() < deadline.seconds / 2
            self.close(deadline)
        except OverLimitError:
            fault = f"it returned more than {self._limit} bytes"
        except EncodingError as error:
            fault = f"what it returned is no data: {error}"
        except MemoryError:
            fault = "what it returned takes too much memory"
        except ChannelClosedError:
            return self._crashed()
        except BaseException:
            self.close()
            raise
        else:
            if isinstance(answer, tuple) and len(answer) >= 3 and answer[0] == nonce:
                if answer[1] == "value":
                    return CallAnswer(answer[2])
                if answer[1] == "missing":
                    return CallAnswer(None, f"the program defines no {shown(answer[2])}")
                # The program may have written this itself, with the nonce of its call.
                if answer[1] == "raised" and {type(part) for part in answer[2:]} == {str} and len(answer) in (4, 5):
                    return _raised(*answer[2:])
            fault = "it wrote to the channel of its answers"
        self.close()
        return CallAnswer(None, fault, waited=waited)

    def _crashed(self) -> CallAnswer:
        """The process ended: by itself, or it closed the channel."""
        assert self._channel is not None
        self._channel.close()
        self._channel = None
        ended = self._ended(self._zygote.end(time.monotonic() + 0.05) or self._zygote.end())
        how = f"by {signal_name(-ended.status)}" if ended.status < 0 else f"with exit status {ended.status}"
        return CallAnswer(None, f"its process ended {how}")


def _raised(name: str, text: str, *bases: str) -> CallAnswer:
    described = f"{name}: {text}" if name and text else name or text
    return CallAnswer(None, described[:400], (name, text, *bases))

"""The worker: runs the calls that its supervisor sends, on its main thread.

- W-1  A call is claimed in the shared page before it starts; what it gave stands in the page, or has left as a message,
       before the next claim. So whatever ends this process, the supervisor knows which call was in hand, and nothing
       done before it is lost.
- W-2  After a claim the worker looks whether the frame was taken back, in this order; then it un-claims, stops and says
       how many calls it ran. A frame that was decoded runs its first call in any case: one whose values take long to
       unpickle could be taken back for ever else.
- W-3  Nothing that a function raises ends the worker: not SystemExit, not KeyboardInterrupt.
- W-4  After a timeout exception the worker retires: imports, locks and caches that it passed through may be half done.
- W-5  A process that user code forks from here never runs a call, writes the page or sends a message.
- W-6  The function at work has its own fences (`fences`) and no other's: they stand before its code runs, and what the worker
       itself does, waiting, reporting and setting up, is not bound by its memory limit.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

from . import stack_dump, wire
from .invoke.call import Awaiter, Call
from .invoke.http_errors import http_status_of, retry_after_of
from .invoke.reasons import has_type, reason_of, setup_reason_of
from .invoke.returned_values import ERROR, FLOAT32_MAX, InvalidValue, to_cell, to_cells
from .invoke.tracebacks import traceback_of
from .loaded_functions import LoadedFunctions, LoadFailure
from .output_markers import OutputMarkers
from .resource_limits import ResourceLimits, flush_output
from .shared_page import COUNTED, DECODING, DONE, LOADING, PROGRESS, SETUP, TAKEN, SharedPage
from .timeout_signal import CallInterrupted, TimeoutSignal
from .wire import Constant, Frame, SupervisorSocket

# How long the supervisor may take to count what was printed so far.
_COUNTING_S = 1.0


class Worker:
    """Serves one supervisor.

    Args:
        link: The socket to it.
        page: The page shared with it.
        functions: The functions, loaded or not.
        marks: What tells the reader of the output whose it is.
    """

    def __init__(
        self, link: SupervisorSocket, page: SharedPage, functions: LoadedFunctions, marks: OutputMarkers | None = None
    ) -> None:
        self._link = link
        self._page = page
        self._words = page.words
        self._functions = functions
        self._marks = marks
        self._expiry = TimeoutSignal(page.words)
        self._awaiter = Awaiter(_warn)
        self._fences = ResourceLimits(functions.hidden)
        # Functions whose setup ran, in that order.
        self._ready: dict[int, Call] = {}
        self._bound: dict[tuple[int, bool, bytes | None], Callable[..., Any]] = {}

    def serve(self) -> None:
        """Runs frames until told to close, retired or left alone."""
        self._expiry.install()
        os.register_at_fork(after_in_child=self._leave_child)  # W-5
        self._link.ready()
        while True:
            frame = self._link.next()
            if frame is None or frame.message == wire.CLOSE:
                break
            if frame.message == wire.ENVIRONMENT:
                self._fences.give(frame.function, frame.environment())
                frame.release()
                continue
            retired = self._run(frame)
            frame.release()
            if retired:
                break
        self._close()

    def _leave_child(self) -> None:
        self._link.leave()
        self._page.release()

    def _run(self, frame: Frame) -> bool:
        """Runs one frame and reports its end; True when the worker must retire."""
        words, expiry, fences, base = self._words, self._expiry, self._fences, frame.id << 8
        stack_dump.leave_if_taken(words)
        ran = 0
        try:
            if words[TAKEN] < frame.id:
                ran = self._turn_to(frame)
            expiry.shielded = True
            fences.lift()
        except CallInterrupted as error:
            expiry.shielded = True
            fences.lift()
            ran = self._expired(frame, words[PROGRESS] & 0xFF, error)
        words[DONE] = base + ran
        words[PROGRESS] = base
        # It may also have been raised and swallowed by the function.
        retire = expiry.fired >> 8 == frame.id or fences.spent
        self._link.done(frame.id, ran, retire)
        expiry.shielded = False
        return retire

    def _turn_to(self, frame: Frame) -> int:
        """Puts the function's fences up and runs its calls; the number that ran."""
        function, fences = frame.function, self._fences
        fences.turn_to(function)
        marked = self._marks is not None and self._marks.turn_to(function)
        recipe = self._functions.recipe(function)
        prepares = function not in self._ready and (recipe["stateful"] or not self._functions.is_loaded(function))
        call = self._prepare(frame)
        if call is None:
            return 0
        if recipe.get("max_output"):
            self._begin_to_count(frame, prepares or marked)  # a mark is not the call's
        if not fences.limit(recipe):
            return 0
        return self._calls(frame, call)

    def _begin_to_count(self, frame: Frame, prepared: bool) -> None:
        """Says that what is printed from now on is the call's; what loading and setup printed is counted first."""
        flush_output()
        self._expiry.shielded = True
        self._link.begun(frame.id, prepared)
        self._expiry.shielded = False
        until = time.monotonic() + _COUNTING_S
        while prepared and self._words[COUNTED] != frame.id and time.monotonic() < until:
            time.sleep(0.0001)

    def _prepare(self, frame: Frame) -> Call | None:
        """The function, loaded and set up; None when that failed, which is then reported."""
        index = frame.function
        call = self._ready.get(index)
        if call is not None:
            return call
        if not self._functions.is_loaded(index):
            self._claim(frame, LOADING)
        found = self._functions.get(index)
        if isinstance(found, LoadFailure):
            self._expiry.shielded = True
            self._link.setup_failed(frame.id, found.reason, found.traceback)
            return None
        if self._functions.recipe(index)["stateful"]:
            self._claim(frame, SETUP)
            try:
                self._settle(found.setup())
            except CallInterrupted:
                raise
            except BaseException as error:  # W-3
                self._expiry.shielded = True
                self._link.setup_failed(frame.id, setup_reason_of(error), traceback_of(error))
                return None
        self._ready[index] = found
        return found

    def _claim(self, frame: Frame, phase: int) -> None:
        self._page.half(frame.id).stamps[0] = time.monotonic_ns()
        self._words[PROGRESS] = frame.id << 8 | phase

    def _settle(self, raw: Any) -> None:
        if hasattr(type(raw), "__await__"):
            self._awaiter.run(raw)

    def _calls(self, frame: Frame, call: Call) -> int:
        """Decodes the values and runs the calls; the number that ran."""
        self._claim(frame, DECODING)
        finish = frame.kind == wire.FINISH
        try:
            rows, columns = frame.decode()
            key = (frame.function, finish, frame.names)
            bound = self._bound.get(key)
            if bound is None:
                names = wire.names_of(frame.names)
                bound = self._bound[key] = call.bind_finish(names or ()) if finish else call.bind(names)
        except CallInterrupted:
            raise
        except BaseException as error:  # unpickling runs user code
            for index in range(frame.calls):
                self._failed(frame, call, index, error, "the arguments could not be unpickled in the worker: ")
            return frame.calls
        if frame.kind == wire.SAMPLE:
            return self._samples(frame, call, bound, _rows_of(rows, columns))
        return self._lists(frame, call, bound, columns)

    def _samples(self, frame: Frame, call: Call, bound: Callable[..., Any], rows: Iterable[tuple[Any, ...]]) -> int:
        """The loop of per-sample calls: no system call, and a message only for what is not a plain number."""
        # All in locals: this is what the lane adds to every call.
        words, clock, fid = self._words, time.monotonic_ns, frame.id
        half = self._page.half(fid)
        stamps, values, states = half.stamps, half.values, half.states
        states[: frame.calls] = bytes(frame.calls)
        records = bool(self._functions.recipe(frame.function)["records"])
        least, most = -FLOAT32_MAX, FLOAT32_MAX
        index, claim = 0, fid << 8
        for row in rows:
            claim += 1
            stamps[index] = clock()
            words[PROGRESS] = claim
            if words[TAKEN] >= fid and index:  # W-2
                words[PROGRESS] = fid << 8
                return index
            try:
                value = bound(*row)
                if type(value) is float and least <= value <= most and not records:
                    values[index] = value
                else:
                    states[index], values[index] = self._odd(frame, call, index, value)
            except CallInterrupted:
                raise
            except BaseException as error:  # W-3
                states[index] = ERROR
                self._failed(frame, call, index, error)
                if self._fences.spent:
                    return index + 1
            index += 1
        stamps[index] = clock()
        if self._functions.recipe(frame.function).get("max_output"):
            flush_output()
        return index

    def _odd(self, frame: Frame, call: Call, index: int, raw: Any) -> tuple[int, float]:
        """Status and value of a result that is no plain float, or of a function that records."""
        status, value, fields = to_cell(self._awaiter.result(call, raw))
        if fields is not None:
            call.add_fields(fields)
        tokens = call.tokens()
        if tokens is not None:
            self._expiry.shielded = True
            self._link.used(frame.id, index, tokens)
            self._expiry.shielded = False
        self._record(frame, call, index)
        return status, value

    def _lists(self, frame: Frame, call: Call, bound: Callable[..., Any], columns: list[Any]) -> int:
        """Group, batch and finish calls: lists in, cells out as a message."""
        words, fid, base = self._words, frame.id, frame.id << 8
        stamps = self._page.half(fid).stamps
        start = 0
        for index, count in enumerate(frame.counts):
            end = start + count
            arguments = [column.value if isinstance(column, Constant) else column[start:end] for column in columns]
            if frame.kind == wire.FINISH:
                arguments.insert(0, frame.scores[start:end])
            stamps[index] = time.monotonic_ns()
            words[PROGRESS] = base + index + 1
            if words[TAKEN] >= fid and index:  # W-2
                words[PROGRESS] = base
                return index
            try:
                cells = to_cells(self._awaiter.result(call, bound(*arguments)), count)
                self._record(frame, call, index)
                stamps[index + 1] = time.monotonic_ns()
                if self._functions.recipe(frame.function).get("max_output"):
                    flush_output()
                self._expiry.shielded = True
                self._link.cells(fid, index, cells)
                self._expiry.shielded = False
            except CallInterrupted:
                raise
            except BaseException as error:  # W-3
                self._failed(frame, call, index, error)
                if self._fences.spent:
                    return index + 1
            start = end
        stamps[len(frame.counts)] = time.monotonic_ns()
        return len(frame.counts)

    def _record(self, frame: Frame, call: Call, index: int) -> None:
        json = call.records()
        if json is None:
            return
        self._expiry.shielded = True
        if not self._link.record(frame.id, index, json):
            _warn(
                f"reward function {call.name!r} recorded {len(json) >> 20} MB in one call: dropped, 16 MB are carried"
            )
        self._expiry.shielded = False

    def _failed(self, frame: Frame, call: Call, index: int, error: BaseException, prefix: str = "") -> None:
        """Reports a call that raised; what it takes to say so is not the call's time."""
        self._page.half(frame.id).stamps[index + 1] = time.monotonic_ns()
        self._expiry.shielded = True
        why = self._fences.explain(error)
        call.drop_records()
        flags = 0 if has_type(error, InvalidValue) or prefix else wire.RETRYABLE
        self._link.fail(
            frame.id,
            index,
            prefix + reason_of(error) + why,
            traceback_of(error),
            flags=flags,
            retry_after=retry_after_of(error),
            answer=http_status_of(error),
        )
        self._expiry.shielded = False

    def _expired(self, frame: Frame, claimed: int, error: CallInterrupted) -> int:
        """Reports what the timeout ended; the number of calls that ran. The supervisor knows the reason."""
        stack = traceback_of(error)
        if claimed in (LOADING, SETUP):
            self._link.setup_failed(frame.id, "", stack, flags=wire.EXPIRED)
            return 0
        index = 0 if claimed == DECODING else claimed - 1
        half = self._page.half(frame.id)
        half.states[index] = ERROR
        half.stamps[index + 1] = time.monotonic_ns()
        self._link.fail(frame.id, index, "", stack, flags=wire.EXPIRED | wire.RETRYABLE)
        return index + 1

    def _close(self) -> None:
        for call in reversed(self._ready.values()):
            try:
                self._settle(call.close())
            except BaseException as error:  # the others are closed all the same
                _warn(f"close() of reward function {call.name!r} failed: {reason_of(error)}")
        self._awaiter.close()
        _finish_multiprocessing()


def _finish_multiprocessing() -> None:
    """What multiprocessing does at the end of its own children: pools and servers that functions left are ended, and
    their temporary folder goes. A worker ends without the interpreter's exit, which would do it."""
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        try:
            util._run_finalizers()
        except BaseException as error:  # the worker ends all the same
            _warn(f"multiprocessing could not be ended cleanly: {reason_of(error)}")


def _rows_of(rows: int, columns: list[Any]) -> Iterable[tuple[Any, ...]]:
    """The argument tuples of per-sample calls."""
    if not columns:
        return repeat((), rows)
    return zip(
        *[repeat(column.value, rows) if isinstance(column, Constant) else column for column in columns], strict=True
    )


def _warn(message: str) -> None:
    """Says it through the worker's output, which shows up beside the trainer's."""
    try:
        sys.stderr.write(f"warning: {message}\n")
    except Exception:  # user code may have replaced or closed it
        return

"""The worker: runs the calls that its supervisor sends, on its main thread.

- A call is claimed in the shared page before it starts, and its result is in the page or sent
  before the next claim: however this process ends, no finished call is lost.
- After a claim the worker checks whether the frame was taken back; if so it stops.
- Nothing that a function raises ends the worker, SystemExit and KeyboardInterrupt included. It
  retires after a timeout exception: imports, locks and caches may be left half done. It also
  retires once a call has closed the standard streams.
- A process that user code forks here runs no call, writes no page and sends no message.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

from . import stack_dump, wire
from .columns import UNREADABLE, Constant, KnownConstants, UnreadableValueError, Values, import_all
from .invoke.awaiter import Awaiter
from .invoke.call import Call
from .invoke.http_errors import http_status_of, retry_after_of
from .invoke.reasons import has_type, reason_of, setup_reason_of
from .invoke.returned_values import ERROR, FLOAT32_MAX, InvalidValue, to_cell, to_cells
from .invoke.tracebacks import traceback_of
from .loaded_functions import LoadedFunctions, LoadFailure
from .output import OutputMarkers, flush_output, is_output_closed
from .resource_limits import ResourceLimits
from .shared_page import COUNTED, DECODING, DONE, IMPORTING, LOADING, PROGRESS, REPORTED, SETUP, TAKEN, SharedPage
from .timeout_signal import CallInterrupted, TimeoutSignal
from .wire import Frame, SupervisorSocket

# The longest wait for the supervisor to count the output before the call.
_COUNTING_S = 1.0


class Worker:
    """Serves one supervisor.

    Args:
        link: The socket to it.
        page: The page shared with it.
        functions: The functions, loaded or not.
        markers: Attributes output to functions.
    """

    def __init__(
        self, link: SupervisorSocket, page: SharedPage, functions: LoadedFunctions, markers: OutputMarkers | None = None
    ) -> None:
        self._link = link
        self._page = page
        self._words = page.words
        self._commands = page.commands
        self._functions = functions
        self._markers = markers
        self._signal = TimeoutSignal(page.words, page.commands)
        self._awaiter = Awaiter(_warn)
        self._limits = ResourceLimits(functions.hidden)
        # Functions whose setup ran, in that order.
        self._ready: dict[int, Call] = {}
        self._constants = KnownConstants()
        # Modules of values that were imported here, or could not be.
        self._imported: set[str] = set()
        # The output of the last frame's calls is lost: an import or `setup()` closed the streams.
        self._silent = False
        self._bound: dict[tuple[int, bool, bytes | None], Callable[..., Any]] = {}

    def serve(self) -> None:
        """Runs frames until it gets `CLOSE`, retires, or the supervisor is gone."""
        pid = os.getpid()
        try:
            self._serve()
        except BaseException:
            if os.getpid() == pid:
                raise
            # A function forked this process, and returned or raised in it: its parent must not take
            # that for success.
            flush_output()
            os._exit(1)

    def _serve(self) -> None:
        self._signal.install()
        os.register_at_fork(after_in_child=self._detach_child)
        self._link.ready()
        while True:
            frame = self._link.next()
            if frame is None or frame.message == wire.CLOSE:
                break
            if frame.message == wire.ENVIRONMENT:
                self._limits.set_environment(frame.function, frame.environment())
                frame.release()
                continue
            retired = self._run(frame)
            frame.release()
            if retired:
                break
        self._close()

    def _detach_child(self) -> None:
        self._link.detach()
        self._page.release()

    def _run(self, frame: Frame) -> bool:
        """Runs one frame and reports its end; True when the worker must retire."""
        words, commands, signal, limits = self._words, self._commands, self._signal, self._limits
        base = frame.id << 8
        stack_dump.disable_if_taken(words)
        values = frame.values(self._constants)
        ran = 0
        try:
            if commands[TAKEN] < frame.id:
                ran = self._run_calls(frame, values)
            signal.shielded = True
            limits.lift()
        except CallInterrupted as error:
            signal.shielded = True
            limits.lift()
            ran = self._interrupted(frame, words[PROGRESS] & 0xFF, error)
        words[DONE] = base + ran
        words[PROGRESS] = base
        closed = is_output_closed()
        # The function may also have caught the exception.
        retire = signal.fired >> 8 == frame.id or limits.exhausted or (closed and not self._silent)
        self._silent = closed
        self._link.done(frame.id, ran, retire)
        signal.shielded = False
        return retire

    def _run_calls(self, frame: Frame, values: Values) -> int:
        """Applies the function's limits and runs its calls; the number that ran."""
        function, limits = frame.function, self._limits
        limits.switch_to(function)
        marker_written = self._markers is not None and self._markers.switch_to(function)
        call, prepares = self._ready.get(function), False
        if call is None:
            functions = self._functions
            prepares = functions.recipe(function)["stateful"] or not functions.is_loaded(function)
            call = self._prepare(frame)
            if call is None:
                return 0
        recipe = call.recipe
        if values.modules:
            self._import_modules(frame, values)
        if recipe.get("max_output"):
            self._start_output_count(frame, prepares or marker_written)  # a marker does not count
        if not limits.apply(recipe):
            return 0
        if prepares or marker_written:
            self._silent = is_output_closed()
        return self._calls(frame, call, values)

    def _import_modules(self, frame: Frame, values: Values) -> None:
        """Imports what unpickling the values would import, in the time and memory of no call."""
        missing = {name for name in values.modules if name not in sys.modules} - self._imported
        if missing:
            self._claim(frame, IMPORTING)
            self._imported |= missing
            import_all(missing)

    def _start_output_count(self, frame: Frame, prepared: bool) -> None:
        """Reports that output from now on counts for the call, and waits until earlier output is
        counted."""
        flush_output()
        self._signal.shielded = True
        self._link.begun(frame.id, prepared)
        self._signal.shielded = False
        until = time.monotonic() + _COUNTING_S
        while prepared and self._commands[COUNTED] != frame.id and time.monotonic() < until:
            time.sleep(0.0001)

    def _prepare(self, frame: Frame) -> Call | None:
        """The function, loaded and set up; None if that failed, which it reports."""
        index = frame.function
        if not self._functions.is_loaded(index):
            self._claim(frame, LOADING)
        found = self._functions.get(index)
        if isinstance(found, LoadFailure):
            self._signal.shielded = True
            self._link.setup_failed(frame.id, found.reason, found.traceback)
            return None
        if found.recipe["stateful"]:
            self._claim(frame, SETUP)
            try:
                self._await_result(found.setup())
            except CallInterrupted:
                raise
            except BaseException as error:
                self._signal.shielded = True
                self._link.setup_failed(frame.id, setup_reason_of(error), traceback_of(error))
                return None
        self._ready[index] = found
        return found

    def _claim(self, frame: Frame, phase: int) -> None:
        self._page.results_of(frame.id).stamps[0] = time.monotonic_ns()
        self._words[PROGRESS] = frame.id << 8 | phase

    def _await_result(self, raw: Any) -> None:
        if hasattr(type(raw), "__await__"):
            self._awaiter.run(raw)

    def _calls(self, frame: Frame, call: Call, values: Values) -> int:
        """Decodes the values and runs the calls; the number that ran."""
        self._claim(frame, DECODING)
        finish = frame.kind == wire.FINISH
        try:
            values.decode()
            key = (frame.function, finish, frame.names)
            bound = self._bound.get(key)
            if bound is None:
                names = wire.names_of(frame.names)
                bound = self._bound[key] = call.bind_finish(names or ()) if finish else call.bind(names)
        except CallInterrupted:
            raise
        except BaseException as error:  # unpickling a constant runs user code
            for index in range(frame.calls):
                self._failed(frame, call, index, UnreadableValueError(error))
            return frame.calls
        if frame.kind == wire.SAMPLE:
            return self._samples(frame, call, bound, values)
        return self._lists(frame, call, bound, values)

    def _samples(self, frame: Frame, call: Call, bound: Callable[..., Any], values: Values) -> int:
        """The loop of per-sample calls: no system call, and a message only if the result is not a
        float."""
        # All in locals: this loop is the lane's overhead per call.
        words, commands, clock, fid = self._words, self._commands, time.monotonic_ns, frame.id
        results = self._page.results_of(fid)
        stamps, cells, states, pickles = results.stamps, results.values, results.states, values.pickles
        states[: frame.calls] = bytes(frame.calls)
        records = call.wants_records
        least, most = -FLOAT32_MAX, FLOAT32_MAX
        index, claim = 0, fid << 8
        for row in _rows_of(values):
            claim += 1
            stamps[index] = clock()
            words[PROGRESS] = claim
            # never before the first call, however long decoding took
            if commands[TAKEN] >= fid and index:
                words[PROGRESS] = fid << 8
                return index
            try:
                value = bound(*(values.row(index) if index in pickles else row))
                if type(value) is float and least <= value <= most and not records:
                    cells[index] = value
                else:
                    states[index], cells[index] = self._other_result(frame, call, index, value)
            except CallInterrupted:
                raise
            except BaseException as error:
                states[index] = ERROR
                self._failed(frame, call, index, error)
                if self._limits.exhausted:
                    return index + 1
            index += 1
        stamps[index] = clock()
        if call.recipe.get("max_output"):
            flush_output()
        return index

    def _other_result(self, frame: Frame, call: Call, index: int, raw: Any) -> tuple[int, float]:
        """Returns state and value of a result that is not a float, or of a function that
        records."""
        status, value, fields = to_cell(self._awaiter.result(call, raw))
        if fields is not None:
            call.add_fields(fields)
        tokens = call.tokens()
        if tokens is not None:
            self._signal.shielded = True
            self._link.used(frame.id, index, tokens)
            self._signal.shielded = False
        recorded = self._record(frame, call, index)
        return status | (REPORTED if recorded or tokens is not None else 0), value

    def _lists(self, frame: Frame, call: Call, bound: Callable[..., Any], values: Values) -> int:
        """Group, batch and finish calls: lists in, cells out as a message."""
        words, commands, fid, base = self._words, self._commands, frame.id, frame.id << 8
        stamps = self._page.results_of(fid).stamps
        start = 0
        for index, count in enumerate(frame.counts):
            end = start + count
            stamps[index] = time.monotonic_ns()
            words[PROGRESS] = base + index + 1
            # never before the first call, however long decoding took
            if commands[TAKEN] >= fid and index:
                words[PROGRESS] = base
                return index
            try:
                arguments = values.lists(start, end)
                if frame.kind == wire.FINISH:
                    arguments.insert(0, frame.scores[start:end])
                cells = to_cells(self._awaiter.result(call, bound(*arguments)), count)
                self._record(frame, call, index)
                stamps[index + 1] = time.monotonic_ns()
                if call.recipe.get("max_output"):
                    flush_output()
                self._signal.shielded = True
                self._link.cells(fid, index, cells)
                self._signal.shielded = False
            except CallInterrupted:
                raise
            except BaseException as error:
                self._failed(frame, call, index, error)
                if self._limits.exhausted:
                    return index + 1
            start = end
        stamps[len(frame.counts)] = time.monotonic_ns()
        return len(frame.counts)

    def _record(self, frame: Frame, call: Call, index: int) -> bool:
        """Sends what a call recorded; False if that is nothing."""
        json = call.records()
        if json is None:
            return False
        self._signal.shielded = True
        if not self._link.record(frame.id, index, json):
            _warn(
                f"reward function {call.name!r} recorded {len(json) >> 20} MiB in one call; records over 16 MiB, and "
                "over 64 MiB of up to 64 calls together, are dropped"
            )
        self._signal.shielded = False
        return True

    def _failed(self, frame: Frame, call: Call, index: int, error: BaseException) -> None:
        """Reports a call that raised; the time for that does not count as the call's."""
        prefix = ""
        if has_type(error, UnreadableValueError):
            prefix, error = UNREADABLE, error.cause
        self._page.results_of(frame.id).stamps[index + 1] = time.monotonic_ns()
        self._signal.shielded = True
        hint = self._limits.explain(error)
        call.drop_records()
        flags = 0 if has_type(error, InvalidValue) or prefix else wire.RETRYABLE
        self._link.fail(
            frame.id,
            index,
            prefix + reason_of(error) + hint,
            traceback_of(error),
            flags=flags,
            retry_after=retry_after_of(error),
            http_status=http_status_of(error),
        )
        self._signal.shielded = False

    def _interrupted(self, frame: Frame, claimed: int, error: CallInterrupted) -> int:
        """Reports an interrupted call, and returns the number of calls that ran. The supervisor has
        the reason."""
        stack = traceback_of(error)
        if claimed in (IMPORTING, LOADING, SETUP):
            imports = wire.IMPORTS if claimed == IMPORTING else 0
            self._link.setup_failed(frame.id, "", stack, flags=wire.INTERRUPTED | imports)
            return 0
        index = 0 if claimed == DECODING else claimed - 1
        results = self._page.results_of(frame.id)
        results.states[index] = ERROR
        results.stamps[index + 1] = time.monotonic_ns()
        self._link.fail(frame.id, index, "", stack, flags=wire.INTERRUPTED | wire.RETRYABLE)
        return index + 1

    def _close(self) -> None:
        for call in reversed(self._ready.values()):
            try:
                self._await_result(call.close())
            except BaseException as error:  # close the others too
                _warn(f"close() of reward function {call.name!r} failed: {reason_of(error)}")
        self._awaiter.close()
        _finish_multiprocessing()


def _finish_multiprocessing() -> None:
    """Ends pools and servers that functions left, and removes their temporary folder.

    A worker ends by `os._exit`, without the exit handler that would do it.
    """
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        try:
            util._run_finalizers()
        except BaseException as error:  # the worker ends anyway
            _warn(f"multiprocessing did not shut down cleanly: {reason_of(error)}")


def _rows_of(values: Values) -> Iterable[tuple[Any, ...]]:
    """The argument tuples of per-sample calls; the parts that are still pickled are None."""
    if not values.columns:
        return repeat((), values.rows)
    return zip(
        *[repeat(column.value, values.rows) if isinstance(column, Constant) else column for column in values.columns],
        strict=True,
    )


def _warn(message: str) -> None:
    """Prints to the worker's output, which the engine forwards to the trainer's stderr."""
    try:
        sys.stderr.write(f"warning: {message}\n")
    except Exception:  # user code may have replaced or closed it
        return

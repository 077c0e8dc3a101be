"""One thread of the thread lane: requests frames and runs their calls.

The loop is Python and calls Rust only for an instant at a time: the interpreter can end the thread
inside user code at any moment. Exceptions of user code never end the thread. An exception from
outside, or for lack of memory, ends it with its running call; another thread takes its place.
Between frames the thread holds on to nothing of a batch.
"""

from __future__ import annotations

import threading
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from guerdon._lanes.arguments import (
    DiscardedCall,
    gathered_of,
    lists_of,
    opened,
    samples_of,
    scores_from,
    singles_of,
    spread,
    unreadable,
)
from guerdon._lanes.call_results import failed, packed
from guerdon._lanes.gil import need_gil
from guerdon._system.warning import warn
from guerdon._worker.invoke.async_detection import is_awaitable
from guerdon._worker.invoke.awaiter import Awaiter
from guerdon._worker.invoke.call import Call
from guerdon._worker.invoke.reasons import reason_of, setup_reason_of
from guerdon._worker.invoke.returned_values import to_cell
from guerdon._worker.invoke.tracebacks import traceback_of

if TYPE_CHECKING:
    from guerdon._lanes.arguments import View
    from guerdon._native import ThreadFrame, ThreadSlot


class WorkerThread:
    """A thread's life: `run` is its target.

    Args:
        slot: Its place in the engine.
        call: The function, for this thread alone.
    """

    def __init__(self, slot: ThreadSlot, call: Call) -> None:
        self._slot = slot
        self._call = call
        self._awaiter = Awaiter(warn, partial(need_gil, beyond_threads=True))

    def run(self) -> None:
        slot = self._slot
        try:
            ident = threading.get_ident()
            while self._serve(slot.next_frame(ident)):
                pass
            close = slot.leave()
        except BaseException as error:
            close = slot.leave(reason_of(error), traceback_of(error))
            warn(
                f"reward function {self._call.name!r}: {reason_of(error)} ended a thread of the thread lane. "
                "Its call failed, and another thread takes its place."
            )
        try:
            if close:
                self._close()
            self._awaiter.close()
        finally:
            slot.end()

    def _serve(self, frame: ThreadFrame | None) -> bool:
        if frame is None:
            return False
        if frame.setup and not self._set_up(frame):
            return True
        view = opened(frame.view)
        error = unreadable(view)
        if error is not None:
            self._refuse(frame, error)
        elif view.kind == "sample":
            self._run_samples(frame, view)
        else:
            self._run_lists(frame, view)
        return True

    def _refuse(self, frame: ThreadFrame, error: BaseException) -> None:
        """Fails the calls of a frame whose values are unreadable."""
        skipped = frame.start()
        while skipped is not None:
            skipped = frame.fail(*failed(self._call, error))

    def _run_samples(self, frame: ThreadFrame, view: View) -> None:
        call = self._call
        are_rows, values = singles_of(view, samples_of(view))
        function = spread(call.bind(view.names)) if are_rows else call.bind(view.names)
        ok, plain = frame.ok, None if call.wants_records else float
        rest = iter(values)
        skipped = frame.start()
        while skipped is not None:
            for value in islice(rest, skipped, None):
                try:
                    raw = function(value)
                except BaseException as error:
                    skipped = frame.fail(*failed(call, error))
                else:
                    skipped = ok(raw) if type(raw) is plain else self._complete(frame, raw)
                if skipped != 0:
                    break
            else:
                break

    def _complete(self, frame: ThreadFrame, raw: object) -> int | None:
        call = self._call
        try:
            if is_awaitable(raw):
                raw = self._awaiter.result(call, raw)
            status, value, fields = to_cell(raw)
            if fields is not None:
                call.add_fields(fields)
                tokens = call.tokens()
                if tokens is not None:
                    frame.used(tokens)
            records = call.records()
        except BaseException as error:
            return frame.fail(*failed(call, error))
        return frame.cell(status, value, records)

    def _run_lists(self, frame: ThreadFrame, view: View) -> None:
        call = self._call
        finish, size = view.kind == "finish", view.size
        names, gathers = view.names or (), view.kind == "gathered"
        function = call.bind_finish(names) if finish else call.bind(names)
        firsts, at = samples_of(view), 0
        skipped = frame.start()
        while skipped is not None:
            at += skipped
            try:
                if gathers:
                    lists, size = gathered_of(view, frame.gathered)
                else:
                    lists = lists_of(view, firsts[at])
                    if not frame.is_open():
                        raise DiscardedCall
                raw = function(scores_from(frame.scores()), *lists) if finish else function(*lists)
                cells, records = packed(self._awaiter.result(call, raw), size), call.records()
            except BaseException as error:
                skipped = frame.fail(*failed(call, error))
            else:
                skipped = frame.cells(*cells, records)
            at += 1

    def _set_up(self, frame: ThreadFrame) -> bool:
        try:
            self._finished(self._call.setup())
        except BaseException as error:
            frame.setup_failed(setup_reason_of(error), traceback_of(error))
            return False
        frame.setup_done()
        return True

    def _close(self) -> None:
        try:
            self._finished(self._call.close())
        except BaseException as error:
            warn(f"reward function {self._call.name!r}: close() failed: {reason_of(error)}")

    def _finished(self, raw: object) -> None:
        if is_awaitable(raw):
            self._awaiter.run(raw)  # type: ignore[arg-type]

"""One thread of the thread lane: asks for chunks of calls and runs them.

- T-1  The loop is Python and calls Rust only for an instant at a time: the interpreter can end the thread inside user
       code at any moment.
- T-2  No exception of user code ends the thread, whatever it is.
- T-3  Between chunks the thread holds on to nothing of a batch.
"""

from __future__ import annotations

import threading
from itertools import islice
from typing import TYPE_CHECKING

from guerdon._lanes.arguments import Swept, gathered_of, lists_of, samples_of, scores_from, singles_of, spread
from guerdon._lanes.call_results import failed, packed
from guerdon._lanes.warn import warn
from guerdon._worker.invoke.async_detection import is_awaitable
from guerdon._worker.invoke.awaiter import Awaiter
from guerdon._worker.invoke.call import Call
from guerdon._worker.invoke.reasons import reason_of, setup_reason_of
from guerdon._worker.invoke.returned_values import to_cell
from guerdon._worker.invoke.tracebacks import traceback_of

if TYPE_CHECKING:
    from guerdon._native import Chunk, Lanes


class WorkerThread:
    """A thread's life: `run` is its target.

    Args:
        lanes: The engine's queues.
        function: Which function it is for.
        number: Its own number, as the engine ordered it.
        call: The function, for this thread alone.
    """

    def __init__(self, lanes: Lanes, function: int, number: int, call: Call) -> None:
        self._lanes = lanes
        self._function = function
        self._number = number
        self._call = call
        self._awaiter = Awaiter(warn)

    def run(self) -> None:
        lanes, function, number = self._lanes, self._function, self._number
        ident = threading.get_ident()
        try:
            while self._serve(lanes.next_chunk(function, number, ident)):
                pass
        finally:
            if lanes.leave(function, number):
                self._close()
            self._awaiter.close()
            lanes.gone()

    def _serve(self, chunk: Chunk | None) -> bool:
        if chunk is None:
            return False
        if chunk.setup and not self._set_up(chunk):
            return True
        if chunk.kind == "sample":
            self._run_samples(chunk)
        else:
            self._run_lists(chunk)
        return True

    def _run_samples(self, chunk: Chunk) -> None:
        call = self._call
        are_rows, values = singles_of(chunk, samples_of(chunk))
        function = spread(call.bind(chunk.names)) if are_rows else call.bind(chunk.names)
        ok, plain = chunk.ok, None if call.wants_records else float
        rest = iter(values)
        passed = chunk.start()
        while passed >= 0:
            for value in islice(rest, passed, None):
                try:
                    raw = function(value)
                except BaseException as error:  # T-2
                    passed = chunk.fail(*failed(call, error))
                else:
                    passed = ok(raw) if type(raw) is plain else self._settle(chunk, raw)
                if passed:
                    break
            else:
                break

    def _settle(self, chunk: Chunk, raw: object) -> int:
        call = self._call
        try:
            if is_awaitable(raw):
                raw = self._awaiter.result(call, raw)
            status, value, fields = to_cell(raw)
            if fields is not None:
                call.add_fields(fields)
                tokens = call.tokens()
                if tokens is not None:
                    chunk.used(tokens)
        except BaseException as error:  # T-2
            return chunk.fail(*failed(call, error))
        return chunk.cell(status, value, call.records())

    def _run_lists(self, chunk: Chunk) -> None:
        call, finish, size = self._call, chunk.kind == "finish", chunk.size
        names, gathers = chunk.names or (), chunk.kind == "gathered"
        function = call.bind_finish(names) if finish else call.bind(names)
        firsts, at = samples_of(chunk), 0
        passed = chunk.start()
        while passed >= 0:
            at += passed
            try:
                if gathers:
                    lists, size = gathered_of(chunk, chunk.gathered)
                else:
                    lists = lists_of(chunk, firsts[at])
                    if not chunk.is_open():
                        raise Swept
                raw = function(scores_from(chunk.scores()), *lists) if finish else function(*lists)
                cells = packed(self._awaiter.result(call, raw), size)
            except BaseException as error:  # T-2
                passed = chunk.fail(*failed(call, error))
            else:
                passed = chunk.cells(*cells, call.records())
            at += 1

    def _set_up(self, chunk: Chunk) -> bool:
        try:
            self._finished(self._call.setup())
        except BaseException as error:  # T-2
            chunk.setup_failed(setup_reason_of(error), traceback_of(error))
            return False
        chunk.setup_done()
        return True

    def _close(self) -> None:
        try:
            self._finished(self._call.close())
        except BaseException as error:  # T-2
            warn(f"reward function {self._call.name!r}: close() failed: {reason_of(error)}")

    def _finished(self, raw: object) -> None:
        if is_awaitable(raw):
            self._awaiter.run(raw)  # type: ignore[arg-type]

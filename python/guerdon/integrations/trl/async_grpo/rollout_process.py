"""TRL's rollout process as the trainer sees it: its errors, its queue and its end.

An error of the process is raised in the trainer with its type. Stopping waits neither for a process
that waits to be read nor for one that is gone, and reading does not wait for the rest of a message
whose process was killed.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from guerdon import errors
from guerdon.errors import GuerdonError

_STOP_S: Final = 15.0
_POLL_S: Final = 0.1  # between looks at a queue that nobody writes to


def health_check(worker: Any) -> Callable[[float], None]:
    """TRL's health check of `worker`, which raises our errors as themselves, and reports a process
    that ended without an error."""
    check = worker.check_health

    def check_health(stale_after_s: float) -> None:
        process = worker._process
        if process is not None and not process.is_alive() and not worker._failed_event.is_set():
            raise GuerdonError(
                f"the rollout process ended (exit code {process.exitcode}) without an error: it crashed, or was killed, "
                "perhaps for its memory. See what it printed last."
            )
        try:
            check(stale_after_s)
        except RuntimeError as error:
            name, _, text = str(error.__cause__ or "").partition(": ")
            kind = getattr(errors, name, None)
            if isinstance(kind, type) and issubclass(kind, GuerdonError):
                raise kind(text.partition("\nTraceback")[0]) from error
            raise

    return check_health


def start_and_read(worker: Any) -> Callable[[], None]:
    """TRL's `start` of `worker`, after which only the rollout process can write to the buffer.

    If this process could write too, a reader of half a message of a killed process would wait for
    the other half forever.
    """
    start, buffer = worker.start, worker.rollout_buffer
    get = buffer.get

    def read(block: bool = True, timeout: float | None = None) -> Any:
        try:
            return get(block, timeout)
        except (EOFError, OSError):  # the process is gone; the health check says why
            time.sleep(min(_POLL_S, timeout or _POLL_S))
            raise queue.Empty from None

    def begin() -> None:
        start()
        buffer._writer.close()
        buffer.get = read

    return begin


def stop_and_drain(worker: Any) -> Callable[[], None]:
    """TRL's `stop` of `worker`, while its queue is read: a process ends only when that is empty.

    A process that has failed gets no stop event, whose sender waits for a thread of it to answer.
    """
    stop = worker.stop

    def end() -> None:
        process = worker._process
        ended = threading.Event()

        def drain() -> None:
            while not ended.is_set():
                try:
                    worker.rollout_buffer.get(timeout=0.1)
                except queue.Empty:
                    continue

        reader = threading.Thread(target=drain, name="guerdon-drain", daemon=True)
        reader.start()
        try:
            if process is not None and worker._failed_event.is_set():
                process.join(_STOP_S)
                if process.is_alive():
                    process.kill()
                    process.join(_STOP_S)
            if process is not None and not process.is_alive():
                worker._process = None
            stop()
        finally:
            ended.set()
            reader.join(_STOP_S)

    return end

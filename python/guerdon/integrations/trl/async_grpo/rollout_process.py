"""TRL's rollout process as the trainer sees it: its errors, its queue and its end.

An error of the process is raised in the trainer with its type. Stopping waits neither for a process
that waits to be read nor for one that is gone, and reading does not wait for the rest of a message
whose process was killed.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import Any, Final

from guerdon import errors
from guerdon.errors import GuerdonError
from guerdon.integrations.trl.patching import Mixin

_STOP_S: Final = 15.0
_POLL_S: Final = 0.1  # between looks at a queue that nobody writes to


class RolloutProcess(Mixin):  # type: ignore[misc]  # trl is not typed
    """A mixin before TRL's worker."""

    _process: Any  # TRL's

    def check_health(self, stale_after_s: float) -> None:
        """Raises our errors as themselves, and reports a process that ended without an error."""
        process = self._process
        if process is not None and not process.is_alive() and not self._failed_event.is_set():
            raise GuerdonError(
                f"the rollout process ended (exit code {process.exitcode}) without an error: it crashed, or was killed, "
                "perhaps for its memory. See what it printed last."
            )
        try:
            super().check_health(stale_after_s)
        except RuntimeError as error:
            name, _, text = str(error.__cause__ or "").partition(": ")
            kind = getattr(errors, name, None)
            if isinstance(kind, type) and issubclass(kind, GuerdonError):
                raise kind(text.partition("\nTraceback")[0]) from error
            raise

    def start(self) -> None:
        """Starts the process, which alone can write to the buffer then: if this process could too,
        a reader of half a message of a killed process would wait for the other half forever."""
        super().start()
        buffer = self.rollout_buffer
        get = buffer.get

        def read(block: bool = True, timeout: float | None = None) -> Any:
            try:
                return get(block, timeout)
            except (EOFError, OSError):  # the process is gone; the health check says why
                time.sleep(min(_POLL_S, timeout or _POLL_S))
                raise queue.Empty from None

        buffer._writer.close()
        buffer.get = read

    def stop(self) -> None:
        """Stops the process while its queue is read: it ends only when that is empty. One that has
        failed gets no stop event, whose sender waits for a thread of it to answer."""
        process = self._process
        ended = threading.Event()
        reader = threading.Thread(target=self._drain, args=(ended,), name="guerdon-drain", daemon=True)
        reader.start()
        try:
            if process is not None and self._failed_event.is_set():
                process.join(_STOP_S)
                if process.is_alive():
                    process.kill()
                    process.join(_STOP_S)
            if process is not None and not process.is_alive():
                self._process = None
            super().stop()
        finally:
            ended.set()
            reader.join(_STOP_S)

    def _drain(self, ended: threading.Event) -> None:
        while not ended.is_set():
            try:
                self.rollout_buffer.get(timeout=_POLL_S)
            except queue.Empty:
                continue

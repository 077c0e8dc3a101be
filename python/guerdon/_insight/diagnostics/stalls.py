"""Report of the watchdog when calls are in flight and none has ended for long: a dump, as a warning
and in a file beside the journal.

- It runs on the thread supervisor, so the trainer's threads may be stuck; where that thread can't
  run either, the engine itself writes to stderr and to the file.
- It holds on to no engine: a dispatcher that is gone has nothing to report.
"""

from __future__ import annotations

import datetime
import os
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from guerdon._system.launcher import rank
from guerdon._system.warning import warn

if TYPE_CHECKING:
    from guerdon._functions.spec import FunctionSpec
    from guerdon._insight.dump import Dump

_LOOK_S: Final = 2.0
"""Time that workers have to report their position."""


def reports_file(folder: str | os.PathLike[str]) -> str:
    """Returns the path of the reports beside the journal in `folder`: one file a process."""
    return os.path.join(folder, f"watchdog-r{rank()}-{os.getpid()}.txt")


class DumpSource(Protocol):
    """The engine of a dispatcher, as far as a report needs it."""

    @property
    def closed(self) -> bool:
        """True once its dispatcher was closed."""

    def dump(self, timeout: float) -> Dump:
        """Returns a dump of it."""


class StallReports:
    """Reports the stalls of one engine.

    Args:
        handle: Of the engine.
        specs: Its functions.
        after: Seconds without the end of a call that count as a stall.
        file: Where reports are added, beside the warning; None: nowhere.
    """

    def __init__(self, handle: DumpSource, specs: Sequence[FunctionSpec], after: float, file: str | None) -> None:
        self._handle = weakref.ref(handle)
        self._timeouts = {spec.name: spec.policy.timeout for spec in specs}
        self.after = after
        self.file = file
        # The form for the engine.
        self.config = {"after": after, "file": None if file is None else os.fsencode(file)}

    def __call__(self, stalled_s: float) -> None:
        """Report that no call has ended for so long."""
        handle = self._handle()
        if handle is None or handle.closed:
            return
        text = self._text(handle.dump(_LOOK_S), stalled_s)
        del handle
        if self.file is not None:
            text += self._append(text)
        warn(text)

    def _text(self, dump: Dump, stalled_s: float) -> str:
        opening = f"watchdog: no call had ended for {stalled_s:.3g} s (watchdog={self.after:g})"
        if not dump and not any(dump.waiting.values()):
            return f"{opening}, but what was in flight has ended since."
        if not dump:
            return (
                f"{opening}: samples wait, and no worker or server has one: a worker may be starting, or can't.\n{dump}"
            )
        functions = dict.fromkeys(call.function for call in dump)
        timeouts = ", ".join(f"{name!r} {self._timeouts[name]:g} s" for name in functions)
        return (
            f"{opening}. What runs, the oldest first; a call may still be within its timeout ({timeouts}), and what waits "
            f"for a limit does not count.\n{dump}"
        )

    def _append(self, text: str) -> str:
        """Adds the report to the file; what to say if that fails."""
        assert self.file is not None
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        try:
            with open(self.file, "a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{now} {text}\n\n")
        except OSError as error:
            return f"\nThe report could not be added to {self.file!r}: {error.strerror}."
        return ""

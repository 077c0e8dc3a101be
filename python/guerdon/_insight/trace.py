"""The `trace` option: the option, checked, and as the engine takes it."""

from __future__ import annotations

import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guerdon._system.launcher import rank, world_size
from guerdon._system.units import EXPECTED_BYTES, as_bytes, number
from guerdon._system.warning import warn
from guerdon.errors import RegistrationError, with_known_options

if TYPE_CHECKING:
    from guerdon._native import Engine

_LEAST = 4 << 20
_MOST = 1 << 34


@with_known_options
@dataclass(frozen=True)
class Trace:
    """A file with the timeline of the last calls: a ring that stays within its size, and a valid
    trace at any moment, whatever ends the process (docs/timeline.md).

    Args:
        path: The file, mostly ``*.pftrace``. With several ranks each has its own: the rank goes
            into the name. A file of an earlier run is kept as ``*.previous.pftrace``.
        size: Of the file at most, in bytes or as a text like ``"64MiB"``: from 4 MiB to 16 GiB.
        shortest: Seconds. Calls that ran for less have no slice of their own beside that of their
            frame, unless they failed or were tried again; 0 for slices of all.

    Raises:
        RegistrationError: A value can't work, or the file's folder does not exist.

    Examples:
        >>> Trace("run.pftrace", size="16MiB").bytes
        16777216
    """

    path: str | os.PathLike[str]
    size: int | str = "64MiB"
    shortest: float = 50e-6

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", _path(self.path))
        if not _LEAST <= (as_bytes(self.size) or 0) <= _MOST:
            raise RegistrationError(f"Trace(size={self.size!r}): expected {EXPECTED_BYTES}, from 4 MiB to 16 GiB.")
        if not 0 <= number(self.shortest) < 1e9:
            raise RegistrationError(f"Trace(shortest={self.shortest!r}): expected seconds, finite and at least 0.")

    @property
    def file(self) -> str:
        """``path`` as a text."""
        return os.fspath(self.path)

    @property
    def bytes(self) -> int:
        """``size`` as a number."""
        return as_bytes(self.size) or 0


def _path(given: object) -> str:
    """The file's full name: where the program goes afterwards changes nothing."""
    try:
        path = os.fspath(given) if isinstance(given, (str, os.PathLike)) else ""
    except TypeError:  # its path is not one
        path = ""
    if not isinstance(path, str) or not path:
        raise RegistrationError(f"Trace(path={given!r}): expected the name of a file, such as 'run.pftrace'.")
    if "\0" in path:
        raise RegistrationError(f"Trace(path={given!r}): a file's name has no NUL.")
    path = os.path.abspath(os.path.expanduser(path))
    if not os.path.isdir(os.path.dirname(path)):
        raise RegistrationError(f"Trace(path={given!r}): there is no folder {os.path.dirname(path)!r}. Make it first.")
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return path
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise RegistrationError(f"Trace(path={given!r}): there can't be such a file ({reason}).") from None
    if stat.S_ISDIR(mode):
        raise RegistrationError(f"Trace(path={given!r}): that is a folder: expected the name of a file in it.")
    if not stat.S_ISREG(mode):
        # A pipe would hold up who opens it.
        raise RegistrationError(f"Trace(path={given!r}): that is a device or a pipe: expected the name of a file.")
    return path


def checked(value: object) -> Trace | None:
    """Returns the checked timeline; a name alone is a `Trace` of it.

    Raises:
        RegistrationError: It is neither, or can't work.
    """
    if value is None or isinstance(value, Trace):
        return value
    if isinstance(value, (str, os.PathLike)):
        return Trace(value)
    raise RegistrationError(
        f"trace={value!r}: expected the name of a file, as in 'run.pftrace', a Trace, or None for no timeline."
    )


def report(trace: Trace | None, engine: Engine) -> None:
    """Warns if there can be no timeline: scores don't need one."""
    problem = None if trace is None else engine.places()["trace"][1]
    if trace is not None and problem is not None:
        warn(
            f"trace {trace.file!r}: the file can't be made: {problem}. There is no timeline of this dispatcher; scores are "
            "not touched."
        )


def where(trace: Trace | None, engine: Engine) -> dict[str, str]:
    """The timeline's file, for `Dispatcher.stats`."""
    if trace is None:
        return {}
    path, problem = engine.places()["trace"]
    return {"trace_file": path or f"none: {problem}"}


def for_engine(trace: Trace | None) -> dict[str, Any] | None:
    """The form for the engine, with the process's name on the timeline.

    If there are several ranks, the file's name has the rank, as in ``run-r3.pftrace``.
    """
    if trace is None:
        return None
    ranks, own = world_size(), rank()
    path = Path(trace.file)
    if ranks > 1:
        path = path.with_name(f"{path.stem}-r{own}{path.suffix}")
    process = f"guerdon rank {own} on {socket.gethostname()}, pid {os.getpid()}"
    return {"path": bytes(path), "bytes": trace.bytes, "shortest": float(trace.shortest), "process": process}

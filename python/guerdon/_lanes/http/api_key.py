"""Source of an API key. No object of the package holds the key itself.

- It is read when the engine starts, and one in a file again once a server answers 401.
- A function that gives the key is called by a thread of its own: when the first request needs the
  key, and once a server answers 401.
- Pickles, messages and dumps have only its place.
- A key given instead of its place is not in the error: only what looks like a place is shown.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from guerdon._lanes.http.address import read_small_file
from guerdon._worker.invoke.reasons import reason_of
from guerdon.errors import RegistrationError

if TYPE_CHECKING:
    from guerdon._functions.lane_plan import Keys
    from guerdon._native import KeyRequests

__all__ = ["ApiKey", "KeyThreads"]


# A function that hangs while it gives a key keeps its thread, which no process waits for.
_LONGEST_END_S: Final = 0.5


class KeyThreads:
    """The threads that answer questions of one engine."""

    def __init__(self, keys: Keys) -> None:
        self._threads = [(requests, answer()) for requests, answer in keys]

    def close(self, timeout: float) -> None:
        """Ends them, and waits up to `timeout` seconds for functions that are giving a key."""
        for requests, _ in self._threads:
            requests.close()
        ends = time.monotonic() + min(timeout, _LONGEST_END_S)
        for _, thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, ends - time.monotonic()))


@dataclass(frozen=True)
class ApiKey:
    """Source of a key: an environment variable, a file that holds the key alone, or a function that
    returns it; or no source."""

    env: str | None = None
    file: str | None = None
    # Its text may show a key: that of a `functools.partial` has the arguments.
    function: Callable[[], object] | None = field(default=None, repr=False)

    @property
    def path(self) -> str | None:
        """The file, where the engine reads the key again after a server has refused it."""
        return None if self.file is None else os.path.abspath(os.path.expanduser(self.file))

    def read(self, function: str) -> str | None:
        """The key; None without one, and where a function gives it.

        Raises:
            RegistrationError: It isn't there.
        """
        if self.env is not None:
            key = os.environ.get(self.env, "").strip()
            if not key:
                # It may be the key itself: tokens of many services are identifiers too.
                name = self.env if self.env.isupper() else "variable of the given name (not shown: it may be a key)"
                raise RegistrationError(
                    f"reward function {function!r}: the environment has no {name}. Set it to the API key, or name "
                    "the variable that holds it: api_key_env=…."
                )
            if not _is_text(key):
                raise RegistrationError(
                    f"reward function {function!r}: api_key_env={self.env!r} holds bytes that are not UTF-8."
                )
            return key
        if self.file is None:
            return None
        place = repr(self.file) if os.sep in self.file or _is_there(self.file) else "… (not shown: it may be a key)"
        try:
            key = read_small_file(self.file).decode("utf-8-sig").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise RegistrationError(
                f"reward function {function!r}: api_key_file={place} can't be read: {why}."
            ) from None
        if not key:
            raise RegistrationError(f"reward function {function!r}: api_key_file={place} is empty.")
        return key

    def serve(self, requests: KeyRequests, name: str) -> threading.Thread:
        """Answers requests for the key by the function, on a thread that ends with them.

        Args:
            name: The reward function's.
        """
        thread = threading.Thread(target=self._answer, args=(requests,), name=f"guerdon key of {name}", daemon=True)
        thread.start()
        return thread

    def _answer(self, requests: KeyRequests) -> None:
        assert self.function is not None
        while requests.next():
            try:
                key = self.function()
                if isinstance(key, str):
                    key.encode()
            except BaseException as error:  # the user's, SystemExit too: it is the request's error
                requests.answer(None, f"it raised {reason_of(error)}")
                continue
            if isinstance(key, str) and key.strip():
                requests.answer(key.strip())
            else:
                what = "an empty string" if isinstance(key, str) else f"a {type(key).__name__}"
                requests.answer(None, f"it returned {what}, not the key")


def _is_there(path: str) -> bool:
    try:
        return os.path.lexists(os.path.expanduser(path))
    except ValueError:  # a NUL
        return False


def _is_text(key: str) -> bool:
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True

"""API keys: where to find them. The key itself is in no object of the package.

- S-1  A key is read when the engine starts and goes from there into the engine; what is pickled, shown or dumped says only where it is.
- S-2  Whoever gives the key itself where its place belongs does not find it in the error: only what looks like a place is shown.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from guerdon._http.address import contents
from guerdon.errors import RegistrationError

__all__ = ["Secret"]


@dataclass(frozen=True)
class Secret:
    """Where a key is: in a variable of the environment, or alone in a file; nowhere if there is none."""

    env: str | None = None
    file: str | None = None

    def read(self, function: str) -> str | None:
        """The key.

        Raises:
            RegistrationError: It isn't there.
        """
        if self.env is not None:
            key = os.environ.get(self.env, "").strip()
            if not key:
                # S-2: tokens of many services are identifiers too.
                name = (
                    self.env
                    if self.env.isupper()
                    else "variable of the name that was given (it may be a key: not shown)"
                )
                raise RegistrationError(
                    f"reward function {function!r}: the environment has no {name}. Set it to the API key, or name "
                    "the variable that holds it: api_key_env=…."
                )
            return key
        if self.file is None:
            return None
        place = repr(self.file) if os.sep in self.file or _is_there(self.file) else "… (it may be a key: not shown)"
        try:
            key = contents(self.file).decode("utf-8-sig").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise RegistrationError(
                f"reward function {function!r}: api_key_file={place} can't be read: {why}."
            ) from None
        if not key:
            raise RegistrationError(f"reward function {function!r}: api_key_file={place} is empty.")
        return key


def _is_there(path: str) -> bool:
    try:
        return os.path.lexists(os.path.expanduser(path))
    except ValueError:  # a NUL
        return False

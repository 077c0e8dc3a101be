"""API keys: where to find them. The key itself is in no object of the package.

- S-1  A key is read when the engine starts and goes from there into the engine; what is pickled, shown or dumped says only where it is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

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
                raise RegistrationError(
                    f"reward function {function!r}: the environment has no {self.env}. Set it to the API key, or name "
                    "the variable that holds it: api_key_env=…."
                )
            return key
        if self.file is None:
            return None
        try:
            key = Path(self.file).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise RegistrationError(
                f"reward function {function!r}: api_key_file={self.file!r} can't be read: {why}."
            ) from None
        if not key:
            raise RegistrationError(f"reward function {function!r}: api_key_file={self.file!r} is empty.")
        return key

"""The tokens that let a request in: from a file or the environment, never from the command line,
which every process of the machine can read."""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

from guerdon._serve.errors import ServerOptionError

VARIABLE: Final = "GUERDON_SERVE_TOKEN"

# Characters that can be in a path and in a header unchanged.
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+=-]{16,512}")
_LONGEST_FILE: Final = 64 << 10


def read_tokens(path: str | None, environ: Mapping[str, str] = os.environ) -> tuple[bytes, ...]:
    """The tokens of the file, one a line, else the one of the environment; none without either.

    Raises:
        ServerOptionError: The file can't be read or has none, or one of them is no token.
    """
    if path is not None:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read(_LONGEST_FILE + 1)
        except OSError as error:
            raise ServerOptionError(f"--token-file {path!r} can't be read: {error.strerror}.") from None
        where = f"--token-file {path!r}"
        if len(text) > _LONGEST_FILE:
            raise ServerOptionError(f"{where} is longer than {_LONGEST_FILE >> 10} KB: write one token a line into it.")
        lines = text.split()
        if not lines:
            raise ServerOptionError(f"{where} is empty: write one token a line into it.")
    else:
        lines = [environ[VARIABLE].strip()] if environ.get(VARIABLE, "").strip() else []
        where = VARIABLE
    for place, line in enumerate(lines, 1):
        if not _TOKEN.fullmatch(line):
            raise ServerOptionError(
                f"{where}: token {place} can't be used: expected 16 to 512 letters, digits and ._~+=-, as "
                "`openssl rand -hex 32` makes them."
            )
    return tuple(line.encode() for line in lines)


def is_known(given: bytes, tokens: Sequence[bytes]) -> bool:
    """Returns whether it is one of them, in a time that tells nothing about them."""
    found = False
    for token in tokens:  # all of them, whichever fits
        found |= hmac.compare_digest(given, token)
    return found

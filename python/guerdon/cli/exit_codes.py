"""What ends a command early: a wrong command line, or input that can't be used."""

from __future__ import annotations

import errno
from typing import Final

from guerdon.errors import GuerdonError

__all__ = ["FINE", "FULL", "INTERRUPTED", "TOO_MANY_FAILURES", "UNREAD", "USAGE", "UsageError"]

FINE: Final = 0
FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a place that takes no more."""
TOO_MANY_FAILURES: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
"""128 + SIGINT, what shells report for a program that Ctrl-C ended."""
UNREAD: Final = 141
"""128 + SIGPIPE: the reader of our output went away."""


class UsageError(GuerdonError, ValueError):
    """The command line, the rewards or the data can't be used as they are; the message says what to do."""

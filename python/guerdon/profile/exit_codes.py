"""Exit codes of the command line, and the error that ends a command with one."""

from __future__ import annotations

import errno
from typing import Final

from guerdon.errors import GuerdonError

__all__ = [
    "BROKEN_PIPE",
    "DISK_FULL",
    "FINDINGS",
    "INTERRUPTED",
    "NOTHING_FOUND",
    "SUCCESS",
    "TOO_MANY_FAILURES",
    "USAGE",
    "UsageError",
]

SUCCESS: Final = 0
DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Error numbers of a full or failing disk: exit code `USAGE`."""
TOO_MANY_FAILURES: Final = 1
"""A function failed on more samples than allowed; all rows are written."""
NOTHING_FOUND: Final = 1
"""`guerdon top` found no running dispatcher."""
FINDINGS: Final = 1
"""A profile has findings of severity error or warning."""
USAGE: Final = 2
"""The command line, the rewards or the data can't be used; nothing was scored."""
INTERRUPTED: Final = 130
"""128 + SIGINT, as shells report a program that was ended by Ctrl-C."""
BROKEN_PIPE: Final = 141
"""128 + SIGPIPE: the reader of the output closed it."""


class UsageError(GuerdonError, ValueError):
    """The command line, the rewards or the data can't be used; the message says what to do."""

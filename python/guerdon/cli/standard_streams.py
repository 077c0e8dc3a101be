"""Standard streams that any command can write to, also if it was started without them.

- One that is closed (``>&-``) leads nowhere: else the first file that is opened would have its
  descriptor, and get what workers print.
- Characters that stdout's encoding lacks are written as escapes.
"""

from __future__ import annotations

import io
import os
import sys

__all__ = ["make_usable"]


def make_usable() -> None:
    """Opens the closed ones, for this process and its children."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # It gets the lowest number that is free: this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - until the end
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")

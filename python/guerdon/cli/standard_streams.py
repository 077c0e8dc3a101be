"""Standard streams that any command can write to, whatever it was started with.

- One that is closed (``>&-``) leads nowhere: else the first file that is opened would have its
  descriptor, and get what workers print.
- What the encoding of stdout lacks is written as an escape.
"""

from __future__ import annotations

import io
import os
import sys

__all__ = ["make_usable"]


def make_usable() -> None:
    """Opens what is closed, for this process and those that it starts."""
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

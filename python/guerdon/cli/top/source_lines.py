"""Source lines for stacks that come without: out of plain files of this host, where they are."""

from __future__ import annotations

import linecache
import os
import re
import stat
from collections.abc import Sequence
from typing import Final

__all__ = ["with_source"]

_FRAME: Final = re.compile(r'  File "(.*)", line (\d{1,9}), in .*')
_LARGEST: Final = 16 << 20


def with_source(stack: Sequence[str]) -> list[str]:
    """The stack as a traceback shows it; frames that have their line keep it."""
    lines: list[str] = []
    for index, line in enumerate(stack):
        lines.append(line)
        frame = _FRAME.fullmatch(line)
        following = stack[index + 1] if index + 1 < len(stack) else ""
        if frame is not None and not following.startswith("    ") and _is_source(frame[1]):
            source = linecache.getline(frame[1], int(frame[2])).strip()
            lines += [f"    {source}"] if source else []
    return lines


def _is_source(file: str) -> bool:
    # Neither a pipe nor a device, whatever a stack names.
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size <= _LARGEST

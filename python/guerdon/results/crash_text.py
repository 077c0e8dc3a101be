"""The Python stack of a process that crashed, as `faulthandler` wrote it, without the frames of the
worker program that called the user's function."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["without_worker_frames"]

_BEGINNING: Final = "Fatal Python error: "
_FRAME: Final = re.compile(r'\s+File "([^"]*)", line ')
_OURS: Final = re.compile(r"[/\\]guerdon[/\\]_worker[/\\]")


def without_worker_frames(text: str | None) -> str | None:
    """Drops what called the user's outermost frame; any other text, and a stack that has no frame
    of the user's, stays as it is."""
    if text is None or not text.startswith(_BEGINNING):
        return text
    lines = text.splitlines(keepends=True)
    frames = {place: found[1] for place, line in enumerate(lines) if (found := _FRAME.match(line)) is not None}
    outermost = max((place for place, file in frames.items() if not _OURS.search(file)), default=None)
    if outermost is None:
        return text
    return "".join(line for place, line in enumerate(lines) if place <= outermost or place not in frames)

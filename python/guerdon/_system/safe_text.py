"""Text that users, models and files wrote, made safe for a terminal and for a page: its characters
can't move the cursor, change a colour or turn the direction of their neighbours. Escaping for HTML
is left to the page."""

from __future__ import annotations

import unicodedata
from typing import Final

__all__ = ["one_line", "printable", "readable", "shortened"]

# Cc and Cf: control and format characters; Cs, Co, Cn: what has no picture; Zl, Zp: lines.
_HIDDEN: Final = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_KEPT: Final = "\n\t\u200d"
"""Line breaks, tabs, and the joiner of emojis."""


def printable(text: str, *, keep: str = "") -> str:
    r"""Returns `text` with an escape such as ``\x1b`` for each character that is not printable.

    Args:
        keep: Characters that stay all the same, such as line breaks.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char in keep or _is_plain(char) else ascii(char)[1:-1] for char in text)


def readable(text: str) -> str:
    """The same for text of several lines."""
    return printable(text.replace("\r\n", "\n"), keep=_KEPT)


def one_line(text: str, width: int) -> str:
    """The same with white space of any kind as one space, and at most `width` characters."""
    shown = printable(" ".join(text[: 16 * width].split()))
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def shortened(text: str, most: int) -> str:
    """Returns at most `most` characters, and the original number."""
    return text if len(text) <= most else f"{text[:most].rstrip()} … ({len(text):,} characters)"


def _is_plain(char: str) -> bool:
    return (char.isascii() and char.isprintable()) or unicodedata.category(char) not in _HIDDEN

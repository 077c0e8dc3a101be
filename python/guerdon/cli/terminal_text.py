"""Text that users, models and files wrote, made safe for a terminal: its characters can't move the
cursor, change a colour or turn the direction of their neighbours."""

from __future__ import annotations

import unicodedata
from typing import Final

__all__ = ["one_line", "printable"]

# Cc and Cf: control and format characters; Cs, Co, Cn: what has no picture; Zl, Zp: lines.
_HIDDEN: Final = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


def printable(text: str, *, keep: str = "") -> str:
    r"""Returns `text` with an escape such as ``\x1b`` for each character that is not printable.

    Args:
        keep: Characters that stay all the same, such as line breaks.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char in keep or _is_plain(char) else ascii(char)[1:-1] for char in text)


def one_line(text: str, width: int) -> str:
    """The same with white space of any kind as one space, and at most `width` characters."""
    shown = printable(" ".join(text[: 16 * width].split()))
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def _is_plain(char: str) -> bool:
    return (char.isascii() and char.isprintable()) or unicodedata.category(char) not in _HIDDEN

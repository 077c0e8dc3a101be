"""Text of users and models, made safe to show.

Characters that are invisible or change the look of their neighbours (control characters,
directions, tags of Unicode) are written out: ``␀``, ``⟨U+202E⟩``. Escaping for HTML is left to the
page.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["shortened", "visible"]

_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\ufffe\uffff\U000e0000-\U000e0fff]"
)


def visible(text: str) -> str:
    """The text with a sign for each character that can't be seen; line breaks and tabs stay."""
    return _HIDDEN.sub(_sign, text.replace("\r\n", "\n"))


def shortened(text: str, most: int) -> str:
    """Returns at most `most` characters, and the original number."""
    if len(text) <= most:
        return text
    return f"{text[:most].rstrip()} … ({len(text):,} characters)"


def _sign(found: re.Match[str]) -> str:
    code = ord(found.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"⟨U+{code:04X}⟩"

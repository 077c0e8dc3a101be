"""Keys, out of the bytes that a terminal sends: letters, and names for those that have none."""

from __future__ import annotations

import codecs
import re
from typing import Final

__all__ = ["Keys"]

_NAMED: Final = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\r": "enter",
    "\n": "enter",
    "\x1b": "escape",
}
# A sequence that nothing is bound to is one key too, so that its letters are none.
_KEY: Final = re.compile(r"\x1b\[[0-9;?]*[@-~]|\x1bO.|\x1b|.", re.S)


class Keys:
    """Reads keys; bytes of a character may come in pieces."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, typed: bytes) -> list[str]:
        """The keys in these bytes."""
        found = _KEY.findall(self._decoder.decode(typed))
        named = (_NAMED.get(key, key) for key in found)
        return [key for key in named if (len(key) > 1 and key.isalpha()) or (len(key) == 1 and key.isprintable())]

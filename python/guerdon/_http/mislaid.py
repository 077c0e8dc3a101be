"""What looks like an API key in a place where none belongs.

- M-1  Headers, fields of a request and the query of an address are refused if their name says that they hold a key, or if they begin as
       a header with a key does: it would stand in the program, in pickles, and in the logs of servers on the way.
- M-2  Names and values of which that is not sure (``eos_token``, ``prompt_cache_key``, "Basic arithmetic") are left alone:
       there is no other way to send them.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["is_key", "names_a_key"]

_NAMES: Final = re.compile(
    r"""(.*_)?(api_?key|auth|authorization|cookie|credentials?|password|passwd|passphrase|secret)
    |(.*_)?(access|functions|private|secret|service|subscription|virtual)_?key
    |((.*_)?(access|api|auth|bearer|hf|id|refresh|security|session)_?)?token""",
    re.IGNORECASE | re.VERBOSE,
)
# With a digit, or longer than a word: "Basic arithmetic" is none.
_VALUE: Final = re.compile(r"\s*(bearer|basic)\s+(?=\S*\d|\S{30})[^\s{}]{8,}\s*", re.IGNORECASE)


def names_a_key(name: str) -> bool:
    """Whether what is called so holds a key."""
    return _NAMES.fullmatch(name.strip().replace("-", "_")) is not None


def is_key(value: str) -> bool:
    """Whether a text is a key, with what a header says before it."""
    return _VALUE.fullmatch(value) is not None

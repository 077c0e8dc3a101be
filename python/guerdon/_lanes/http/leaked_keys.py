"""Detects API keys where none belongs: in headers, fields of a request, or the query of an address.

They are refused if their name says that they hold a key, or if they start like a header with one:
the key would be in the program, in pickles and in logs. Doubtful ones (``eos_token``,
``prompt_cache_key``, "Basic arithmetic") pass: it is the only way to send them.
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
# A value with a digit, or longer than a word: "Basic arithmetic" is not a key.
_VALUE: Final = re.compile(r"\s*(bearer|basic)\s+(?=\S*\d|\S{30})[^\s{}]{8,}\s*", re.IGNORECASE)


def names_a_key(name: str) -> bool:
    """Returns whether a field of this name holds a key."""
    return _NAMES.fullmatch(name.strip().replace("-", "_")) is not None


def is_key(value: str) -> bool:
    """Returns whether a text is a key, with what a header says before it."""
    return _VALUE.fullmatch(value) is not None

"""The program in a completion: the last fenced block of its language.

- Blocks are those of Markdown: three or more backticks or tildes, at most three spaces before them,
  closed by at least as many.
- A block that is not closed, as in a completion that was cut off, is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Final, Literal, NamedTuple

__all__ = ["Block", "Extract", "blocks_of", "extract_program"]

Extract = Literal["last", "first", "whole"] | Callable[[str], str | None]

_FENCE: Final = re.compile(r"^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)([^\n]*)$")


class Block(NamedTuple):
    """A fenced block: its tag in lower case, and its text."""

    tag: str
    text: str


def blocks_of(text: str) -> list[Block]:
    """The closed fenced blocks of a text, in order."""
    found: list[Block] = []
    fence, tag = "", ""
    lines: list[str] = []
    for line in text.split("\n"):
        match = _FENCE.match(line.rstrip("\r"))
        if not fence:
            if match and not (match[1][0] == "`" and "`" in match[3]):
                fence, tag, lines = match[1], match[2].strip("{}.").lower(), []
        elif match and match[1].startswith(fence) and not match[2] and not match[3].strip():
            found.append(Block(tag, "\n".join(lines) + "\n"))
            fence = ""
        else:
            lines.append(line)
    return found


def extract_program(text: str, how: Extract, tags: Collection[str]) -> tuple[str | None, str]:
    """The program in `text`, or None; and why there is none.

    Args:
        how: Which block, ``"whole"`` for all of the text, or a function that finds the program.
        tags: Of the language, in lower case. Where no block has one of them, blocks without a tag
            are taken for it.
    """
    if callable(how):
        found = how(text)
        return (found, "") if isinstance(found, str) else (None, "the function extract= found no program")
    if how == "whole":
        return (text, "") if text.strip() else (None, "the completion is empty")
    blocks = blocks_of(text)
    # What a program prints is often shown behind it, in a block without a tag.
    own = [block for block in blocks if block.tag in tags] or [block for block in blocks if not block.tag]
    if own:
        return own[-1 if how == "last" else 0].text, ""
    if blocks:
        shown = ", ".join(sorted({block.tag[:40] for block in blocks}))
        return None, f"no code block in this language, only: {shown}"
    return None, "no code block"

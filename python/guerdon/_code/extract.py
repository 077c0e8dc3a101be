"""The program in a completion: the last fenced block of its language.

- Blocks are those of Markdown, in lists too: three or more backticks or tildes, closed by at least
  as many. What the fence is indented by is no part of the program.
- Models forget fences: one with a tag never closes a block, so it begins one; and a block that is
  never closed ends where a fence shares its line with text.
- Else a block that is not closed, as in a completion that was cut off, is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Final, Literal, NamedTuple

from guerdon._code.row_texts import BOM

__all__ = ["Block", "Extract", "blocks_of", "extract_program"]

Extract = Literal["last", "first", "whole"] | Callable[[str], str | None]

# Indentation, with the mark of a list's item; the fence; what is behind it.
_FENCE: Final = re.compile(r"([ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?)(`{3,}|~{3,})([^\n]*)")
# As in ```python:main.py, ```{.python .numberLines} and ```c++17.
_TAG: Final = re.compile(r"[\s{.]*(?:language-)?([\w+#-]*)")
# More is a block of its own within the program's text, as in a docstring.
_DEEPER: Final = 4
_TAB: Final = 4


class Block(NamedTuple):
    """A fenced block: its tag in lower case, its text, and how far its fence was indented."""

    tag: str
    text: str
    indentation: int = 0


class _Fence(NamedTuple):
    indentation: int
    marks: str
    info: str
    listed: bool

    def opens(self) -> bool:
        return self.marks[0] == "~" or "`" not in self.info

    def of(self, opened: _Fence) -> bool:
        """Whether it is no part of the text of the block that `opened` began."""
        near = self.indentation < opened.indentation + _DEEPER and not self.listed
        return near and self.marks.startswith(opened.marks)


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a text, in order."""
    return _blocks(text)[0]


def _blocks(text: str) -> tuple[list[Block], Block | None]:
    """The fenced blocks of a text, in order; and what the text breaks off in, if that is one."""
    found: list[Block] = []
    opened: _Fence | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        fence = _fence(line)
        if opened is None:
            if fence is not None and fence.opens():
                opened, lines = fence, []
        elif fence is None or not fence.of(opened):
            lines.append(line)
        elif not fence.info.strip():
            found.append(_block(opened, lines))
            opened = None
        elif fence.opens() and not fence.info[0].isspace():
            found += _unclosed(opened, lines)
            opened, lines = fence, []
        else:
            lines.append(line)
    if opened is None:
        return found, None
    last = _unclosed(opened, lines)
    return found + last, None if last else _block(opened, lines)


def extract_program(text: str, how: Extract, tags: Collection[str]) -> tuple[str | None, str]:
    """The program in `text`, or None; and why there is none.

    Args:
        how: Which block; ``"whole"`` for all of the text where it has no block, or a function that
            finds the program.
        tags: Of the language, in lower case. Where no block has one of them, blocks without a tag
            are taken for it.
    """
    if callable(how):
        found = how(text)
        return (
            (found.removeprefix(BOM), "")
            if isinstance(found, str)
            else (None, "the function extract= found no program")
        )
    text = text.removeprefix(BOM)
    blocks, cut_off = _blocks(text)
    if how == "whole":
        # A deeper one belongs to a program without fences: to its docstring, say.
        outer = _own([block for block in blocks if block.indentation < _DEEPER], tags)
        program = outer[-1].text if outer else _without_fences(text)
        return (program.removeprefix(BOM), "") if program.strip() else (None, "the completion is empty")
    own = _own(blocks, tags)
    if own:
        return own[-1 if how == "last" else 0].text.removeprefix(BOM), ""
    if cut_off is not None and _own([cut_off], tags):
        return None, "the code block is cut off (no closing fence)"
    if blocks:
        shown = ", ".join(sorted({block.tag[:40] for block in blocks}))
        return None, f"no code block in this language, only: {shown}"
    return None, "no code block"


def _own(blocks: list[Block], tags: Collection[str]) -> list[Block]:
    """Those of the language, or else those without a tag: what a program prints is often shown
    behind it in such a one."""
    named = [block for block in blocks if block.tag in tags or block.tag.rstrip("0123456789") in tags]
    return named or [block for block in blocks if not block.tag]


def _fence(line: str) -> _Fence | None:
    match = _FENCE.match(line)
    if match is None:
        return None
    return _Fence(len(match[1].expandtabs(_TAB)), match[2], match[3].rstrip("\r"), bool(match[1].strip()))


def _block(opened: _Fence, lines: list[str]) -> Block:
    tag = _TAG.match(opened.info)
    first = next((line for line in lines if line.strip()), "")
    # A program that is less indented than its fence keeps what it has.
    width = min(opened.indentation, _width(first))
    text = "\n".join(_outdented(line, width) for line in lines) + "\n"
    return Block(tag[1].lower() if tag else "", text, opened.indentation)


def _unclosed(opened: _Fence, lines: list[str]) -> list[Block]:
    """The block up to a fence that shares its line with text, if there is one."""
    for place, line in enumerate(lines):
        fence = _fence(line)
        if fence is not None and fence.of(opened) and fence.info[:1].isspace():
            return [_block(opened, lines[:place])]
        if line.rstrip().endswith(opened.marks):
            return [_block(opened, [*lines[:place], line.rstrip().removesuffix(opened.marks)])]
    return []


def _without_fences(text: str) -> str:
    """A program of which only one fence is there, as the prompt ended in the other one or sampling
    stopped at it."""
    lines = text.split("\n")
    for place, line in enumerate(lines):
        fence = _fence(line)
        if fence is not None and fence.indentation < _DEEPER and fence.opens():
            before = lines[:place]
            return "\n".join(before) + "\n" if any(map(str.strip, before)) else "\n".join(lines[place + 1 :])
    return text


def _width(line: str) -> int:
    """Columns that it is indented by."""
    return len(line[: len(line) - len(line.lstrip(" \t"))].expandtabs(_TAB))


def _outdented(line: str, width: int) -> str:
    """The line without its first `width` columns, as far as they are blank."""
    if not width:
        return line
    rest = line.lstrip(" \t")
    return (
        " " * (_width(line) - width) + rest
        if "\t" in line[: len(line) - len(rest)]
        else line[min(width, len(line) - len(rest)) :]
    )

"""The program in a completion: the last fenced block of its language.

- Blocks are those of Markdown, in lists too: three or more backticks or tildes, closed by at least
  as many. The fence's indentation is not part of the program.
- Models forget fences: one with a tag never closes a block, so it begins one; and a block that is
  never closed ends where a fence shares its line with text.
- A fence may follow text on its line, and one closes a block with ``</answer>`` behind it.
- Any other block that is not closed, as in a completion that was cut off, does not count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Final, Literal, NamedTuple

from guerdon.rewards.code.trusted.cases import BOM, is_text
from guerdon.rewards.code.trusted.warn_once import warn_of_extract

__all__ = ["Block", "Extract", "Wanted", "extract_program"]

Extract = Literal["last", "first", "whole"] | Callable[[str], str | None]
Wanted = Callable[[], Collection[str]]
"""Names of the functions and classes that a row asks for; none for a program that reads its input.
It is called only where that decides between blocks."""

# Indentation, with the mark of a list's item; the fence; what is behind it.
_FENCE: Final = re.compile(r"([ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?)(`{3,}|~{3,})([^\n]*)")
# A fence behind other text has a tag, or follows one of these.
_BARE_BEHIND: Final = (">", ":", "*")
_ONE_TAG: Final = re.compile(r"(`{3,})([\w+#.-]*)")
_TAGGED: Final = re.compile(r"(?:\s*<[^<>\n]{1,40}>)+\s*`{3}")
# Tags such as ```python:main.py, ```{.python .numberLines} and ```c++17.
_TAG: Final = re.compile(r"[\s{.]*(?:language-)?([\w+#-]*)")
# Tags and tokens of chat formats behind a fence: </answer>, <|im_end|>, [/INST].
_TOKEN: Final = re.compile(r"<[^<>\n]{1,40}>|\[/?[A-Z]{1,20}\]")
_LONGEST_TOKEN: Final = 42
_MOST_TOKENS: Final = 8
# Names of blocks that hold no program, or one in another language than the row's.
_OTHER_NAMES: Final = (
    "bash batch c c++ cc clojure cmd console cpp cs csharp css csv cxx c# d dart diff doctest dockerfile elixir erlang es "
    "example f# fortran go golang haskell hs html http ini input java javascript js json jsonl jsx julia kotlin kt latex "
    "log lua makefile markdown matlab md mermaid mjs node nodejs objective-c ocaml octave out output pascal perl php "
    "plain plaintext powershell prolog ps1 py pycon python python-repl ipython r rb result rs ruby rust scala sh shell sql stderr stdin "
    "stdout swift tests tex text toml ts tsx txt typescript vb verilog xml yaml yml zig zsh"
)
_OTHERS: Final = frozenset(_OTHER_NAMES.split())
# Words that read input, in all supported languages.
_READS: Final = re.compile(r"\b(?:raw_)?input\b|stdin|open\(0|read\(0|\bmain\s*\(|readline|fileinput|readFileSync")
# Spaces from which on a block is inside the program's text, as in a docstring.
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
        """Returns whether it is not part of the text of the block that `opened` began."""
        near = self.indentation < opened.indentation + _DEEPER and not self.listed
        return near and self.marks.startswith(opened.marks)


def _blocks(text: str) -> tuple[list[Block], Block | None]:
    """The fenced blocks of a text, in order; and what the text breaks off in, if that is one."""
    found: list[Block] = []
    opened: _Fence | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        fence = _fence(line)
        if opened is None:
            fence = fence or _behind_text(line)
            if fence is not None and fence.opens():
                opened, lines = fence, []
        elif fence is None or not fence.of(opened):
            behind = _behind_text(line)
            if behind is not None and behind.info and _TAGGED.match(line):
                found += _unclosed(opened, lines)
                opened, lines = behind, []
            else:
                lines.append(line)
        elif not fence.info.strip() or not _without_tokens(fence.info):
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


def extract_program(
    text: str, how: Extract, tags: Collection[str], wanted: Wanted = lambda: ()
) -> tuple[str | None, str]:
    """The program in `text`, or None; and the reason if there is none.

    Args:
        how: Which block; ``"whole"`` for all of the text where it has no block, or a function that
            finds the program.
        tags: Of the language, in lower case. Where no block has one of them, blocks without a tag
            are taken for it, or else those whose tag is not a language.
        wanted: Names of which the block defines most, or else reads input.
    """
    if callable(how):
        program, why = _by_function(how, text)
    else:
        program, why = _in_blocks(text.removeprefix(BOM), how, tags, wanted)
    if program is not None and not is_text(program):
        return None, "the program is no valid text: it holds half a surrogate pair"
    return None if program is None else program.removeprefix(BOM), why


def _in_blocks(text: str, how: str, tags: Collection[str], wanted: Wanted) -> tuple[str | None, str]:
    blocks, cut_off = _blocks(text)
    if how == "whole":
        # A deeper one belongs to a program without fences: to its docstring, say.
        outer = _own([block for block in blocks if block.indentation < _DEEPER], tags)
        program = _chosen(outer, wanted).text if outer else _without_fences(text)
        return (program, "") if program.strip() else (None, "the completion is empty")
    own = _own(blocks, tags)
    if own:
        return _chosen(own if how == "last" else own[::-1], wanted).text, ""
    if cut_off is not None and _own([cut_off], tags):
        return None, "the code block is cut off (no closing fence)"
    if blocks:
        shown = ", ".join(sorted({block.tag[:40] for block in blocks}))
        return None, f"no code block in this language, only: {shown}"
    return None, "no code block"


def _by_function(how: Callable[[str], str | None], text: str) -> tuple[str | None, str]:
    """Finds the program by a user's function. A completion on which it raises is wrong: a
    completion must not decide whether it is judged."""
    try:
        found = how(text)
    except (Exception, SystemExit) as error:
        why = f"the function extract= raised {type(error).__name__}: {str(error)[:300]}"
        warn_of_extract(id(how), why)
        return None, why
    return (found, "") if isinstance(found, str) else (None, "the function extract= found no program")


def _own(blocks: list[Block], tags: Collection[str]) -> list[Block]:
    """Returns the blocks of the language, or else those without a tag: a program's output is often
    shown behind it in such a block."""
    kinds: tuple[list[Block], ...] = [], [], []
    for block in blocks:
        names = {block.tag, block.tag.rstrip("0123456789")}
        if not names.isdisjoint(tags):
            kinds[0].append(block)
        elif not block.tag:
            kinds[1].append(block)
        elif names.isdisjoint(_OTHERS):
            kinds[2].append(block)
    return next(filter(None, kinds), [])


def _chosen(blocks: list[Block], wanted: Wanted) -> Block:
    """Returns the last of the blocks that have most of the wanted names."""
    if len(blocks) == 1:
        return blocks[0]
    names = {name.partition(".")[0] for name in wanted()}
    defines = [
        re.compile(rf"^[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+{re.escape(name)}\b|^{re.escape(name)}[ \t]*=", re.M)
        for name in names
    ]
    looked = defines or [_READS]
    has = [sum(one.search(block.text) is not None for one in looked) for block in blocks]
    most = max(has)
    return next(block for block, count in zip(blocks[::-1], has[::-1], strict=True) if count == most)


def _fence(line: str) -> _Fence | None:
    match = _FENCE.match(line)
    if match is None:
        return None
    return _Fence(len(match[1].expandtabs(_TAB)), match[2], match[3].rstrip("\r"), bool(match[1].strip()))


def _behind_text(line: str) -> _Fence | None:
    """A fence at the end of a line of text."""
    place = line.find("```")
    match = _ONE_TAG.fullmatch(line[place:].rstrip()) if place > 0 else None
    before = line[:place].rstrip()
    if match is None or not before or "`" in before or not (match[2] or before.endswith(_BARE_BEHIND)):
        return None
    return _Fence(0, match[1], match[2], listed=False)


def _without_tokens(text: str) -> str:
    """The text up to tags and tokens of chat formats at its end."""
    text = text.rstrip()
    for _ in range(_MOST_TOKENS):
        place = max(text.rfind(mark, max(0, len(text) - _LONGEST_TOKEN)) for mark in "<[")
        if place < 0 or not _TOKEN.fullmatch(text[place:]):
            break
        text = text[:place].rstrip()
    return text


def _block(opened: _Fence, lines: list[str]) -> Block:
    tag = _TAG.match(opened.info)
    first = next((line for line in lines if line.strip()), "")
    # A program that is less indented than its fence keeps its indentation.
    width = min(opened.indentation, _width(first))
    text = "\n".join(_outdented(line, width) for line in lines) + "\n"
    return Block(tag[1].lower() if tag else "", text, opened.indentation)


def _unclosed(opened: _Fence, lines: list[str]) -> list[Block]:
    """The block up to a fence that shares its line with text, if there is one."""
    for place, line in enumerate(lines):
        fence = _fence(line)
        if fence is not None and fence.of(opened) and fence.info[:1].isspace():
            return [_block(opened, lines[:place])]
        bare = _without_tokens(line)
        if bare.endswith(opened.marks):
            return [_block(opened, [*lines[:place], bare.removesuffix(opened.marks)])]
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

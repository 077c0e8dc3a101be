"""A profile for people, by rich: a table where it fits, else a list; the same without colour.

Texts of users go in as texts, never as markup; what can't be printed is shown escaped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Final, TextIO

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from guerdon._system.safe_text import readable
from guerdon.cli.profile_words import ProfilePart, blocks, summary
from guerdon.profile.function_profile import Profile

__all__ = ["show"]

_NARROW: Final = 72
_MOST_DETAILS: Final = 3
_COLOURS: Final = {"error": "bold red", "warning": "yellow", "info": "blue", "clean": "green"}
_STYLES: Final = {"heading": "bold underline", "code": "cyan"}


def show(found: Profile, file: TextIO | None = None, *, verbose: bool = False) -> None:
    """Print a profile to `file`, stdout by default.

    Args:
        verbose: With all findings, and the reasons of what is advised.
    """
    console = Console(file=file or sys.stdout, highlight=False, markup=False, emoji=False)
    before = ""
    for block in blocks(found, verbose=verbose):
        if block.kind in ("table", "heading") or (block.kind == "line" and before in ("table", "code")):
            console.print()
        before = block.kind
        for part in _drawn(block, narrow=console.width < _NARROW):
            console.print(part)
    hint = "" if verbose or found.clean else " (-v shows all findings)"
    console.print()
    console.print(Text(summary(found) + hint, _COLOURS["clean"] if found.clean else "bold"))


def _drawn(block: ProfilePart, *, narrow: bool) -> Iterator[RenderableType]:
    if block.kind == "table":
        yield from _listed(block.rows) if narrow else [_table(block.rows)]
    elif block.kind == "item":
        yield Padding(Text.assemble((block.mark, _COLOURS[block.mark]), " ", readable(block.text)), (0, 0, 0, 1))
        for detail in block.details[:_MOST_DETAILS]:
            yield Padding(Text(readable(detail), "dim"), (0, 0, 0, 3))
    else:
        yield Text(readable(block.text), _STYLES.get(block.kind) or _COLOURS.get(block.mark, ""))


def _table(rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, head in enumerate(rows[0]):
        figure = 1 < place < len(rows[0]) - 1
        table.add_column(head, justify="right" if figure else "left", no_wrap=place > 1, overflow="fold")
    for name, counts, *others in rows[1:]:
        table.add_row(Text(readable(name), "bold"), _counts(counts), *map(Text, others))
    return table


def _listed(rows: Sequence[Sequence[str]]) -> Iterator[Text]:
    for name, counts, *others in rows[1:]:
        yield Text.assemble((readable(name), "bold"), ": ", _counts(counts))
        yield Text("  " + ", ".join(f"{head} {cell}" for head, cell in zip(rows[0][2:], others, strict=True)))


def _counts(text: str) -> Text:
    return Text(text, next((_COLOURS[kind] for kind in ("error", "warning") if kind in text), _COLOURS["clean"]))

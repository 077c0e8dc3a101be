"""A profile for people, by rich: a table where it fits, else a list; the same without colour.

Texts of users go in as texts, never as markup; what can't be printed is shown escaped.
"""

from __future__ import annotations

import sys
from typing import Final, TextIO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from guerdon._system.safe_text import printable
from guerdon.cli import profile_words as words
from guerdon.profile.function_profile import FunctionProfile, Profile

__all__ = ["show"]

_NARROW: Final = 72
_COLOURS: Final = {"error": "bold red", "warning": "yellow", "info": "blue"}
_FACTS: Final = ("p50", "p99", "waits", "memory")


def show(found: Profile, file: TextIO | None = None, *, verbose: bool = False) -> None:
    """Print a profile to `file`, stdout by default: the verdict, times, the lines to paste, the
    step.

    Args:
        verbose: With all findings, and the reasons of what is advised.
    """
    console = Console(file=file or sys.stdout, highlight=False, markup=False, emoji=False)
    narrow = console.width < _NARROW
    parts: list[RenderableType] = [Text(words.headline(found), "green" if found.clean else "bold red")]
    parts += [_cause(str(each), each.severity) for each in found.root_causes()]
    parts += [Text(""), _listed(found) if narrow else _table(found)]
    lines = {name: words.paste(function) for name, function in found.functions.items()}
    if any(lines.values()):
        parts += [Text(""), Text("To paste:")]
        parts += [Text(printable(f"{line}  # {name}"), "cyan") for name, line in lines.items() if line is not None]
    if verbose:
        parts += [_function(function, narrow=narrow) for function in found.functions.values()]
    if found.step is not None:
        parts += [Text(""), *(Text(line) for line in words.step_lines(found.step))]
    short = words.cut_short(found)
    if short:
        parts += [Text(""), *(Text(printable(line, keep="\n"), "yellow") for line in short)]
    hint = "" if verbose or found.clean else " (-v shows all findings)"
    parts += [Text(""), Text(words.summary(found) + hint, "green" if found.clean else "bold")]
    console.print(Group(*parts))


def _cause(line: str, severity: str) -> Padding:
    kind, _, rest = line.partition(" ")
    return Padding(Text.assemble((kind, _COLOURS[severity]), " ", printable(rest, keep="\n")), (0, 0, 0, 1))


def _table(found: Profile) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("function", overflow="fold")
    table.add_column("findings")
    for name in _FACTS:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("lane", no_wrap=True)
    for function in found.functions.values():
        facts = words.facts(function)
        lane = function.advice.lane if function.advice else function.spec.lane
        moved = lane if lane == function.spec.lane else f"→ {lane}"
        cells = [Text(facts.get(name, "-")) for name in _FACTS]
        table.add_row(Text(function.name, "bold"), _counts(function), *cells, Text(moved))
    return table


def _listed(found: Profile) -> Group:
    lines = []
    for function in found.functions.values():
        facts = ", ".join(f"{name} {value}" for name, value in words.facts(function).items())
        lines.append(Text.assemble((function.name, "bold"), ": ", _counts(function)))
        if facts:
            lines.append(Text(f"  {facts}"))
    return Group(*lines)


def _counts(function: FunctionProfile) -> Text:
    text = words.counts(function)
    colour = next((_COLOURS[kind] for kind in ("error", "warning") if kind in text), "green")
    return Text(text, colour)


def _function(function: FunctionProfile, *, narrow: bool) -> Group:
    """Its findings, with rows that show them, and what to choose."""
    indent = 1 if narrow else 2
    parts: list[RenderableType] = [Text(""), Text(function.name, "bold underline")]
    for finding in function.sorted_findings():
        head = Text.assemble(
            (finding.severity, _COLOURS[finding.severity]),
            f" [{finding.check}] ",
            printable(finding.message, keep="\n"),
        )
        parts.append(Padding(head, (0, 0, 0, indent)))
        parts += [
            Padding(Text(printable(str(example), keep="\n"), "dim"), (0, 0, 0, 2 * indent))
            for example in finding.examples[:3]
        ]
    parts += [Padding(Text(line), (0, 0, 0, indent)) for line in words.judge_lines(function)]
    advice = function.advice
    if advice is not None:
        parts.append(Padding(Text(f"lane {advice.lane}: {advice.lane_reason}"), (0, 0, 0, indent)))
        if advice.timeout is not None:
            parts.append(Padding(Text(f"timeout {advice.timeout:g} s: {advice.timeout_reason}"), (0, 0, 0, indent)))
        if advice.decorator is not None:
            parts.append(Padding(Text(printable(advice.decorator, keep="\n"), "cyan"), (0, 0, 0, indent)))
    return Group(*parts)

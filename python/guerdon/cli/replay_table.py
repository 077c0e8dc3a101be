"""The diff of a replay for people.

- Colour says nothing that words don't.
- A terminal of fewer than 76 columns gets a list instead of tables.
- Texts of completions can't steer the terminal: what is not printable is shown escaped.
"""

from __future__ import annotations

import io
import shutil
from typing import TYPE_CHECKING, Any, Final, TextIO

from guerdon._system.extras import pip_install
from guerdon.cli.terminal_text import one_line, printable
from guerdon.profile.exit_codes import UsageError

if TYPE_CHECKING:
    from guerdon._replay import ReplayResult

__all__ = ["check_installed", "print_diff", "summary"]

_NARROW: Final = 76
_TOTAL: Final = "weighted total"


def check_installed() -> None:
    """Refuse to go on where the table could not be shown.

    Raises:
        UsageError: rich is missing.
    """
    try:
        import rich  # noqa: F401
    except ImportError:
        raise UsageError(f"the table needs rich: {pip_install('cli')}. --json needs nothing.") from None


def print_diff(found: ReplayResult, stream: TextIO) -> None:
    """Print the diff to `stream`, as wide as that is."""
    from rich.console import Console

    terminal = stream.isatty()
    width = shutil.get_terminal_size((80, 24)).columns
    drawn = io.StringIO()
    console = Console(
        file=drawn, width=width, force_terminal=terminal, color_system="auto" if terminal else None, highlight=False
    )
    _draw(console, found, width)
    encoding = stream.encoding or "utf-8"
    lines = [line.rstrip() for line in drawn.getvalue().splitlines()]
    stream.write("".join(f"{line}\n" for line in lines).encode(encoding, "backslashreplace").decode(encoding))


def summary(found: ReplayResult, output: str | None) -> str:
    """Returns the counts of scored and failed samples, and the notes: for stderr."""
    lines = []
    for name, function in found.functions.items():
        states = ", ".join(f"{count} {label}" for label, count in function["status"].items())
        lines.append(f"{name}: {function['scored']} scored{': ' if states else ''}{states}")
        lines += [
            f"  {count} failed: {one_line(reason, 160)}" for reason, count in list(function["reasons"].items())[:3]
        ]
    lines += [f"note: {note}" for note in found.notes]
    lines += found.failures
    lines.append(f"{found.samples} samples in {found.groups} groups{f', written to {output}' if output else ''}")
    return printable("\n".join(lines), keep="\n\t")


def _draw(console: Any, found: ReplayResult, width: int) -> None:
    rows = {name: function["diff"] for name, function in found.functions.items() if function["diff"] is not None}
    if not rows:
        console.print("no function of the journal was replayed: there is nothing to compare")
        return
    if any(function["compared"] for function in rows.values()) or found.total["compared"]:
        rows[_TOTAL] = found.total
    blocks = {name: (_agreement(row, found.tolerance), _within_groups(row)) for name, row in rows.items()}
    if width < _NARROW:
        _draw_list(console, blocks)
    else:
        for place, title in enumerate(("Rewards", "Within groups")):
            _draw_table(console, title, {name: block[place] for name, block in blocks.items() if block[place]})
    _draw_moved(console, found)


def _draw_table(console: Any, title: str, rows: dict[str, dict[str, str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return
    drawn = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    drawn.add_column("function", overflow="fold", style="bold")
    for column in next(iter(rows.values())):
        drawn.add_column(column, justify="right", overflow="fold")
    for name, cells in rows.items():
        drawn.add_row(Text(one_line(name, 60)), *(Text(cell) for cell in cells.values()))
    console.print(drawn)
    console.print()


def _draw_list(console: Any, blocks: dict[str, tuple[dict[str, str], dict[str, str]]]) -> None:
    from rich.text import Text

    for name, parts in blocks.items():
        console.print(Text(one_line(name, 60), style="bold"))
        for part in parts:
            for label, value in part.items():
                console.print(Text(f"  {label.replace('-' + chr(10), '').replace(chr(10), ' ')}: {value}"))
        console.print()


def _draw_moved(console: Any, found: ReplayResult) -> None:
    from rich.padding import Padding
    from rich.text import Text

    if not found.moved:
        return
    console.print(Text("Moved most", style="bold"))
    for entry in found.moved:
        step = f"batch {entry['batch']}" if entry["step"] is None else f"step {entry['step']}"
        place = f"{entry['run']}, {step}, rank {entry['rank']}, sample {entry['sample']}"
        before, now = _outcome(entry["journal"]), _outcome(entry["now"])
        console.print(Text.assemble((one_line(entry["function"], 60), "bold"), f"  {before} -> {now}"))
        console.print(Padding(Text(one_line(place, 200), style="dim"), (0, 0, 0, 2)))
        for label, reason in (("then", entry["journal"]["reason"]), ("now", entry["now"]["reason"])):
            if reason:
                console.print(Padding(Text(f"{label}: {one_line(reason, 160)}"), (0, 0, 0, 2)))
        for label in ("prompt", "completion"):
            if entry[label] is not None:
                console.print(Padding(Text(f"{label}: {one_line(entry[label], 160)}"), (0, 0, 0, 2)))
    console.print()


def _agreement(row: dict[str, Any], tolerance: float) -> dict[str, str]:
    before, after = row["mean"]["journal"], row["mean"]["now"]
    cells = {"cells": str(row["compared"]), "equal": _share(row["equal"], row["compared"])}
    if tolerance:
        cells[f"within\n{tolerance:g}"] = _share(row["within_tolerance"], row["compared"])
    return cells | {
        "moved": str(row["moved"]),
        "mean\nthen": _number(before),
        "mean\nnow": _number(after),
        "corre-\nlation": _number(row["correlation"]),
        "newly\nanswered": str(row["failures_to_answers"]),
        "newly\nfailed": str(row["answers_to_failures"]),
    }


def _within_groups(row: dict[str, Any]) -> dict[str, str]:
    ranks, group, none = row["ranks"], row["advantages"]["group"], row["advantages"]["none"]
    if not ranks["groups"]:
        return {}
    return {
        "groups": str(ranks["groups"]),
        "order\nchanged": str(ranks["groups_changed"]),
        "best\nchanged": str(ranks["best_changed"]),
        "advantages\nchanged": _share(group["changed"], group["samples"]),
        "sign\nflipped": str(group["flipped"]),
        "mean\nchange": _number(group["mean_change"]),
        "without\n/ std": _number(none["mean_change"]),
    }


def _outcome(side: dict[str, Any]) -> str:
    if side["status"] is None:
        return "no row"
    if side["reward"] is None:
        return str(side["status"])
    return f"{side['reward']:.6g}" + ("" if side["status"] == "ok" else f" ({side['status']})")


def _share(part: int, whole: int) -> str:
    if not whole:
        return "-"
    shown = f"{100 * part / whole:.1f} %"
    if part < whole and shown == "100.0 %":  # one of many thousands differs
        return ">99.9 %"
    return "<0.1 %" if part and shown == "0.0 %" else shown


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"

"""The tables of a frame, as wide as there is room: columns that fit in, by their importance.

All cells are plain text; nothing in them is read as markup.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from guerdon.cli.top.board import SeenProgram
from guerdon.cli.top.state import State, failed

__all__ = ["calls_table", "endpoints_table", "functions_table", "merged", "seconds"]


@dataclass(frozen=True)
class Column:
    """A column: its head, its cell of a row, and how early it is left out where there is no room
    (0: never)."""

    head: str
    cell: Callable[[State], str]
    leave: int = 0
    left: bool = False


def seconds(value: float | None) -> str:
    """A time in few characters."""
    if value is None or math.isnan(value):
        return "-"
    if value < 1e-3:
        return f"{value * 1e6:.0f}us"
    if value < 1:
        return f"{value * 1e3:.0f}ms"
    return f"{value:.1f}s" if value < 100 else f"{value:.0f}s" if value < 1e4 else f"{value / 3600:.1f}h"


def _rate(one: State) -> str:
    return f"{one['rate']:.1f}" if one["rate"] < 100 else _count(round(one["rate"]))


def _count(value: float) -> str:
    for limit, unit in ((10**9, "G"), (10**6, "M"), (10**4, "k")):
        if value >= limit:
            return f"{value / (1000 if unit == 'k' else limit):.1f}{unit}"
    return str(int(value))


def _ok(one: State) -> int:
    return sum(int(one["counts"].get(status, 0)) for status in ("ok", "abstained"))


_FUNCTIONS: Final = (
    Column("FUNCTION", itemgetter("name"), left=True),
    Column("PROGRAM", itemgetter("program"), 2, left=True),
    Column("LANE", itemgetter("lane"), 5, left=True),
    Column("RATE/S", _rate, 1),
    Column("RUN", lambda one: str(one["in_flight"])),
    Column("OPEN", lambda one: _count(one["open_cells"]), 2),
    Column("OK", lambda one: _count(_ok(one)), 3),
    Column("FAILED", lambda one: _count(failed(one))),
    Column("P50", lambda one: seconds(one["run_s"].get("p50")), 6),
    Column("P99", lambda one: seconds(one["run_s"].get("p99")), 4),
    Column("QUEUED", lambda one: seconds(one["queue_s"].get("p50")), 7),
)
_ENDPOINTS: Final = (
    Column("ENDPOINT", itemgetter("url"), left=True),
    Column("PROGRAM", itemgetter("program"), 2, left=True),
    Column("OF", itemgetter("function"), 4, left=True),
    Column("BREAKER", itemgetter("breaker")),
    Column("RUN", lambda one: str(one["in_flight"]), 1),
    Column("OK", lambda one: _count(one["answered"]), 2),
    Column("FAILED", lambda one: _count(one["failed"]), 1),
    Column("DEFERRED", lambda one: _count(one["deferred"]), 2),
    Column("P50", lambda one: seconds(one["p50_s"]), 3),
)
_CALLS: Final = (
    Column("CALL", lambda one: f"{one['function']}[{one['sample']}]", left=True),
    Column("FOR", lambda one: seconds(one["seconds"])),
    Column("PROCESS", lambda one: str(one["pid"]), 1),
)


def functions_table(functions: Sequence[State], width: int) -> Table:
    """One line a function, with its program where there are several."""
    styles = ["" if not failed(one) else "yellow" if failed(one) <= _ok(one) else "red" for one in functions]
    return _table(_of_programs(_FUNCTIONS, functions), functions, width, styles, expand=False)


def endpoints_table(endpoints: Sequence[State], width: int) -> Table:
    """One line an endpoint, with its program where there are several."""
    styles = ["" if one["breaker"] in ("", "closed") else "red" for one in endpoints]
    return _table(_of_programs(_ENDPOINTS, endpoints), endpoints, width, styles)


def calls_table(calls: Sequence[State], several: bool, width: int, selected: int | None) -> Table:
    """One line a call, and where it stands; a long place is cut to its line and function."""
    room = max(12, width * 3 // 5)
    at = Column("AT", lambda one: one["at"] if len(one["at"]) <= room else "…" + one["at"][1 - room :], 2, left=True)
    styles = ["reverse" if row == selected else "" for row in range(len(calls))]
    return _table([*_CALLS[: 3 if several else 2], at], calls, width, styles)


def _of_programs(columns: Sequence[Column], rows: Sequence[State]) -> list[Column]:
    several = len({one["program"] for one in rows}) > 1
    return [column for column in columns if several or column.head != "PROGRAM"]


def _table(
    columns: Sequence[Column], rows: Sequence[State], width: int, styles: Sequence[str], *, expand: bool = True
) -> Table:
    """Lines of the columns that fit; with `expand` the first column takes what is left."""
    cells = {column.head: [column.cell(row) for row in rows] for column in columns}
    widths = {head: max([cell_len(head), *map(cell_len, listed)]) for head, listed in cells.items()}
    first, rest = columns[0], list(columns[1:])
    # The first column gives way: it is cut before another one goes.
    least = min(widths[first.head], 16)
    while rest and least + sum(widths[column.head] + 1 for column in rest) > width:
        goes = max(rest, key=lambda column: column.leave)
        if not goes.leave:
            break
        rest.remove(goes)
    made = Table(
        box=None, padding=(0, 1, 0, 0), pad_edge=False, expand=expand, header_style="bold", collapse_padding=True
    )
    for column in (first, *rest):
        made.add_column(
            Text(column.head),
            justify="left" if column.left else "right",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if column is first and expand else None,
            min_width=None if column is first else widths[column.head],
        )
    for row, style in enumerate(styles):
        made.add_row(*(Text(cells[column.head][row]) for column in (first, *rest)), style=style)
    return made


def merged(seen: Sequence[SeenProgram], kind: str, *names: str) -> list[State]:
    """The rows of this kind of all dispatchers that go on. The ranks of a program have rows that
    agree in `names`: these become one row."""
    found: dict[tuple[str, ...], State] = {}
    for state, program in _programs(seen):
        for one in state[kind]:
            row, key = {**one, "program": program}, (program, *(one[name] for name in names))
            known = found.get(key, row)
            found[key] = row if known is row else {name: _joined(name, known[name], row[name]) for name in row}
    return list(found.values())


def _joined(name: str, one: Any, other: Any) -> Any:
    """The sum of the counts of two ranks, the longest of times, the worst breaker."""
    if name == "p50_s":
        return max((time for time in (one, other) if time is not None), default=None)
    if isinstance(one, dict):
        join: Callable[[float, float], float] = max if name.endswith("_s") else lambda a, b: a + b
        return {**other, **{key: join(value, other[key]) if key in other else value for key, value in one.items()}}
    if name == "breaker" and one in ("", "closed"):
        return other
    return one if isinstance(one, str) else one + other


def _programs(seen: Sequence[SeenProgram]) -> list[tuple[State, str]]:
    """Each dispatcher that goes on with the name of its program.

    The ranks of a run are one program. Two processes with one rank are of two runs of the script,
    which their process ids tell apart; two scripts with one name have their folders.
    """
    live = [one.state for one in seen if one.condition != "ended"]
    pids: dict[str, dict[float | None, set[int]]] = {}
    for one in live:
        pids.setdefault(one["path"], {}).setdefault(one["rank"], set()).add(one["pid"])
    named = []
    for one in live:
        same = sum(path.rpartition("/")[2] == one["path"].rpartition("/")[2] for path in pids)
        name = one["program"] if same == 1 else "/".join(one["path"].split("/")[-2:])
        runs = max(map(len, pids[one["path"]].values()))
        named.append((one, name if runs == 1 else f"{name} ({one['pid']})"))
    return named

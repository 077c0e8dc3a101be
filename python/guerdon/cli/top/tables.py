"""The tables of a frame, as wide as there is room: columns that fit in, by their importance.

All cells are plain text; nothing in them is read as markup.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from guerdon.cli.top.board import Seen
from guerdon.cli.top.state import CallRow, DispatcherState, EndpointRow, FunctionRow

__all__ = [
    "Column",
    "calls_table",
    "endpoints_table",
    "functions_table",
    "merged",
    "merged_endpoints",
    "seconds",
]


@dataclass(frozen=True)
class Column:
    """A column: its head, cells, and how early it is left out where there is no room (0: never)."""

    head: str
    cells: Sequence[str]
    leave: int = 0
    left: bool = False

    @property
    def width(self) -> int:
        # The first column gives way: it is cut before another one goes.
        return max([cell_len(self.head), *map(cell_len, self.cells)])


def table(
    columns: Sequence[Column],
    width: int,
    styles: Sequence[str] = (),
    selected: int | None = None,
    *,
    expand: bool = True,
) -> Table:
    """Lines of the columns that fit; with `expand` the first column takes what is left."""
    first, rest = columns[0], list(columns[1:])
    least = min(first.width, 16)
    while rest and least + sum(column.width + 1 for column in rest) > width:
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
            justify="left" if column.left or column is first else "right",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if column is first and expand else None,
            min_width=None if column is first else column.width,
        )
    for row in range(len(first.cells)):
        style = "reverse" if row == selected else styles[row] if row < len(styles) else ""
        made.add_row(*(Text(column.cells[row]) for column in (first, *rest)), style=style)
    return made


def functions_table(functions: Sequence[FunctionRow], width: int) -> Table:
    """One line a function, with its program where there are several."""
    programs = [one.program for one in functions] if len({one.program for one in functions}) > 1 else []
    return table(
        [
            Column("FUNCTION", [one.name for one in functions], left=True),
            *([Column("PROGRAM", programs, 2, left=True)] if programs else []),
            Column("LANE", [one.lane for one in functions], 5, left=True),
            Column("RATE/S", [_rate(one.rate) for one in functions], 1),
            Column("RUN", [str(one.in_flight) for one in functions]),
            Column("OPEN", [_count(one.open_cells) for one in functions], 2),
            Column("OK", [_count(one.ok) for one in functions], 3),
            Column("FAILED", [_count(one.failed) for one in functions]),
            Column("P50", [seconds(one.run_s.get("p50")) for one in functions], 6),
            Column("P99", [seconds(one.run_s.get("p99")) for one in functions], 4),
            Column("QUEUED", [seconds(one.queue_s.get("p50")) for one in functions], 7),
        ],
        width,
        ["" if one.failed == 0 else "yellow" if one.failed <= one.ok else "red" for one in functions],
        expand=False,
    )


def calls_table(calls: Sequence[CallRow], several: bool, width: int, selected: int | None) -> Table:
    """One line a call, and where it stands."""
    columns = [
        Column("CALL", [f"{one.function}[{one.sample}]" for one in calls], left=True),
        Column("FOR", [seconds(one.seconds) for one in calls]),
    ]
    if several:
        columns.append(Column("PROCESS", [str(one.pid) for one in calls], 1))
    room = max(12, width * 3 // 5)
    columns.append(Column("AT", [_tail(one.place, room) for one in calls], 2, left=True))
    return table(columns, width, [], selected)


def endpoints_table(endpoints: Sequence[EndpointRow], width: int) -> Table:
    """One line an endpoint, with its program where there are several."""
    programs = [one.program for one in endpoints] if len({one.program for one in endpoints}) > 1 else []
    return table(
        [
            Column("ENDPOINT", [one.url for one in endpoints], left=True),
            *([Column("PROGRAM", programs, 2, left=True)] if programs else []),
            Column("OF", [one.function for one in endpoints], 4, left=True),
            Column("BREAKER", [one.breaker for one in endpoints]),
            Column("RUN", [str(one.in_flight) for one in endpoints], 1),
            Column("OK", [_count(one.answered) for one in endpoints], 2),
            Column("FAILED", [_count(one.failed) for one in endpoints], 1),
            Column("P50", [seconds(one.p50_s) for one in endpoints], 3),
        ],
        width,
        ["" if one.breaker in ("", "closed") else "red" for one in endpoints],
    )


def merged(seen: Sequence[Seen]) -> list[FunctionRow]:
    """The functions of all dispatchers that go on; those of one program with one name and lane,
    which its ranks have, as one: counts added up, of the percentiles the longest."""
    found: dict[tuple[str, str, str], FunctionRow] = {}
    for process, program in _programs(seen):
        for one in process.functions:
            key = (program, one.name, one.lane)
            one = replace(one, program=program)
            found[key] = _sum(found[key], one) if key in found else one
    return list(found.values())


def merged_endpoints(seen: Sequence[Seen]) -> list[EndpointRow]:
    """The endpoints as their programs see them: those of several ranks as one, with the worst
    breaker."""
    found: dict[tuple[str, str, str], EndpointRow] = {}
    for process, program in _programs(seen):
        for one in process.endpoints:
            one = replace(one, program=program)
            known = found.get(key := (program, one.function, one.url))
            if known is not None:
                one = replace(
                    one,
                    breaker=known.breaker if known.breaker not in ("", "closed") else one.breaker,
                    in_flight=known.in_flight + one.in_flight,
                    answered=known.answered + one.answered,
                    failed=known.failed + one.failed,
                    p50_s=max((time for time in (known.p50_s, one.p50_s) if time is not None), default=None),
                )
            found[key] = one
    return list(found.values())


def _programs(seen: Sequence[Seen]) -> list[tuple[DispatcherState, str]]:
    """Each dispatcher that goes on with the name of its program.

    The ranks of a run are one program. Two processes with one rank are of two runs of the script,
    which their process ids tell apart; two scripts with one name have their folders.
    """
    live = [one.process for one in seen if one.condition != "ended"]
    pids: dict[str, dict[int | None, set[int]]] = {}
    for one in live:
        pids.setdefault(one.path, {}).setdefault(one.rank, set()).add(one.pid)
    named = []
    for one in live:
        same = sum(path.rpartition("/")[2] == one.path.rpartition("/")[2] for path in pids)
        name = one.program if same == 1 else "/".join(one.path.split("/")[-2:])
        runs = max(map(len, pids[one.path].values()))
        named.append((one, name if runs == 1 else f"{name} ({one.pid})"))
    return named


def _sum(one: FunctionRow, other: FunctionRow) -> FunctionRow:
    statuses = [*one.counts, *(status for status in other.counts if status not in one.counts)]
    return replace(
        one,
        open_cells=one.open_cells + other.open_cells,
        in_flight=one.in_flight + other.in_flight,
        counts={status: one.counts.get(status, 0) + other.counts.get(status, 0) for status in statuses},
        rate=one.rate + other.rate,
        run_s=_longest(one.run_s, other.run_s),
        queue_s=_longest(one.queue_s, other.queue_s),
    )


def _longest(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {**other, **{name: max(time, other.get(name, time)) for name, time in one.items()}}


def seconds(value: float | None) -> str:
    """A time in few characters."""
    if value is None or math.isnan(value):
        return "-"
    if value < 1e-3:
        return f"{value * 1e6:.0f}us"
    if value < 1:
        return f"{value * 1e3:.0f}ms"
    return f"{value:.1f}s" if value < 100 else f"{value:.0f}s" if value < 1e4 else f"{value / 3600:.1f}h"


def _rate(value: float) -> str:
    return f"{value:.1f}" if value < 100 else _count(round(value))


def _count(value: int) -> str:
    for limit, unit in ((10**9, "G"), (10**6, "M"), (10**4, "k")):
        if value >= limit:
            return f"{value / (1000 if unit == 'k' else limit):.1f}{unit}"
    return str(value)


def _tail(text: str, room: int) -> str:
    """The end of a place: there stand the line and the function."""
    return text if len(text) <= room else "…" + text[1 - room :]

"""One frame: what fits of the tables into a screen, or all of them on paper.

The calls and the stack of the selected one come last and give way first; one line for the keys is
always there.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TextIO

from rich.console import Console, Group, RenderableType
from rich.text import Text

from guerdon.cli.top.board import Seen
from guerdon.cli.top.state import CallRow, DispatcherState
from guerdon.cli.top.tables import (
    calls_table,
    endpoints_table,
    functions_table,
    merged,
    merged_endpoints,
    seconds,
)

__all__ = ["View", "frame", "print_once", "visible_calls"]

_LEAST_CALLS: Final = 4
_LEAST_STACK: Final = 4
_MOST_CALLS: Final = 20


@dataclass
class View:
    """Choices of the user.

    Attributes:
        selected: `CallRow.key` of the call whose stack is shown.
        whole_stack: It has the whole screen.
    """

    selected: tuple[int, str, int, str] | None = None
    whole_stack: bool = False


def visible_calls(seen: Sequence[Seen]) -> list[CallRow]:
    """Calls in flight, the oldest first."""
    going = (call for one in seen if one.condition != "ended" for call in one.process.calls)
    return sorted(going, key=lambda call: -call.seconds)


def frame(seen: Sequence[Seen], view: View, width: int, height: int, nothing: str) -> Group:
    """Returns a screen of this size; `nothing` is said where nothing was seen."""
    lines = _Lines(width, height - 1)
    lines.add(_title(seen), 1)
    if not seen:
        lines.add(Text(nothing), height)
    calls = visible_calls(seen)
    chosen = next((call for call in calls if call.key == view.selected), None)
    if chosen is not None and view.whole_stack:
        _add_stack(lines, chosen, lines.room)
    elif seen:
        _add_tables(lines, seen, calls, chosen)
    return Group(*lines.all, *[Text("")] * lines.room, _keys(width))


def print_once(stream: TextIO, seen: Sequence[Seen], width: int) -> None:
    """Print everything once, for people, pipes and scripts."""
    console = Console(file=stream, width=width, highlight=False, markup=False, emoji=False)
    console.print(_title(seen))
    for one in _tables(seen, width):
        console.print(one)
    calls = visible_calls(seen)
    if calls:
        console.print(calls_table(calls, len(seen) > 1, width, None))
    for call in calls:
        if call.stack:
            console.print(
                Text(f"\n{_head(call)}"), *map(Text, call.stack), sep="\n", no_wrap=True, overflow="ignore", crop=False
            )


class _Lines:
    """Adds what fits."""

    def __init__(self, width: int, height: int) -> None:
        self.width = width
        self.room = max(0, height)
        self.all: list[RenderableType] = []
        self._console = Console(width=max(1, width), height=1000, force_terminal=False, markup=False, emoji=False)

    def add(self, one: RenderableType, most: int) -> None:
        """Adds so many lines at most of this."""
        rendered = self._console.render_lines(one, self._console.options, pad=False)
        shown = rendered[: max(0, min(most, self.room))]
        self.room -= len(shown)
        for line in shown:
            text = Text(no_wrap=True, overflow="crop")
            for segment in line:
                if not segment.control:
                    text.append(segment.text, segment.style)
            self.all.append(text)


def _tables(seen: Sequence[Seen], width: int) -> list[RenderableType]:
    tables: list[RenderableType] = []
    if silent := _silent(seen):
        tables.append(Text("\n".join(silent), style="red", no_wrap=True, overflow="ellipsis"))
    if functions := merged(seen):
        tables.append(functions_table(functions, width))
    if endpoints := merged_endpoints(seen):
        tables.append(endpoints_table(endpoints, width))
    tables.append(_workers(seen))
    return tables


def _silent(seen: Sequence[Seen]) -> list[str]:
    """Returns a line for each process that has ended or does not answer; one whose former
    dispatcher ended, and whose next one answers, has none."""
    live = {one.process.pid for one in seen if one.condition != "ended"}
    found: dict[int, str] = {}
    for one in seen:
        process = one.process
        if one.condition and (one.condition != "ended" or process.pid not in live):
            rank = "" if process.rank is None else f", rank {process.rank}"
            found[process.pid] = f"process {process.pid} ({process.program}{rank}): {one.condition}"
    return list(found.values())


def _add_tables(lines: _Lines, seen: Sequence[Seen], calls: Sequence[CallRow], chosen: CallRow | None) -> None:
    tables = _tables(seen, lines.width)
    below = (1 + min(len(calls), _LEAST_CALLS) if calls else 0) + (_LEAST_STACK if chosen else 0)
    for one in tables:
        lines.add(one, max(2, lines.room - below))
    if not calls:
        return
    stack = 0 if chosen is None else max(_LEAST_STACK, min(len(chosen.stack) + 1, lines.room // 2))
    shown = max(1, min(_MOST_CALLS, len(calls), lines.room - 1 - stack))
    at = None if chosen is None else calls.index(chosen)
    first = 0 if at is None else max(0, min(at - shown // 2, len(calls) - shown))
    part = calls[first : first + shown]
    lines.add(calls_table(part, len(seen) > 1, lines.width, None if at is None else at - first), shown + 1)
    if chosen is not None:
        _add_stack(lines, chosen, lines.room)


def _add_stack(lines: _Lines, call: CallRow, room: int) -> None:
    """Its innermost frames, where not all fit."""
    if room < 2:
        return
    lines.add(Text(_head(call), style="bold", no_wrap=True, overflow="ellipsis"), 1)
    stack = call.stack or (f"  no stack: {call.no_stack or 'none is known'}",)
    for line in stack[-(room - 1) :]:
        lines.add(Text(line, no_wrap=True, overflow="ellipsis"), 1)


def _head(call: CallRow) -> str:
    where = f" in {call.where}" if call.where else ""
    again = f", attempt {call.attempt}" if call.attempt > 1 else ""
    phase = "" if call.phase == "call" else f" ({call.phase})"
    return f"{call.function} on sample {call.sample}{again}: {seconds(call.seconds)}{phase}{where} (process {call.pid})"


def _title(seen: Sequence[Seen]) -> Text:
    live = [one.process for one in seen if one.condition != "ended"]
    what = f"{len(live)} dispatchers"
    if len(live) == 1:
        what = f"process {live[0].pid}" + (f" ({live[0].program})" if live[0].program else "")
    parts = [
        f"guerdon top  {what}",
        f"{sum(one.rate for one in live):.1f}/s",
        f"{sum(one.in_flight for one in live)} running",
        *_counted(live),
        time.strftime("%H:%M:%S"),
    ]
    return Text("  ".join(parts), style="bold", no_wrap=True, overflow="ellipsis")


def _counted(processes: Sequence[DispatcherState]) -> list[str]:
    longest = max((one.counted_s for one in processes if one.counted_s is not None), default=None)
    return [] if longest is None else [f"counted for {seconds(longest)}"]


def _workers(seen: Sequence[Seen]) -> Text:
    live = [one.process for one in seen if one.condition != "ended"]
    stats = {name: sum(one.stats.get(name, 0) for one in live) for name in ("worker_restarts", "kills", "open_batches")}
    workers = [worker for one in live for worker in one.workers]
    busy = sum(bool(worker.function) for worker in workers)
    memory = sum(worker.rss_bytes for worker in workers)
    parts = [_plural(len(workers), "worker") + (f" ({busy} busy)" if busy else "")]
    parts += [f"{memory / 2**20:.0f} MiB"] if memory else []
    parts += [
        _plural(stats["worker_restarts"], "restart"),
        _plural(stats["kills"], "kill"),
        _plural(stats["open_batches"], "open batch", "open batches"),
    ]
    return Text(", ".join(parts), style="dim", no_wrap=True, overflow="ellipsis")


def _plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def _keys(width: int) -> Text:
    keys = "q quit  j/k call  Enter stack"
    return Text(keys if width >= len(keys) else "q j/k Enter", style="dim", no_wrap=True, overflow="crop", end="")

"""One frame: what fits of the tables into a screen, or all of them on paper.

The calls and the stack of the selected one come last and give way first; one line for the keys is
always there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TextIO

from rich.console import Console, Group, RenderableType
from rich.segment import SegmentLines
from rich.text import Text

from guerdon._system.units import plural
from guerdon.cli.top.board import SeenProgram
from guerdon.cli.top.state import State
from guerdon.cli.top.tables import calls_table, endpoints_table, functions_table, merged, seconds

__all__ = ["View", "frame", "print_once", "visible_calls"]

_LEAST_CALLS: Final = 4
_LEAST_STACK: Final = 4
_MOST_CALLS: Final = 20
_KEYS: Final = "q quit  j/k call  Enter stack"


@dataclass
class View:
    """Choices of the user.

    Attributes:
        selected: The ``key`` of the call whose stack is shown.
        whole_stack: It has the whole screen.
    """

    selected: tuple[object, ...] | None = None
    whole_stack: bool = False


def visible_calls(seen: Sequence[SeenProgram]) -> list[State]:
    """Calls in flight, the oldest first."""
    return sorted((call for state in _live(seen) for call in state["in_flight"]), key=lambda call: -call["seconds"])


def frame(seen: Sequence[SeenProgram], view: View, width: int, height: int, nothing: str) -> Group:
    """Returns a screen of this size; `nothing` is said where nothing was seen."""
    lines = _Lines(width, height - 1)
    lines.add(_title(seen), 1)
    if not seen:
        lines.add(Text(nothing), height)
    calls = visible_calls(seen)
    chosen = next((call for call in calls if call["key"] == view.selected), None)
    if chosen is not None and view.whole_stack:
        lines.add_stack(chosen)
    elif seen:
        _add_tables(lines, seen, calls, chosen)
    return Group(*lines.all, *[Text("")] * lines.room, _line(_KEYS if width >= len(_KEYS) else "q j/k Enter", "dim"))


def print_once(stream: TextIO, seen: Sequence[SeenProgram], width: int) -> None:
    """Print everything once, for people, pipes and scripts."""
    console = Console(file=stream, width=width, highlight=False, markup=False, emoji=False)
    console.print(_title(seen), *_tables(seen, width), sep="\n")
    calls = visible_calls(seen)
    if calls:
        console.print(calls_table(calls, len(seen) > 1, width, None))
    for call in calls:
        if call["stack"]:
            shown = map(Text, (f"\n{_head(call)}", *call["stack"]))
            console.print(*shown, sep="\n", no_wrap=True, overflow="ignore", crop=False)


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
        self.all.append(SegmentLines(shown, new_lines=True))

    def add_stack(self, call: State) -> None:
        """Adds the innermost frames of a call, where not all fit."""
        if self.room < 2:
            return
        self.add(_line(_head(call), "bold"), 1)
        for line in (call["stack"] or [f"  no stack: {call['no_stack'] or 'none is known'}"])[-self.room :]:
            self.add(_line(line), 1)


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _live(seen: Sequence[SeenProgram]) -> list[State]:
    return [one.state for one in seen if one.condition != "ended"]


def _tables(seen: Sequence[SeenProgram], width: int) -> Iterator[RenderableType]:
    for line in _silent(seen):
        yield _line(line, "red")
    if functions := merged(seen, "functions", "name", "lane"):
        yield functions_table(functions, width)
    if endpoints := merged(seen, "endpoints", "function", "url"):
        yield endpoints_table(endpoints, width)
    yield _workers(seen)


def _silent(seen: Sequence[SeenProgram]) -> list[str]:
    """Returns a line for each process that has ended or does not answer; one whose former
    dispatcher ended, and whose next one answers, has none."""
    live = {state["pid"] for state in _live(seen)}
    found: dict[int, str] = {}
    for one in seen:
        pid, rank = one.state["pid"], one.state["rank"]
        if one.condition and (one.condition != "ended" or pid not in live):
            of = "" if rank is None else f", rank {rank}"
            found[pid] = f"process {pid} ({one.state['program']}{of}): {one.condition}"
    return list(found.values())


def _add_tables(lines: _Lines, seen: Sequence[SeenProgram], calls: Sequence[State], chosen: State | None) -> None:
    below = (1 + min(len(calls), _LEAST_CALLS) if calls else 0) + (_LEAST_STACK if chosen else 0)
    for one in _tables(seen, lines.width):
        lines.add(one, max(2, lines.room - below))
    if not calls:
        return
    stack = 0 if chosen is None else max(_LEAST_STACK, min(len(chosen["stack"]) + 1, lines.room // 2))
    shown = max(1, min(_MOST_CALLS, len(calls), lines.room - 1 - stack))
    at = None if chosen is None else calls.index(chosen)
    first = 0 if at is None else max(0, min(at - shown // 2, len(calls) - shown))
    part = calls[first : first + shown]
    lines.add(calls_table(part, len(seen) > 1, lines.width, None if at is None else at - first), shown + 1)
    if chosen is not None:
        lines.add_stack(chosen)


def _head(call: State) -> str:
    where = f" in {call['place']}" if call["place"] else ""
    again = f", attempt {call['attempt']}" if call["attempt"] > 1 else ""
    phase = "" if call["phase"] in ("", "call") else f" ({call['phase']})"
    of = f"{call['function']} on sample {call['sample']}{again}"
    return f"{of}: {seconds(call['seconds'])}{phase}{where} (process {call['pid']})"


def _title(seen: Sequence[SeenProgram]) -> Text:
    live = _live(seen)
    what = f"{len(live)} dispatchers"
    if len(live) == 1:
        what = f"process {live[0]['pid']}" + (f" ({live[0]['program']})" if live[0]["program"] else "")
    functions = [function for state in live for function in state["functions"]]
    longest = max((state["counted_s"] for state in live if state["counted_s"] is not None), default=None)
    parts = [
        f"guerdon top  {what}",
        f"{sum(one['rate'] for one in functions):.1f}/s",
        f"{sum(one['in_flight'] for one in functions)} running",
        *([] if longest is None else [f"counted for {seconds(longest)}"]),
        time.strftime("%H:%M:%S"),
    ]
    return _line("  ".join(parts), "bold")


def _workers(seen: Sequence[SeenProgram]) -> Text:
    live = _live(seen)
    workers = [worker for state in live for worker in state["workers"]]
    busy = sum(bool(worker["function"]) for worker in workers)
    memory = sum(worker["rss_bytes"] for worker in workers)
    parts = [plural(len(workers), "worker") + (f" ({busy} busy)" if busy else "")]
    parts += [f"{memory / 2**20:.0f} MiB"] if memory else []
    for name, one, many in (
        ("worker_restarts", "restart", None),
        ("kills", "kill", None),
        ("open_batches", "open batch", "open batches"),
    ):
        parts.append(plural(sum(int(state["stats"].get(name, 0)) for state in live), one, many))
    return _line(", ".join(parts), "dim")

"""``guerdon trace FILE...``: what timelines hold, and parts of them as a file or a page of their
own."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import stat
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from guerdon.cli.arguments import steps
from guerdon.cli.output_file import check_output_file, write_page
from guerdon.cli.terminal_text import printable
from guerdon.profile.exit_codes import SUCCESS, UsageError

if TYPE_CHECKING:
    from guerdon._native import TraceSummary

__all__ = ["add_to", "run"]

_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "m": 60.0, "min": 60.0, "h": 3600.0}
_MOST_STEPS: Final = 100_000
_LARGEST_STEP: Final = 2**63 - 1
_SHORTEST_S: Final = 50e-6


def add_to(commands: Any) -> None:
    """Add the command to the parser's subcommands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "trace",
        help="summarise, draw, cut and merge timelines that Dispatcher(trace=...) wrote",
        description="Summarise timelines of dispatchers, also while they are written; with -o write what is "
        "selected of them as one file for https://ui.perfetto.dev, with --html as one page that shows it and needs no "
        "network. Files of several ranks are brought to one clock.",
        epilog="Exit code: 0 success; 2 an option or a file can't be used.",
    )
    parser.add_argument("traces", metavar="TRACE", nargs="+", help="a file that Dispatcher(trace=...) wrote")
    parser.add_argument("-o", "--output", metavar="FILE", help="write what is selected there")
    parser.add_argument("--html", metavar="PAGE", help="draw what is selected on one self-contained HTML page")
    parser.add_argument(
        "--from", dest="begin", metavar="TIME", help="leave out what ended earlier: 30s, 2m, after the start"
    )
    parser.add_argument("--to", dest="end", metavar="TIME", help="leave out what began later, counted as --from")
    parser.add_argument("--last", metavar="TIME", help="only that long before the end of the trace")
    parser.add_argument("--function", action="append", default=[], metavar="NAME", help="only its calls; repeatable")
    parser.add_argument(
        "--step", action="append", default=[], metavar="A:B", help="only training steps A to B, or one step; repeatable"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> int:
    """Cut, write and summarise.

    Raises:
        UsageError: An option or a file can't be used.
    """
    begin, end = _seconds("--from", options.begin), _seconds("--to", options.end)
    last = _seconds("--last", options.last)
    if last is not None and (begin is not None or end is not None):
        raise UsageError("--last and --from or --to: give one or the other.")
    if begin is not None and end is not None and end < begin:
        raise UsageError(f"--to {options.end} is before --from {options.begin}.")
    for path in options.traces:
        if options.output is not None and _is_same(path, options.output):
            raise UsageError(f"-o {options.output}: that is one of the traces. Give it another name.")
        _check_trace(path)
        if options.html is not None and _is_same(path, options.html):
            raise UsageError(f"--html {options.html}: that is one of the traces. Give it another name.")
    for option, path in (("-o", options.output), ("--html", options.html)):
        if path is not None:
            check_output_file(option, path)
    if options.output is not None and options.html is not None and _is_one_place(options.output, options.html):
        raise UsageError(f"-o and --html {options.html}: give them two names.")
    chosen = _steps(options.step)
    from guerdon import _native

    with contextlib.ExitStack() as stack:
        part = options.output
        if part is None and options.html is not None:
            part = os.path.join(stack.enter_context(tempfile.TemporaryDirectory(prefix="guerdon-")), "part")
        select = partial(
            _native.select_trace,
            options.traces,
            from_s=begin,
            to_s=end,
            last_s=last,
            functions=options.function,
            steps=chosen,
        )
        try:
            if options.output is not None and (options.function or options.step):
                _check_found(options, select())  # before what stands under its name is lost
            summary = select(output=part)
        except (OSError, ValueError) as error:
            why = str(error)
            if isinstance(error, OSError):
                why = f"{error.filename or ', '.join(options.traces)}: {error.strerror or error}"
            what = "read" if part is None else "cut"
            raise UsageError(f"the trace can't be {what}: {why}.") from None
        _check_found(options, summary)
        if options.html is not None:
            _draw(part, summary, options.html)
    print(_json(summary) if options.json else _text(summary))
    if options.output is not None:
        sys.stdout.flush()  # so that this stands last where both go to one place
        print(f"Wrote {options.output}. Open it at https://ui.perfetto.dev.", file=sys.stderr)
    if options.html is not None:
        sys.stdout.flush()
        print(f"Wrote {options.html}. Open it in a browser.", file=sys.stderr)
    return SUCCESS


def _check_found(options: argparse.Namespace, summary: TraceSummary) -> None:
    """Refuse functions and steps of which nothing is in the selected part.

    Raises:
        UsageError: It names them.
    """
    unknown = [name for name in options.function if name not in summary.functions]
    if unknown:
        what = f"--function {', '.join(unknown)}: no call of that name is in the selected part"
    elif options.step and not summary.functions and not summary.batches:
        what = f"--step {', '.join(options.step)}: nothing of that is in the selected part"
    else:
        return
    raise UsageError(f"{what} of {', '.join(options.traces)}. Without options the trace's functions are listed.")


def _draw(part: str, summary: TraceSummary, output: str) -> None:
    """The page of the selected part."""
    from guerdon import __version__
    from guerdon._timeline_page.html import render
    from guerdon._timeline_page.recorded import read

    with open(part, "rb") as file:
        recorded = read(file.read())
    write_page("--html", output, render(recorded, summary, __version__))


def _seconds(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*([a-z]*)", text.strip().lower())
    unit = None if found is None else _SECONDS.get(found[2])
    if found is None or unit is None:
        raise UsageError(f"{option} {text}: expected a time such as 30s, 500ms or 2m.")
    return float(found[1]) * unit


def _steps(texts: Sequence[str]) -> list[int]:
    chosen: set[int] = set()
    for text in texts:
        try:
            first, last = steps(text)
        except argparse.ArgumentTypeError:
            first = last = None
        if first is None or last is None or not 0 <= first <= last <= _LARGEST_STEP or last - first >= _MOST_STEPS:
            raise UsageError(
                f"--step {text}: expected a training step, or the first and the last of some, as in 100:200."
            )
        chosen.update(range(first, last + 1))
    return sorted(chosen)


def _check_trace(path: str) -> None:
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise UsageError(f"the trace can't be read: {path!r}: {reason}.") from None
    if not stat.S_ISREG(found.st_mode):
        # Who opens a pipe waits for its other end.
        raise UsageError(f"the trace can't be read: {path!r} is no file. Give one that Dispatcher(trace=) wrote.")
    if not found.st_size:
        raise UsageError(f"the trace can't be read: {path!r} is empty: nothing was written to it yet.")


def _is_one_place(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _is_same(path: str, output: str) -> bool:
    try:
        return os.path.samefile(path, output)
    except OSError:
        return False


def _json(summary: TraceSummary) -> str:
    keys = ("calls", "failed", "retries", "running", "busy_s", "longest_s")
    functions = {name: dict(zip(keys, row, strict=True)) for name, row in summary.functions.items()}
    facts = {
        "processes": summary.processes,
        "span_s": summary.span_s,
        "batches": summary.batches,
        "tracks": summary.tracks,
        "slices": summary.slices,
        "instants": summary.instants,
        "counter_values": summary.counters,
        "dropped_events": summary.dropped,
        "functions": functions,
        "moments": summary.moments,
    }
    return json.dumps(facts, indent=2)


def _text(summary: TraceSummary) -> str:
    from guerdon._timeline_page.moment_names import shown

    lines = [printable(process) for process in summary.processes]
    parts = [
        (summary.batches, "batch", "batches"),
        (summary.tracks, "track", "tracks"),
        (summary.slices, "slice", "slices"),
        (summary.counters, "counter value", "counter values"),
        (summary.dropped, "dropped event", "dropped events"),
    ]
    counted = [f"{count} {one if count == 1 else many}" for count, one, many in parts]
    lines.append(", ".join([_time(summary.span_s), *counted]))
    if summary.moments:
        lines.append(", ".join(f"{count} × {shown(name)}" for name, count in summary.moments.items()))
    if summary.functions:
        heads = ("function", "attempts", "failed", "retries", "running", "in all", "longest")
        rows = [
            (
                printable(name),
                *(f"{number}" for number in (attempts, failed, retries, running)),
                _time(busy),
                _time(longest) if longest or not attempts else _short(busy / attempts),
            )
            for name, (attempts, failed, retries, running, busy, longest) in summary.functions.items()
        ]
        lines += ["", *_table([heads, *rows])]
    return "\n".join(lines)


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]


def _short(mean: float) -> str:
    """The longest of attempts that were too short for slices of their own (`Trace.shortest`)."""
    return "< 50 µs" if mean < _SHORTEST_S else "-"


def _time(seconds: float) -> str:
    if seconds == 0:
        return "0 s"
    unit, name = next(((size, name) for size, name in ((1.0, "s"), (1e-3, "ms")) if seconds >= size), (1e-6, "µs"))
    digits = max(0, 2 - math.floor(math.log10(seconds / unit)))
    return f"{seconds / unit:.{digits}f} {name}"

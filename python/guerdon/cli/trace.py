"""``guerdon trace FILE``: a summary of a timeline."""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
from typing import Any, Final

from guerdon._system.safe_text import printable
from guerdon._system.units import plural
from guerdon.profile.exit_codes import SUCCESS, UsageError

__all__ = ["add_to", "run"]

_SHORTEST_S: Final = 50e-6


def add_to(commands: Any) -> None:
    """Add the command to the parser's subcommands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "trace",
        help="summarise a timeline that Dispatcher(trace=...) wrote",
        description="Summarise the timeline of a dispatcher, also while it is written. https://ui.perfetto.dev shows\n"
        "the file itself: open the page and drop the file on it.",
        epilog="Exit code: 0 success; 2 the file can't be read.",
    )
    parser.add_argument("trace", metavar="FILE", help="a file that Dispatcher(trace=...) wrote")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> int:
    """Print the summary.

    Raises:
        UsageError: The file can't be read.
    """
    path: str = options.trace
    _check_trace(path)
    from guerdon import _native

    try:
        summary = json.loads(_native.trace_summary(path))
    except (OSError, ValueError) as error:
        why = f"{path}: {error.strerror or error}" if isinstance(error, OSError) else error
        raise UsageError(f"the trace can't be read: {why}.") from None
    if options.json:
        print(json.dumps(summary, indent=2))
    else:
        print(_text(summary))
        sys.stdout.flush()  # so that the hint stands last where both go to one place
        print(f"To see it, open https://ui.perfetto.dev and drop {printable(path)} on the page.", file=sys.stderr)
    return SUCCESS


def _check_trace(path: str) -> None:
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise UsageError(f"the trace can't be read: {path!r}: {reason}.") from None
    if not stat.S_ISREG(found.st_mode):
        # Opening a pipe waits for its other end.
        raise UsageError(f"the trace can't be read: {path!r} is no file. Give one that Dispatcher(trace=) wrote.")
    if not found.st_size:
        raise UsageError(f"the trace can't be read: {path!r} is empty: nothing was written to it yet.")


def _text(summary: dict[str, Any]) -> str:
    from guerdon._insight.diagnostics.score_totals import aligned, seconds_text

    lines = [printable(process) for process in summary["processes"]]
    counted = [
        plural(summary["batches"], "batch", "batches"),
        plural(summary["tracks"], "track"),
        plural(summary["slices"], "slice"),
        plural(summary["counter_values"], "counter value"),
        plural(summary["dropped_events"], "dropped event"),
    ]
    lines.append(", ".join([seconds_text(summary["span_s"]), *counted]))
    if summary["moments"]:
        lines.append(", ".join(f"{count} × {printable(name)}" for name, count in summary["moments"].items()))
    if summary["functions"]:
        heads = ("function", "attempts", "failed", "retries", "deferred", "running", "in all", "longest")
        rows = [
            (
                printable(name),
                *(f"{function[key]}" for key in ("calls", "failed", "retries", "deferred", "running")),
                seconds_text(function["busy_s"]),
                _longest(**function),
            )
            for name, function in summary["functions"].items()
        ]
        lines += ["", aligned([heads, *rows])]
    return "\n".join(lines)


def _longest(calls: int, busy_s: float, longest_s: float, **_: int) -> str:
    """The longest attempt of a function; all may be too short for slices of their own
    (`Trace.shortest`)."""
    from guerdon._insight.diagnostics.score_totals import seconds_text

    if longest_s or not calls:
        return seconds_text(longest_s)
    return "< 50 µs" if busy_s / calls < _SHORTEST_S else "-"

"""``guerdon report JOURNAL``: one HTML page on what a journal holds (`_insight.report`).

- Figures go to stdout with ``--json``, the page to a file; the page is complete or not there.
- A journal that is being written is reported as far as it goes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import Any, Final

from guerdon._system.extras import pip_install
from guerdon.cli.arguments import steps
from guerdon.cli.output_file import check_output_file, write_page
from guerdon.cli.terminal_text import printable
from guerdon.profile.exit_codes import SUCCESS, UsageError

__all__ = ["add_to", "run"]

_LINES: Final = "\n\t"

_DESCRIPTION: Final = """\
Make one self-contained HTML page of a journal: rewards over steps, distributions, groups that teach nothing, failures,
times, cost and agreement of judges. It loads nothing, so it can be opened anywhere and sent around.

JOURNAL is the folder that Dispatcher(journal=) writes, also while it does, or one file of it."""

_EPILOG: Final = """\
Exit code: 0 success; 2 there is no such journal, it has no rows yet or none of what was chosen, or it can't be read."""


def add_to(commands: Any) -> None:
    """Add the command to the parser's subcommands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "report",
        help="make an HTML page of a journal",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("journal", metavar="JOURNAL", help="the journal's folder, or one Parquet file of it")
    parser.add_argument("-o", "--output", metavar="OUT", help="the page; default: report.html, none with --json")
    parser.add_argument(
        "--run", metavar="RUN", dest="runs", action="append", help="only this run; repeatable; default: all"
    )
    parser.add_argument(
        "--function",
        metavar="NAME",
        dest="functions",
        action="append",
        help="only this reward function; repeatable; the total reward is then that of the chosen ones",
    )
    parser.add_argument(
        "--step", metavar="A:B", dest="steps", type=steps, help="only steps A to B, both included; A:, :B or one step"
    )
    parser.add_argument(
        "--texts", action="store_true", help="show prompts, completions, answers and chosen columns of some samples"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar and no summary")
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> int:
    """Read the journal, write the page and print what stands out.

    Raises:
        UsageError: The journal can't be read.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise UsageError(f"reading a journal needs pyarrow: {pip_install('journal')}") from None
    from guerdon import __version__
    from guerdon._insight.journal.parts import find_parts
    from guerdon._insight.journal.selection import Selection
    from guerdon._insight.report.aggregates import aggregates
    from guerdon._insight.report.findings import findings
    from guerdon._insight.report.html import render
    from guerdon._insight.report.summary import summarise
    from guerdon.errors import DataError

    output = options.output or (None if options.json else "report.html")
    if options.open and output is None:
        raise UsageError("--open needs a page to open: give -o OUT with --json.")
    if output not in (None, "-"):
        check_output_file("-o", output)
    try:
        journal = find_parts(options.journal)
        first, last = options.steps or (None, None)
        selection = Selection(options.runs, first, last, options.functions)
        with contextlib.closing(_Progress(options.quiet)) as progress:
            summary = summarise(journal, selection=selection, texts=options.texts, progress=progress.add)
    except DataError as error:
        raise UsageError(str(error)) from None
    figures = aggregates(summary)
    found = findings(figures)
    if output is not None:
        _write(output, render(summary, figures, __version__))
    if options.json:
        print(json.dumps({**figures, "findings": found}, indent=2))
    if not options.quiet:
        _summarise(figures, found, output)
    if options.open and output is not None:
        import webbrowser

        webbrowser.open(Path(output).resolve().as_uri())
    return SUCCESS


class _Progress:
    """The progress bar, where stderr is a terminal."""

    def __init__(self, quiet: bool) -> None:
        self._shown = not quiet and sys.stderr.isatty()
        self._bar: Any = None
        self._done = 0

    def add(self, done: int, total: int) -> None:
        """Draw that `done` of `total` rows are counted."""
        from guerdon.cli.progress_bar import ProgressBar

        if self._bar is None:
            self._bar = ProgressBar(sys.stderr if self._shown else None, total)
        self._bar.add(done - self._done)
        self._done = done

    def close(self) -> None:
        """Remove it."""
        if self._bar is not None:
            self._bar.clear()


def _write(output: str, page: str) -> None:
    if output == "-":
        sys.stdout.buffer.write(page.encode("utf-8", "backslashreplace"))
    else:
        write_page("-o", output, page)


def _summarise(figures: dict[str, Any], found: list[dict[str, Any]], output: str | None) -> None:
    for note in figures["notes"]:
        print(f"guerdon: {printable(note, keep=_LINES)}", file=sys.stderr)
    for each in found:
        sign = "!" if each["severity"] == "warning" else " "
        print(f"{sign} {printable(each['message'], keep=_LINES)}", file=sys.stderr)
    count = len(figures["functions"])
    where = "" if output in (None, "-") else f", see {output}"
    print(f"\n{figures['rows']:,} rows of {count} function{'s' if count != 1 else ''}{where}", file=sys.stderr)

"""``guerdon report JOURNAL``: one HTML page on what a journal holds (`_insight.report`).

- Figures go to stdout with ``--json``, the page to a file; the page is complete or not there.
- A journal that is being written is reported as far as it goes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from guerdon._system.extras import pip_install
from guerdon._system.safe_text import printable
from guerdon._system.units import plural
from guerdon.cli.arguments import steps
from guerdon.cli.output_file import check_output_file, write_page
from guerdon.errors import DataError
from guerdon.profile.exit_codes import SUCCESS, UsageError

if TYPE_CHECKING:
    from guerdon._insight.report.summary import Summary

__all__ = ["add_to", "run"]

_LINES: Final = "\n\t"

_DESCRIPTION: Final = """\
Make one self-contained HTML page of a journal: rewards over steps, distributions, groups that teach nothing, failures,
times, and the cost of judges. It loads nothing, so it can be opened anywhere and sent around.

JOURNAL is the folder that Dispatcher(journal=) writes, also while it does, or one file of it. Of two the page puts the
figures side by side: report A B."""

_EPILOG: Final = """\
Exit code: 0 success; 2 there is no such journal, it has no rows yet or none of what was chosen, or it can't be read."""


def add_to(commands: Any) -> None:
    """Add the command to the parser's subcommands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "report",
        help="make an HTML page of a journal",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument(
        "journals",
        metavar="JOURNAL",
        nargs="+",
        help="the journal's folder, or one Parquet file of it; two are put side by side",
    )
    parser.add_argument("-o", "--output", metavar="OUT", help="the page; default: report.html, none with --json")
    parser.add_argument(
        "--run", metavar="RUN", dest="runs", action="append", help="only this run; repeatable; default: all"
    )
    parser.add_argument(
        "--step", metavar="A:B", dest="steps", type=steps, help="only steps A to B, both included; A:, :B or one step"
    )
    parser.add_argument(
        "--texts", action="store_true", help="show prompts, completions, answers and chosen columns of some samples"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress and no summary")
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> int:
    """Reads the journal, writes the page and prints the findings.

    Raises:
        UsageError: The journal can't be read.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise UsageError(f"reading a journal needs pyarrow: {pip_install('journal')}") from None
    from guerdon import __version__
    from guerdon._insight.report.findings import findings
    from guerdon._insight.report.html import render, render_pair

    output = options.output or (None if options.json else "report.html")
    if len(options.journals) > 2:
        raise UsageError(f"two journals are put side by side, not {len(options.journals)}.")
    if output not in (None, "-"):
        check_output_file("-o", output)
    summaries, both = zip(*map(partial(_read, options), options.journals), strict=True)
    found = [findings(figures) for figures in both]
    if output is not None:
        _write(output, render(summaries[0], both[0], __version__) if len(both) == 1 else render_pair(both, __version__))
    if options.json:
        shown = [{**figures, "findings": of} for figures, of in zip(both, found, strict=True)]
        print(json.dumps(shown[0] if len(both) == 1 else shown, indent=2))
    if not options.quiet:
        _summarise(both, found[0], output)
    return SUCCESS


def _read(options: argparse.Namespace, folder: str) -> tuple[Summary, dict[str, Any]]:
    """Contents of a journal, and its figures."""
    from guerdon._insight.journal.parts import find_parts
    from guerdon._insight.journal.selection import Selection
    from guerdon._insight.report.aggregates import aggregates
    from guerdon._insight.report.summary import summarise
    from guerdon.cli.progress import Progress

    progress = Progress(sys.stderr if sys.stderr.isatty() and not options.quiet else None)
    try:
        journal = find_parts(folder)
        first, last = options.steps or (None, None)
        selection = Selection(options.runs, first, last)
        summary = summarise(journal, selection=selection, texts=options.texts, progress=progress.set)
    except DataError as error:
        raise UsageError(str(error)) from None
    finally:
        progress.clear()
    return summary, aggregates(summary)


def _write(output: str, page: str) -> None:
    if output == "-":
        sys.stdout.buffer.write(page.encode("utf-8", "backslashreplace"))
    else:
        write_page("-o", output, page)


def _summarise(both: Sequence[dict[str, Any]], found: list[dict[str, Any]], output: str | None) -> None:
    """The findings of one run, or what differs between two: to stderr."""
    from guerdon._insight.report.comparison import sentences

    for note in (note for figures in both for note in figures["notes"]):
        print(f"guerdon: {printable(note, keep=_LINES)}", file=sys.stderr)
    signs = {"warning": "!", "info": " "}
    lines = [f"{signs[each['severity']]} {each['message']}" for each in found] if len(both) == 1 else sentences(both)
    for line in lines:
        print(printable(line, keep=_LINES), file=sys.stderr)
    where = "" if output in (None, "-") else f", see {output}"
    counts = [f"{figures['rows']:,} rows of {plural(len(figures['functions']), 'function')}" for figures in both]
    print(f"\n{' beside '.join(counts)}{where}", file=sys.stderr)

"""``guerdon top [PID]``: what the dispatchers of running trainers do now.

`sockets` finds them and asks, `state` reads their answers, `board` keeps the last of each, `frame`
and `tables` draw, `screen` owns the terminal.

- It only reads: a trainer that hangs, stops or ends is shown so, and never waited for.
- Text from a trainer reaches the terminal without control characters.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any, Final

from guerdon._system.extras import pip_install
from guerdon.profile.exit_codes import NOTHING_FOUND, SUCCESS, UsageError

if TYPE_CHECKING:
    from guerdon.cli.top.board import Board

__all__ = ["add_to", "run"]

_PIPE_WIDTH: Final = 120


def add_to(commands: Any) -> None:
    """Add the command to the parser's subcommands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "top",
        help="show live what running trainers' reward functions do",
        description="Show what the dispatchers of your running trainers do: functions, calls in flight with their stacks,\n"
        "endpoints, workers. Keys: q quit, arrows or j/k select a call, Enter its whole stack, Esc back.",
        epilog="Exit code: 0 success; 1 no running dispatcher was found (--once, --json, or without a terminal); 2 the\n"
        "command line can't be used, or rich is not installed; 130 Ctrl-C.",
    )
    parser.add_argument("pid", metavar="PID", nargs="?", type=int, help="of one process; by default all of yours")
    parser.add_argument("--once", action="store_true", help="print one snapshot and exit")
    parser.add_argument("--json", action="store_true", help="print one snapshot as JSON and exit")
    parser.add_argument("--interval", type=float, default=1.0, metavar="S", help="seconds between looks (1)")
    parser.add_argument(
        "--timeout", type=float, default=2.0, metavar="S", help="of --once and --json: wait so long (2)"
    )
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> int:
    """Show the processes until the user quits, or once.

    Raises:
        UsageError: A number can't be used, or ``rich`` is not installed.
    """
    for name in ("interval", "timeout"):
        if not 0 < getattr(options, name) <= 3600:
            raise UsageError(f"--{name} {getattr(options, name):g}: expected seconds, above 0 and at most 3600.")
    from guerdon.cli.top.board import Board

    board = Board(options.pid)
    if options.json:
        return _once(board, options.timeout, as_json=True)
    if importlib.util.find_spec("rich") is None:
        raise UsageError(f"guerdon top draws with rich, --once too: {pip_install('cli')}. Or use --json.")
    if options.once or not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM") == "dumb":
        return _once(board, options.timeout, as_json=False)
    from guerdon.cli.top.terminal import show

    show(board, options.interval)
    return SUCCESS


def _once(board: Board, timeout: float, *, as_json: bool) -> int:
    answers = board.look_once(timeout)
    if as_json:
        print(json.dumps(answers, indent=2))
        return SUCCESS if answers else NOTHING_FOUND
    seen = board.seen()
    if not seen:
        from guerdon.cli.top.sockets import nothing_found

        print(f"guerdon: {nothing_found(board.pid)}", file=sys.stderr)
        return NOTHING_FOUND
    from guerdon.cli.top.layout import print_once

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPE_WIDTH
    print_once(sys.stdout, seen, width)
    return SUCCESS

"""The command line: ``guerdon score`` (`score`) and ``guerdon info`` (`info`).

`loading` makes a dispatcher of the word REWARDS, `data` reads the rows, `fields` says which field is which column, `output` writes
results, `progress` draws the bar, `problem` is what ends a command early.

- C-1  Results go to stdout or to a file, everything said to people goes to stderr: a pipe never meets a progress bar.
- C-2  Exit code 0: fine. 1: a function failed on more samples than allowed; the rows are written all the same.
       2: the command line, the rewards or the data can't be used; nothing was scored. 130 after Ctrl-C.
- C-3  A mistake of the user is one message without a traceback of ours; a mistake in his file keeps his traceback.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence

from guerdon.cli.exit_codes import FULL, INTERRUPTED, UNREAD, USAGE
from guerdon.errors import GuerdonError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The words behind ``guerdon``; by default those that this process was started with.

    Returns:
        The exit code (C-2).
    """
    parser = _parser()
    try:
        options = parser.parse_args(arguments)
    except SystemExit as ended:  # argparse has said what is wrong, or shown the help
        return ended.code if isinstance(ended.code, int) else USAGE
    if options.run is None:
        parser.print_help(sys.stderr)
        return USAGE
    try:
        code: int = options.run(options)
        sys.stdout.flush()  # here and not at exit, where a closed pipe could only be complained about
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except OSError as error:
        if error.errno not in FULL:
            raise
        with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
            os.dup2(
                nowhere.fileno(), sys.stdout.fileno()
            )  # if it is the one that is full, it would complain again at exit
        print(f"guerdon: not all results could be written: {error.strerror}.", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("\nguerdon: interrupted", file=sys.stderr)
        return INTERRUPTED
    except GuerdonError as error:
        print(f"guerdon: {_printable(str(error))}", file=sys.stderr)
        return USAGE


def _parser() -> argparse.ArgumentParser:
    from guerdon.cli import info, score

    parser = argparse.ArgumentParser(
        prog="guerdon",
        description="Run the reward functions of RL post-training concurrently, with deadlines that hold.",
    )
    parser.add_argument("--version", action=_Version, help="print the version and exit")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    score.add_to(commands)
    info.add_to(commands)
    return parser


class _Version(argparse.Action):
    """``--version``, which loads the engine only when it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from guerdon import __version__

        print(f"guerdon {__version__}")
        parser.exit()


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")

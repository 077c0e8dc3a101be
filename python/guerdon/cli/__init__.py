"""The command line: ``guerdon COMMAND``, each in the module of its name.

- Results go to stdout or a file, everything else to stderr.
- Exit codes are in `exit_codes`; usage and data errors score nothing.
- A mistake of the user is one message without our traceback; an error in the user's file keeps its
  own traceback.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Final

from guerdon._system.safe_text import printable
from guerdon.cli.standard_streams import make_usable
from guerdon.cli.termination import ended_by_signals
from guerdon.errors import GuerdonError
from guerdon.profile.exit_codes import BROKEN_PIPE, DISK_FULL, INTERRUPTED, USAGE

__all__ = ["main"]

_LINES: Final = "\n\t"

_EXAMPLES: Final = {
    "init": ("guerdon init", "guerdon init my-rewards"),
    "score": (
        "guerdon score rewards.py data.jsonl -o scores.jsonl",
        "guerdon score rewards.py:correct data.parquet --map answer=solution -n 8",
    ),
    "profile": (
        "guerdon profile rewards.py data.jsonl",
        "guerdon profile rewards.py:correct data.jsonl --html profile.html",
    ),
    "report": ("guerdon report rewards/", "guerdon report monday/ tuesday/ -o both.html"),
    "replay": (
        "guerdon replay rewards/ mended.py:correct",
        "guerdon replay rewards/ mended.py --step 100: -o rescored.jsonl",
    ),
    "top": ("guerdon top", "guerdon top --once"),
    "trace": ("guerdon trace run.pftrace", "guerdon trace run.perfetto --json"),
    "serve": (
        "guerdon serve rewards.py --port 8000",
        "guerdon serve rewards.py:correct --host 0.0.0.0 --token-file token",
    ),
    "info": ("guerdon info", "guerdon info rewards.py"),
    "completion": (
        "source <(guerdon completion bash)",
        "guerdon completion fish >~/.config/fish/completions/guerdon.fish",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The arguments after ``guerdon``; by default those of this process.

    Returns:
        The exit code.
    """
    make_usable()
    try:
        options = _options(arguments)
        with ended_by_signals():
            code: int = options if isinstance(options, int) else options.run(options)
        sys.stdout.flush()  # here, so that a closed pipe is handled and not printed at exit
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        with contextlib.suppress(OSError), open(os.devnull, "wb") as null:
            # else Python tries to flush it again at exit
            os.dup2(null.fileno(), sys.stdout.fileno())
        print(f"guerdon: the results could not all be written: {error.strerror}.", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("\nguerdon: interrupted", file=sys.stderr)
        return INTERRUPTED
    except GuerdonError as error:
        print(f"guerdon: {printable(str(error), keep=_LINES)}", file=sys.stderr)
        return USAGE


def _options(arguments: Sequence[str] | None) -> argparse.Namespace | int:
    """The command with its options, or the exit code where there is nothing to run."""
    parser = _parser()
    try:
        options, unknown = parser.parse_known_args(arguments)
        if unknown:  # the command's own error: it shows its options
            options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    except SystemExit as ended:  # argparse printed the error or the help
        return ended.code if isinstance(ended.code, int) else USAGE
    if options.run is None:
        parser.print_help(sys.stderr)
        return USAGE
    return options


def _parser() -> argparse.ArgumentParser:
    from guerdon.cli import completion, info, init, profile, replay, report, score, serve, top, trace

    parser = argparse.ArgumentParser(
        prog="guerdon",
        description="Run the reward functions of RL post-training concurrently, with timeouts that hold.",
    )
    parser.add_argument("--version", action=_Version, help="print the version and exit")
    parser.set_defaults(run=None, parser=parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for module in (init, score, profile, report, replay, top, trace, serve, info, completion):
        module.add_to(commands)
    for name, command in commands.choices.items():
        command.formatter_class = argparse.RawDescriptionHelpFormatter
        command.epilog = "\n".join((f"{command.epilog}\n", "Examples:", *(f"  {line}" for line in _EXAMPLES[name])))
    return parser


class _Version(argparse.Action):
    """``--version``; loads the engine only then."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from guerdon import __version__

        print(f"guerdon {__version__}")
        parser.exit()

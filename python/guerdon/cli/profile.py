"""``guerdon profile REWARDS DATA``: can these functions be trusted, what do they take, and how
should they run?

- Functions run in workers with timeouts and limits: one that hangs or crashes is a finding.
- The cost of a judge's checks is printed before the first request.
- After Ctrl-C, or when time is up, the results so far are printed.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from guerdon._system.extras import pip_install
from guerdon.cli.arguments import add_data, add_rewards, add_workers, positive, seconds
from guerdon.profile.exit_codes import FINDINGS, INTERRUPTED, SUCCESS, UsageError

if TYPE_CHECKING:
    from guerdon.profile.function_profile import Profile

__all__ = ["add_to", "run"]

_DESCRIPTION: Final = """\
Check reward functions on your rows before you train with them: do references score and wrong answers not, are scores
the same twice, what do calls take, does anything hang or crash, which lane, timeout and number of workers to choose,
and how long the rewards of a step take.

REWARDS is file.py or module, as for `guerdon score`; DATA is JSONL (- for stdin), CSV or Parquet with the functions' columns,
and with completions of rollouts where you have them."""

_EPILOG: Final = """\
Every call runs in a worker process with a timeout, a memory limit and a limit on output. Judges are asked about
--judge-samples rows; how many requests that takes, and about what they cost, is printed before the first.

Exit code: 0 nothing found; 1 findings of severity error or warning; 2 the command line, the rewards or the data can't be
used; 130 after Ctrl-C."""


def add_to(commands: Any) -> None:
    """Add the command to the parser's subcommands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "profile",
        help="check reward functions, and choose their lane and timeout",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add_rewards(parser)
    add_data(parser)
    parser.add_argument("--rows", metavar="N", type=positive, default=200, help="rows to use; default 200")
    parser.add_argument(
        "--reference", metavar="TEMPLATE", help="a completion that must score, with columns: '\\boxed{{answer}}'"
    )
    parser.add_argument("--probes", metavar="FILE", help="more answers that must not score, as JSON (docs/profile.md)")
    step = parser.add_argument_group("the step whose reward time is predicted")
    step.add_argument("--prompts", metavar="P", type=positive, default=64, help="prompts of a step; default 64")
    step.add_argument(
        "--generations", metavar="G", type=positive, help="completions per prompt; default those of the data, else 8"
    )
    add_workers(step)
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--timeout", metavar="S", type=seconds, default=10.0, help="seconds of a call at most; default 10"
    )
    limits.add_argument(
        "--time-limit", metavar="S", type=seconds, default=300.0, help="seconds of the whole profile; default 300"
    )
    limits.add_argument(
        "--memory-limit", metavar="SIZE", default="2GB", help="memory of a call, as in 512MB; default 2GB"
    )
    limits.add_argument(
        "--judge-samples", metavar="N", type=positive, default=20, help="rows a judge is asked about; default 20"
    )
    limits.add_argument(
        "--max-cost", metavar="X", type=seconds, help="what all requests may cost, for judges with a price="
    )
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument("--html", metavar="FILE", help="write a page too")
    output.add_argument("-v", "--verbose", action="store_true", help="show all findings, and why what is advised")
    output.add_argument("-q", "--quiet", action="store_true", help="no progress")
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> int:
    """Profile the rewards.

    Raises:
        UsageError: The rewards, the data or an option can't be used.
    """
    from guerdon._system.safe_text import printable
    from guerdon._system.units import as_bytes
    from guerdon.cli.captured_stderr import captured_stderr
    from guerdon.cli.field_mapping import FieldOptions
    from guerdon.cli.profile_progress import ProfileProgress
    from guerdon.cli.profile_rows import read_rows
    from guerdon.errors import GuerdonError
    from guerdon.profile import load_rewards
    from guerdon.profile.input_rows import open_input
    from guerdon.profile.probes import load_probes
    from guerdon.profile.profiling import profile

    show = None if options.json and options.html is None else _table()
    if options.html is not None:
        from guerdon.cli.output_file import check_output_file

        check_output_file("--html", options.html)
    memory = as_bytes(options.memory_limit)
    if memory is None or memory < 10_000_000:
        raise UsageError(
            f"--memory-limit {options.memory_limit}: expected a size of at least 10MB, as in 512MB or 2GB."
        )
    with ExitStack() as stack:
        dispatcher = stack.enter_context(load_rewards.load(options.rewards))
        probes = None if options.probes is None else load_probes(options.probes)
        source = open_input(options.data)
        stack.callback(source.close)
        fields = FieldOptions(options.completion_field, options.prompt_field, dict(options.map))
        rows, mapping = read_rows(source, dispatcher._specs, fields, options.rows, options.num_generations)
        if mapping.left_out:
            message = f"{mapping.left_out} of {mapping.rows} rows of {source.name} have no completion: they are not run"
            print(f"guerdon: {printable(message)}", file=sys.stderr)
        drawn = sys.stderr.isatty() and not options.quiet
        progress = ProfileProgress(stack.enter_context(captured_stderr()), shown=drawn)
        stack.enter_context(progress.warnings())
        try:
            found = profile(
                dispatcher,
                rows,
                prompts=options.prompts,
                generations=options.generations or options.num_generations or 8,
                workers=options.workers,
                probes=probes,
                reference=options.reference,
                timeout=options.timeout,
                memory_limit=memory,
                time_limit=options.time_limit,
                judge_samples=options.judge_samples,
                max_cost=options.max_cost,
                announce=progress.announce,
                progress=progress.show,
            )
        except GuerdonError as error:
            raise UsageError(str(error)) from error
        finally:
            progress.clear()
    found.left_out = mapping.left_out
    return _finish(found, options, show)


def _finish(found: Profile, options: argparse.Namespace, show: Any) -> int:
    """Shows the results, then writes the page: a disk that is full costs that alone; the exit
    code."""
    if options.json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        show(found, verbose=options.verbose)
    if options.html is not None:
        from guerdon.cli.output_file import write_page
        from guerdon.cli.profile_table import page

        write_page("--html", options.html, page(found, options.rewards, options.data))
    if found.cut_short == "interrupted":
        print("guerdon: interrupted: what is known so far is above", file=sys.stderr)
        return INTERRUPTED
    return SUCCESS if found.clean else FINDINGS


def _table() -> Any:
    """Returns the printer of a profile; needs rich."""
    try:
        from guerdon.cli.profile_table import show
    except ImportError:
        raise UsageError(f"the table and the page need rich: {pip_install('cli')}. Or use --json.") from None
    return show

"""``guerdon replay JOURNAL REWARDS``: score saved rollouts again, and say how that differs.

- The diff goes to stdout, as text or JSON; new rows go to ``-o OUT`` alone.
- Texts of completions can't steer the terminal: what is not printable is shown escaped.
- Usage errors, texts or columns that the journal lacks included, are found before any call.
- After Ctrl-C the chunks that were finished are in OUT.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from guerdon._system.safe_text import one_line, printable
from guerdon.cli.arguments import add_failure_rate, add_rewards, add_workers, at_least_zero, count, positive, steps
from guerdon.profile.exit_codes import SUCCESS, TOO_MANY_FAILURES, UsageError

if TYPE_CHECKING:
    from guerdon._replay import ReplayResult, ReplayRun

__all__ = ["add_to", "run"]

_DESCRIPTION: Final = """\
Score the rollouts of a journal again with the functions of a rewards file, and compare.

JOURNAL is a folder that Dispatcher(journal=...) wrote, or one of its parts; it is only read.
REWARDS is file.py or module, as for guerdon score; file.py:a,b means only a and b."""

_EPILOG: Final = """\
Exit code: 0 success; 1 a function failed on more samples than allowed, or with --exit-code some sample moved; 2 the
command line, the journal, the rewards or OUT can't be used, or the journal lacks what a function asks for (nothing was
scored); 130 after Ctrl-C (what was finished is in OUT)."""


def add_to(commands: Any) -> None:
    """Add the command to the parser's subcommands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "replay",
        help="score saved rollouts again, and compare",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("journal", metavar="JOURNAL", help="a journal's folder, or one of its parts")
    add_rewards(parser)
    parser.add_argument("--run", metavar="NAME", action="append", dest="runs", help="only this run; repeatable")
    parser.add_argument(
        "--step",
        metavar="A:B",
        type=steps,
        default=(None, None),
        help="only steps A to B, both included; A:, :B or one step",
    )
    parser.add_argument("-o", "--output", metavar="OUT", help="write the new rewards into this new .jsonl file")
    parser.add_argument("--json", action="store_true", help="show what changed as JSON")
    parser.add_argument(
        "--tolerance", metavar="X", type=at_least_zero, default=0.0, help="numbers no farther apart agree; default 0"
    )
    parser.add_argument(
        "--moved",
        metavar="N",
        type=count,
        default=5,
        help="show the N samples of each function that moved most; default 5",
    )
    parser.add_argument("--exit-code", action="store_true", help="exit with 1 if some sample moved")
    add_workers(parser)
    add_failure_rate(parser)
    parser.add_argument(
        "--chunk", metavar="N", type=positive, default=512, help="samples of a call into the engine; default 512"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress and no summary")
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> int:
    """Replay, write and show; returns the exit code.

    Raises:
        GuerdonError: Nothing was scored.
    """
    from guerdon._insight.journal.selection import Selection
    from guerdon._replay import ReplayRun
    from guerdon.cli.progress import Progress
    from guerdon.profile.load_rewards import load

    _check_journal(options.journal, options.rewards)
    dispatcher = load(options.rewards, workers=options.workers, max_failure_rate=options.max_failure_rate)
    with ExitStack() as stack:
        stack.callback(dispatcher.close)
        replayed = ReplayRun(
            options.journal,
            dispatcher,
            Selection(None if options.runs is None else frozenset(options.runs), *options.step),
            out=options.output,
            tolerance=options.tolerance,
            moved=options.moved,
            workers=options.workers,
            chunk=options.chunk,
        )
        stack.callback(replayed.close)
        drawn = sys.stderr if sys.stderr.isatty() and not options.quiet else None
        progress = Progress(drawn, replayed.survey.samples)
        try:
            found = replayed.run(progress.add)
        except KeyboardInterrupt:
            progress.clear()
            _say_interrupted(replayed, options)
            raise
        finally:
            progress.clear()
    if options.json:
        print(json.dumps(found.to_dict(), indent=2, allow_nan=False))
    else:
        _print_diff(found, sys.stdout)
    if not options.quiet:
        print(_summary(found, options.output), file=sys.stderr)
    differs = options.exit_code and found.differences > 0
    return TOO_MANY_FAILURES if found.failures or differs else SUCCESS


def _check_journal(journal: str, rewards: str) -> None:
    """Refuses a path that is not a journal, before the rewards run any code.

    Raises:
        GuerdonError: There is none, or it has no parts.
    """
    from guerdon._insight.journal.parts import find_parts, is_folder

    path = Path(journal)
    if path.suffix == ".py" and os.path.isfile(path) and os.path.isdir(rewards):
        raise UsageError(
            f"{journal!r} is no journal: JOURNAL comes before REWARDS, as in guerdon replay {rewards} {journal}."
        )
    if not is_folder(journal) or not any(each.suffix in (".arrows", ".parquet") for each in path.iterdir()):
        find_parts(journal).check_some()


def _say_interrupted(replayed: ReplayRun, options: argparse.Namespace) -> None:
    written = sum(row.samples for row in replayed.totals.rows())
    if options.output is None:
        message = "nothing was kept: there is no output (-o OUT)"
    else:
        message = f"{written} cells are in {options.output}"
    print(f"guerdon: {message}", file=sys.stderr)


def _summary(found: ReplayResult, output: str | None) -> str:
    """Returns the counts of scored and failed samples, and the notes: for stderr."""
    lines = []
    for name, function in found.functions.items():
        states = ", ".join(f"{count} {label}" for label, count in function["status"].items())
        lines.append(f"{name}: {function['scored']} scored{': ' if states else ''}{states}")
        lines += [
            f"  {count} failed: {one_line(reason, 160)}" for reason, count in list(function["reasons"].items())[:3]
        ]
    lines += [f"note: {note}" for note in found.notes]
    lines += found.failures
    lines.append(f"{found.samples} samples in {found.groups} groups{f', written to {output}' if output else ''}")
    return printable("\n".join(lines), keep="\n\t")


def _print_diff(found: ReplayResult, stream: TextIO) -> None:
    rows = {name: function["diff"] for name, function in found.functions.items() if function["diff"] is not None}
    lines = ["no function of the journal was replayed: there is nothing to compare"]
    if rows:
        lines = [line for name, row in rows.items() for line in _change(name, row)]
        lines += [*_change("weighted total", found.total), *_moved(found), ""]
    encoding = stream.encoding or "utf-8"
    stream.write("".join(f"{line}\n" for line in lines).encode(encoding, "backslashreplace").decode(encoding))


def _change(name: str, row: dict[str, Any]) -> list[str]:
    """Returns a line of what moved, and one of its groups."""
    cells, mean = row["compared"], row["mean"]
    parts = [f"{row['moved']} of {cells} cells moved ({_share(row['moved'], cells)})"]
    if mean["now"] is not None:
        parts.append(f"mean {mean['journal']:.3g} -> {mean['now']:.3g}")
    parts += [
        f"{row[key]} newly {word}"
        for key, word in (("failures_to_answers", "answered"), ("answers_to_failures", "failed"))
        if row[key]
    ]
    lines = [f"{one_line(name, 60)}: {', '.join(parts)}"]
    ranks, advantages = row["ranks"], row["advantages"]
    if ranks["groups"]:
        lines.append(
            f"  {ranks['groups']} groups: order changed in {ranks['groups_changed']}, best in {ranks['best_changed']}; "
            f"advantages: {_share(advantages['changed'], advantages['samples'])} changed, "
            f"{advantages['flipped']} flipped, mean change {advantages['mean_change']:.3g}"
        )
    return lines


def _moved(found: ReplayResult) -> list[str]:
    lines = ["", "Moved most"] if found.moved else []
    for entry in found.moved:
        step = f"batch {entry['batch']}" if entry["step"] is None else f"step {entry['step']}"
        place = f"{entry['run']}, {step}, rank {entry['rank']}, sample {entry['sample']}"
        lines.append(f"{one_line(entry['function'], 60)}  {_outcome(entry['journal'])} -> {_outcome(entry['now'])}")
        lines.append(f"  {one_line(place, 200)}")
        texts = {"then": entry["journal"]["reason"], "now": entry["now"]["reason"]}
        texts |= {label: entry[label] for label in ("prompt", "completion")}
        lines += [f"  {label}: {one_line(text, 160)}" for label, text in texts.items() if text is not None]
    return lines


def _outcome(side: dict[str, Any]) -> str:
    if side["status"] is None:
        return "no row"
    if side["reward"] is None:
        return str(side["status"])
    return f"{side['reward']:.6g}" + ("" if side["status"] == "ok" else f" ({side['status']})")


def _share(part: int, whole: int) -> str:
    """Returns a percentage that is 0 or 100 only where no or all cells are counted."""
    if not whole:
        return "-"
    shown = f"{100 * part / whole:.1f} %"
    if part < whole and shown == "100.0 %":
        return ">99.9 %"
    return "<0.1 %" if part and shown == "0.0 %" else shown

"""``guerdon score REWARDS DATA``: score a file of completions.

- S-1  The output is complete and in the order of the data, whatever failed; a chunk is written as soon as it and all
       before it are done.
- S-2  The workers never wait for the disk: the next chunk is under way while one is written.
- S-3  Failures are judged over the whole file, by the same limits as a batch is: more than ``max_failure_rate`` of a
       function's samples (of at least 8), or any with ``on_failure="raise"``, make the exit code 1.
- S-4  After Ctrl-C the samples that were finished are written.
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from guerdon.cli.exit_codes import FINE, TOO_MANY_FAILURES, UsageError
from guerdon.errors import RewardFailureError

if TYPE_CHECKING:
    from guerdon._diagnostics.report import Report
    from guerdon.cli.field_mapping import Plan
    from guerdon.cli.input_rows import Row, Source
    from guerdon.cli.progress_bar import Progress
    from guerdon.cli.result_rows import FailureLog, Output
    from guerdon.dispatcher import Dispatcher
    from guerdon.pending import PendingBatch
    from guerdon.results import RewardBatch

__all__ = ["add_to", "run"]

CHUNK: Final = 4096
_IN_FLIGHT: Final = 2

_DESCRIPTION: Final = """\
Score completions with reward functions.

REWARDS is file.py or module: every decorated function and StatefulReward instance in it, or its one Dispatcher.
file.py:a,b means just a and b, decorated or not.
DATA is JSONL (- is stdin; gzip is fine) or Parquet, one completion a row."""

_EPILOG: Final = """\
A result row: {"index": 0, "rewards": {"correct": 1.0}, "status": {"correct": "ok"}}. No reward is null; the status says
why: abstained, timeout, error, crashed or cancelled.

Exit code: 0 fine; 1 a function failed on more samples than allowed (the rows are written all the same); 2 the command
line, the rewards or the data can't be used."""


def add_to(commands: Any) -> None:
    """Add the command to the parser's subcommands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "score",
        help="score a file of completions",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("rewards", metavar="REWARDS", help="file.py, module, or either with :a,b")
    parser.add_argument("data", metavar="DATA", help="a JSONL or Parquet file, - for stdin")
    parser.add_argument("-o", "--output", metavar="OUT", help="JSONL, or .parquet; default: JSONL to stdout")
    parser.add_argument("--completion-field", metavar="FIELD", default="completion", help="default: completion")
    parser.add_argument("--prompt-field", metavar="FIELD", help="default: prompt, if there is one")
    parser.add_argument(
        "--map",
        metavar="COLUMN=FIELD",
        action="append",
        default=[],
        type=_mapping,
        help="what the functions call COLUMN is FIELD in the data (a.b for a field in a field); may be repeated",
    )
    parser.add_argument(
        "-n", "--num-generations", metavar="N", type=_positive, help="completions per prompt, for group functions"
    )
    parser.add_argument("--keep", action="store_true", help='write the input row too, as "row"')
    parser.add_argument("--failures", metavar="FILE", help="write each failure with its reason and traceback, as JSONL")
    parser.add_argument("--workers", metavar="N", type=_positive, help="worker processes; default: one per usable core")
    parser.add_argument(
        "--max-failure-rate", metavar="X", type=float, help="allowed share of failures per function; default 0.5"
    )
    parser.add_argument(
        "--chunk",
        metavar="N",
        type=_positive,
        help=f"samples in memory at once; default {CHUNK}, or all if a function takes whole batches",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar and no summary")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Score, write, and say what became of it; the exit code (S-3).

    Raises:
        GuerdonError: Nothing was scored, because something can't be used as it is.
    """
    from guerdon._diagnostics.report import Report
    from guerdon.cli.field_mapping import plan
    from guerdon.cli.input_rows import open_source
    from guerdon.cli.load_rewards import file_of, load
    from guerdon.cli.progress_bar import Progress
    from guerdon.cli.result_rows import FailureLog, open_output, refuse_overwriting

    dispatcher = load(options.rewards, workers=options.workers, max_failure_rate=options.max_failure_rate)
    with ExitStack() as stack:
        stack.callback(dispatcher.close)
        source = open_source(options.data)
        stack.callback(source.close)
        planned = plan(source, dispatcher._specs, _fields(options))
        size = _group_size(dispatcher, options.num_generations, planned, source)
        refuse_overwriting(options.output, options.failures, source.name, file_of(options.rewards))
        output = open_output(options.output, dispatcher.names, source, keep=options.keep)
        stack.callback(output.close)
        log = FailureLog(options.failures) if options.failures else None
        if log is not None:
            stack.callback(log.close)
        drawn = sys.stderr if sys.stderr.isatty() and not options.quiet else None
        progress, report = Progress(drawn, planned.rows), Report(dispatcher.names)
        scoring = Scoring(dispatcher, planned, size, output, log, progress, report)
        scoring.run(source, _chunk(dispatcher, options.chunk, size, planned))
    if not options.quiet:
        print(scoring.summary(), file=sys.stderr)
    return TOO_MANY_FAILURES if scoring.breaches() else FINE


class Scoring:
    """One run over the data."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        planned: Plan,
        num_generations: int,
        output: Output,
        log: FailureLog | None,
        progress: Progress,
        report: Report,
    ) -> None:
        self._dispatcher = dispatcher
        self._plan = planned
        self._size = num_generations
        self._output = output
        self._log = log
        self._progress = progress
        self._report = report
        self._written = 0  # rows of the data that are behind us
        self._elapsed_s = 0.0

    def run(self, source: Source, chunk: int) -> None:
        """Score all rows of `source`, `chunk` at a time (S-1, S-2)."""
        import time

        start = time.monotonic()
        flying: deque[tuple[PendingBatch, list[Row]]] = deque()
        try:
            for rows in _chunks(source.rows(), chunk):
                if len(flying) == _IN_FLIGHT:
                    self._finish(flying)
                flying.append((self._submit(rows), rows))
            while flying:
                self._finish(flying)
        except KeyboardInterrupt:
            self._progress.clear()
            self._salvage(flying)
            raise
        finally:
            self._progress.clear()
            self._elapsed_s = time.monotonic() - start

    def summary(self) -> str:
        """Table, failures and speed, for people."""
        samples = self._report.samples
        rate = f", {samples / self._elapsed_s:,.0f} samples/s" if self._elapsed_s > 0 else ""
        parts = [self._report.table(), self._report.why(), *self.breaches()]
        parts.append(f"{samples} samples in {self._elapsed_s:.3g} s{rate}")
        return "\n\n".join(part for part in parts if part)

    def breaches(self) -> list[str]:
        """A message for each function that failed more often than allowed (S-3)."""
        from guerdon._result.failures import FEWEST_SAMPLES

        messages = []
        default: float = self._dispatcher.options["max_failure_rate"]
        for spec, row in zip(self._dispatcher._specs, self._report.rows(), strict=True):
            own = spec.policy.max_failure_rate
            limit = default if own is None else own
            said = f"too many failures: {spec.name!r} failed on {row.failed} of {row.samples} samples"
            if row.failed and spec.policy.on_failure == "raise":
                messages.append(f'{said}, and has on_failure="raise".')
            elif row.samples >= FEWEST_SAMPLES and row.failed > limit * row.samples:
                messages.append(f"{said}, more than the {100 * limit:.3g} % allowed (max_failure_rate).")
        return messages

    def _submit(self, rows: Sequence[Row]) -> PendingBatch:
        return self._dispatcher.submit(num_generations=self._size, **self._plan.batch(rows))

    def _finish(self, flying: deque[tuple[PendingBatch, list[Row]]]) -> None:
        """Wait for the oldest chunk and write it."""
        pending, rows = flying[0]
        try:
            if self._progress.shown:
                for _ in pending.groups():
                    self._progress.add(self._size)
            result = pending.result()
        except RewardFailureError as error:  # judged over the whole file, at the end
            if error.result is None:
                raise
            result = error.result
        flying.popleft()
        self._write(result, rows, range(len(result)))

    def _write(self, result: RewardBatch, rows: Sequence[Row], chosen: Sequence[int]) -> None:
        self._output.write(result, rows, self._written, chosen)
        if self._log is not None:
            self._log.write(result.failures(), self._written)
        self._report.add(result)
        self._written += len(rows)

    def _salvage(self, flying: deque[tuple[PendingBatch, list[Row]]]) -> None:
        """Write what was finished of the chunks under way (S-4)."""
        from guerdon.status import Status

        written = self._written
        for pending, _ in flying:
            pending.cancel()
        for pending, rows in flying:
            try:
                result = pending.result(timeout=2.0)
            except RewardFailureError as error:
                if error.result is None:
                    raise
                result = error.result
            finished = (result.status != Status.CANCELLED).any(axis=2).ravel()
            self._write(result, rows, finished.nonzero()[0].tolist())
            written += len(finished.nonzero()[0])
        print(f"guerdon: {written} of {self._plan.rows} samples were scored and written", file=sys.stderr)


def _chunks(rows: Iterator[Row], size: int) -> Iterator[list[Row]]:
    while chunk := list(islice(rows, size)):
        yield chunk


def _fields(options: argparse.Namespace) -> Any:
    from guerdon.cli.field_mapping import Fields

    columns: dict[str, str] = {}
    for column, field in options.map:
        if columns.setdefault(column, field) != field:
            raise UsageError(f"--map gives the column {column!r} twice: {columns[column]} and {field}.")
    return Fields(options.completion_field, options.prompt_field, columns)


def _group_size(dispatcher: Dispatcher, given: int | None, planned: Plan, source: Source) -> int:
    size: int | None = given or dispatcher.options["num_generations"]
    grouped = dispatcher._submitter.group_function
    if size is None:
        if grouped is not None:
            raise UsageError(f"{grouped!r} works on whole groups: say how many completions a prompt has, -n N.")
        return 1
    if planned.rows % size:
        raise UsageError(
            f"{source.name} has {planned.rows} rows, which don't make whole groups of {size} (--num-generations): "
            "the completions of a prompt stand one behind the other, the same number for each."
        )
    return size


def _chunk(dispatcher: Dispatcher, given: int | None, size: int, planned: Plan) -> int:
    """Samples in a chunk: whole groups; all of them for a function of whole batches, which is never split unasked."""
    if given is None and any(spec.shape == "batch" for spec in dispatcher._specs):
        return planned.rows
    return -(-(given or CHUNK) // size) * size


def _mapping(text: str) -> tuple[str, str]:
    column, equals, field = text.partition("=")
    if not (column and equals and field):
        raise argparse.ArgumentTypeError(f"{text!r}: expected COLUMN=FIELD, as in answer=ground_truth")
    return column, field


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of at least 1")
    return number

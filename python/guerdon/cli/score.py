"""``guerdon score REWARDS DATA``: score a file of completions.

- The output is complete and in the order of the data, whatever failed; a chunk is written once it
  and all before it are done, while the next one is scored.
- Failures are judged over the whole file: more than ``max_failure_rate`` of a function's calls
  (of at least 8), or any with ``on_failure="raise"``, make the exit code 1.
- After Ctrl-C the finished samples are written.
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from guerdon._functions.policy import MIN_JUDGED
from guerdon.cli.arguments import add_data, add_failure_rate, add_rewards, add_workers, positive, seconds
from guerdon.errors import RewardFailureError
from guerdon.profile.exit_codes import SUCCESS, TOO_MANY_FAILURES, UsageError

if TYPE_CHECKING:
    from guerdon._batch.pending import PendingBatch
    from guerdon._insight.diagnostics.score_totals import ScoreTotals
    from guerdon.cli.field_mapping import FieldMapping
    from guerdon.cli.progress import Progress
    from guerdon.cli.result_rows import FailureLog, ResultWriter
    from guerdon.dispatcher import Dispatcher
    from guerdon.profile.input_rows import InputFile, InputRow
    from guerdon.results import RewardBatch

__all__ = ["add_to", "run"]

CHUNK: Final = 4096
_IN_FLIGHT: Final = 2

_DESCRIPTION: Final = """\
Score completions with reward functions.

REWARDS is file.py or module: every decorated function and StatefulReward instance in it, or its one Dispatcher.
file.py:a,b means only a and b, decorated or not.
DATA is JSONL (- for stdin; may be gzipped), CSV or Parquet, one completion per row."""

_EPILOG: Final = """\
A result row: {"index": 0, "rewards": {"correct": 1.0}, "status": {"correct": "ok"}}. A missing reward is null, and its
status is abstained, skipped, timeout, error, crashed or cancelled. --extra adds what functions recorded.

Exit code: 0 success; 1 a function failed on more samples than --max-failure-rate allows, of at least 8 that it was called
for (all rows are written); 2 the command line, the rewards or the data can't be used; 130 after Ctrl-C."""


def add_to(commands: Any) -> None:
    """Add the command to the parser's subcommands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "score",
        help="score a file of completions",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add_rewards(parser)
    add_data(parser)
    parser.add_argument("-o", "--output", metavar="OUT", help=".jsonl or .jsonl.gz; default: JSONL to stdout")
    parser.add_argument("--keep", action="store_true", help='write the input row too, as "row"')
    parser.add_argument(
        "--extra",
        action="store_true",
        help='write what functions recorded too, as "extra": {function: {field: value}}: fields of dict results, log_extra, '
        "reasons of code rewards and judges",
    )
    parser.add_argument("--failures", metavar="FILE", help="write each failure with reason and traceback, as JSONL")
    add_workers(parser)
    add_failure_rate(parser, f", judged over the whole file where at least {MIN_JUDGED} samples were called")
    parser.add_argument(
        "--batch-timeout",
        metavar="SECONDS",
        type=seconds,
        help="what a chunk may take; samples not finished then are timeout. Default: the dispatcher's, or no limit",
    )
    parser.add_argument(
        "--chunk",
        metavar="N",
        type=positive,
        help=f"samples in memory at once; default {CHUNK}, or all if a function scores whole batches",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress and no summary")
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> int:
    """Score, write the results and print a summary; returns the exit code.

    Raises:
        GuerdonError: Nothing was scored: the command line, rewards or data can't be used.
    """
    from guerdon._insight.diagnostics.score_totals import ScoreTotals
    from guerdon.cli.field_mapping import map_fields
    from guerdon.cli.progress import Progress
    from guerdon.cli.result_rows import FailureLog, open_results, refuse_overwriting
    from guerdon.profile.input_rows import open_input
    from guerdon.profile.load_rewards import file_of, load

    dispatcher = load(
        options.rewards,
        workers=options.workers,
        max_failure_rate=options.max_failure_rate,
        batch_timeout=options.batch_timeout,
    )
    with ExitStack() as stack:
        stack.callback(dispatcher.close)
        if dispatcher.options["batch_timeout"] is None:
            _refuse_unreachable(dispatcher)
        source = open_input(options.data)
        stack.callback(source.close)
        mapping = map_fields(source, dispatcher._specs, _field_options(options))
        size = _group_size(dispatcher, options.num_generations, mapping, source)
        refuse_overwriting(options.output, options.failures, source.name, file_of(options.rewards))
        output = open_results(options.output, dispatcher.names, keep=options.keep, extra=options.extra)
        stack.callback(output.close)
        log = FailureLog(options.failures) if options.failures else None
        if log is not None:
            stack.callback(log.close)
        drawn = sys.stderr if sys.stderr.isatty() and not options.quiet else None
        progress, totals = Progress(drawn, mapping.rows), ScoreTotals(dispatcher.names)
        scoring = ScoreRun(dispatcher, mapping, size, output, log, progress, totals)
        scoring.run(source, _chunk(dispatcher, options.chunk, size, mapping))
    if not options.quiet:
        print(scoring.summary(), file=sys.stderr)
    return TOO_MANY_FAILURES if scoring.breaches() else SUCCESS


@dataclass
class ScoreRun:
    """One run over the data.

    Attributes:
        size: Completions per prompt.
        written: Rows of the data that are written already.
    """

    dispatcher: Dispatcher
    mapping: FieldMapping
    size: int
    output: ResultWriter
    log: FailureLog | None
    progress: Progress
    totals: ScoreTotals
    written: int = 0
    elapsed_s: float = 0.0

    def run(self, source: InputFile, chunk: int) -> None:
        """Score all rows of `source`, `chunk` at a time."""
        import time

        start = time.monotonic()
        in_flight: deque[tuple[PendingBatch, list[InputRow]]] = deque()
        try:
            for rows in _chunks(source.rows(), chunk):
                if len(in_flight) == _IN_FLIGHT:
                    self._finish(in_flight)
                in_flight.append((self._submit(rows), rows))
            while in_flight:
                self._finish(in_flight)
        except KeyboardInterrupt:
            self.progress.clear()
            self._write_finished(in_flight)
            raise
        finally:
            self.progress.clear()
            self.elapsed_s = time.monotonic() - start

    def summary(self) -> str:
        """Table, failures and speed, for people."""
        from guerdon._insight.diagnostics.score_totals import rate_text

        samples = self.totals.samples
        rate = f", {rate_text(samples / self.elapsed_s)} samples/s" if self.elapsed_s > 0 else ""
        totals = self.totals
        parts = [totals.table(), totals.usage(), totals.failures(), *self.breaches()]
        parts.append(f"{samples} samples in {self.elapsed_s:.3g} s{rate}")
        return "\n\n".join(part for part in parts if part)

    def breaches(self) -> list[str]:
        """A message for each function that failed more often than allowed."""
        return self.totals.breaches(self.dispatcher._specs, self.dispatcher.options["max_failure_rate"])

    def _submit(self, rows: Sequence[InputRow]) -> PendingBatch:
        return self.dispatcher.submit(num_generations=self.size, **self.mapping.batch(rows))

    def _finish(self, in_flight: deque[tuple[PendingBatch, list[InputRow]]]) -> None:
        """Wait for the oldest chunk and write it."""
        pending, rows = in_flight[0]
        try:
            if self.progress.shown:
                for _ in pending.groups():
                    self.progress.add(self.size)
            result = pending.result()
        except RewardFailureError as error:  # judged over the whole file, at the end
            if error.result is None:
                raise
            result = error.result
        in_flight.popleft()
        self._write(result, rows, range(len(result)))

    def _write(self, result: RewardBatch, rows: Sequence[InputRow], chosen: Sequence[int]) -> None:
        self.output.write(result, rows, self.written, chosen)
        if self.log is not None:
            self.log.write(result.failures(), self.written)
        self.totals.add(result)
        self.written += len(rows)

    def _write_finished(self, in_flight: deque[tuple[PendingBatch, list[InputRow]]]) -> None:
        """Write the finished samples of the chunks in flight."""
        from guerdon.results.status import Status

        written = self.written
        for pending, _ in in_flight:
            pending.cancel()
        for pending, rows in in_flight:
            try:
                result = pending.result(timeout=2.0)
            except RewardFailureError as error:
                if error.result is None:
                    raise
                result = error.result
            finished = (result.status != Status.CANCELLED).any(axis=2).ravel()
            self._write(result, rows, finished.nonzero()[0].tolist())
            written += len(finished.nonzero()[0])
        print(f"guerdon: {written} of {self.mapping.rows} samples were scored and written", file=sys.stderr)


def _refuse_unreachable(dispatcher: Dispatcher) -> None:
    """Ends a run whose calls would wait for five minutes for a server that is not there."""
    from guerdon._lanes.http.endpoints import unreachable

    for spec in dispatcher._specs:
        refusal = unreachable(spec)
        if refusal is not None:
            raise UsageError(
                f"reward function {spec.name!r}: {refusal}. Start the server, or score the other functions with "
                "--batch-timeout."
            )


def _chunks(rows: Iterator[InputRow], size: int) -> Iterator[list[InputRow]]:
    while chunk := list(islice(rows, size)):
        yield chunk


def _field_options(options: argparse.Namespace) -> Any:
    from guerdon.cli.field_mapping import FieldOptions

    columns: dict[str, str] = {}
    for column, field in options.map:
        if columns.setdefault(column, field) != field:
            raise UsageError(f"--map names the column {column!r} twice: {columns[column]} and {field}.")
    return FieldOptions(options.completion_field, options.prompt_field, columns)


def _group_size(dispatcher: Dispatcher, given: int | None, mapping: FieldMapping, source: InputFile) -> int:
    size: int | None = given or dispatcher.options["num_generations"]
    grouped = dispatcher._submitter.group_function
    if size is None:
        if grouped is not None:
            raise UsageError(f"{grouped!r} works on whole groups: give the number of completions per prompt, -n N.")
        return 1
    if mapping.rows % size:
        raise UsageError(
            f"{source.name} has {mapping.rows} rows, not a multiple of {size} (--num-generations). "
            "The completions of a prompt must be contiguous, the same number for each."
        )
    return size


def _chunk(dispatcher: Dispatcher, given: int | None, size: int, mapping: FieldMapping) -> int:
    """Samples in a chunk: whole groups, or all if a function scores whole batches."""
    if given is None and any(spec.shape == "batch" for spec in dispatcher._specs):
        return mapping.rows
    return -(-min(given or CHUNK, mapping.rows) // size) * size

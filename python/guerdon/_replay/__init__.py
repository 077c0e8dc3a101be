"""Replay: the rollouts of a journal scored again, and how that differs.

- `survey`, `chunks`: the journal, read in two passes, never as a whole.
- `needs`, `scoring`: what functions ask for; their calls.
- `output`: what is written.
- `compare`, `diff`: the arithmetic, and its sums over chunks.
- `run`, `result`: one replay, and its result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from guerdon._engine.dispatcher_options import whole
from guerdon._insight.journal.selection import Selection
from guerdon._replay.result import ReplayResult
from guerdon._replay.run import ReplayRun
from guerdon._system.units import integer, number
from guerdon.dispatcher import Dispatcher
from guerdon.errors import DataError, RegistrationError

__all__ = ["ReplayResult", "ReplayRun", "replay"]


def replay(
    journal: str | Path,
    rewards: Dispatcher | Iterable[object],
    *,
    runs: Collection[str] | None = None,
    steps: tuple[int | None, int | None] | None = None,
    out: str | Path | None = None,
    tolerance: float = 0.0,
    moved: int = 20,
    workers: int | None = None,
    chunk: int = 512,
) -> ReplayResult:
    """Score the rollouts of a journal again, and compare.

    The groups are put together as they were, so that functions of groups and batches,
    ``finish_group``, panels and weights work. The columns that a function needs must be in the
    journal: the texts (``Journal(texts=True)``) or the columns that it names.

    Args:
        journal: The folder, or one of its parts. It is only read, but for streams of killed runs in
            it, which become Parquet files.
        rewards: Reward functions, or a `Dispatcher` with them, whose journal, trace and servers
            are not used. Others of the journal keep the rewards that it has.
        runs: Only rows of these runs.
        steps: Only rows of the steps from the first to the second, both included; None for no
            bound.
        out: A new ``.jsonl`` file for the new rewards: a line a sample as of `guerdon score`, with
            the journal's keys of the sample.
        tolerance: Numbers no farther apart agree.
        moved: How many moved samples of each function to keep.
        workers: Processes of the process lane; the dispatcher's by default.
        chunk: Samples of a call into the engine; the last few chunks are lost when the process is
            killed.

    Returns:
        Counts, the diff of each function and of the total, and what moved most.

    Raises:
        DataError: The journal lacks what a function asks for, or can't be read, or `out` can't be
            used; the message says which. Nothing was scored.
        RegistrationError: A function or an option can't work.

    Examples:
        >>> import tempfile, guerdon
        >>> length = guerdon.reward(lambda text: float(len(text)), name="length")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     journal = guerdon.Journal(folder, texts=True)
        ...     with guerdon.Dispatcher([length], journal=journal) as dispatcher:
        ...         _ = dispatcher.score(completions=["a", "abc"], num_generations=2)
        ...     guerdon.replay(folder, [length]).functions["length"]["diff"]["moved"]
        0
    """
    if isinstance(runs, str):
        raise DataError("runs= takes a list of names.")
    if not 0 <= number(tolerance) < float("inf"):
        raise DataError(f"tolerance={tolerance!r}: expected a number of at least 0.")
    shown = integer(moved)
    if shown is None or shown < 0:
        raise DataError(f"moved={moved!r}: expected a whole number of at least 0.")
    first, last = (None, None) if steps is None else steps
    if first is not None and last is not None and first > last:
        raise DataError(f"steps={steps!r}: the first step is behind the last.")
    if isinstance(rewards, (str, bytes)):
        raise RegistrationError("rewards= takes functions or a Dispatcher; a file is for the command, guerdon replay.")
    dispatcher = rewards if isinstance(rewards, Dispatcher) else Dispatcher(rewards)
    return ReplayRun(
        journal,
        dispatcher,
        Selection(None if runs is None else frozenset(runs), first, last),
        out=out,
        tolerance=float(tolerance),
        moved=shown,
        workers=whole("workers", workers),
        chunk=whole("chunk", chunk) or 1,
    ).run()

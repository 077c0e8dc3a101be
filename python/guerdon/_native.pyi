"""The compiled engine. Private: `guerdon` is the public face of everything here.

Arrays have one row per sample in submission order and one column per reward function unless a shape says otherwise.
Times are seconds unless a name ends in ``_ns``; ``_ns`` stamps are CLOCK_MONOTONIC.
"""

from collections.abc import Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

__version__: str

@final
class FunctionConfig:
    """What the scheduler and the lanes must know of one reward function."""

    def __new__(
        cls,
        name: str,
        *,
        lane: str,
        shape: str,
        timeout: float,
        grace: float = 0.5,
        setup_timeout: float = 300.0,
        deadline: float | None = None,
        retries: int = 0,
        concurrency: int | None = None,
        isolation: str = "worker",
        pinned: bool = False,
        finish: bool = False,
        loop: str | None = None,
        on_failure: str | float = "nan",
    ) -> FunctionConfig: ...

@final
class Engine:
    """Scheduler, lanes and workers of one dispatcher."""

    def __new__(
        cls, functions: Sequence[FunctionConfig], *, workers: int, python: str, worker_dir: str, shipment: bytes | None
    ) -> Engine: ...
    @property
    def lanes(self) -> Lanes:
        """What the Python threads of the thread and asyncio lanes hold on to (`guerdon._lanes`)."""

    def submit(
        self,
        columns: Sequence[list[object] | Const],
        uses: Sequence[Use],
        *,
        samples: int,
        num_generations: int,
        budget: float | None = None,
    ) -> Batch:
        """Start scoring and return at once.

        Args:
            columns: The data; each a list of ``samples`` values or one `Const`.
            uses: For each function which columns its calls get.
            samples: Number of samples, ``P * G``.
            num_generations: ``G``.
            budget: Seconds that the whole batch may take.

        Raises:
            TypeError: A value for a worker can't be pickled; ``args`` are (message, column, sample or None).
        """

    def close(self, timeout: float = 5.0) -> bool:
        """End everything; True when all workers and lane threads are gone in time. Open batches become `cancelled`."""

    @property
    def closed(self) -> bool: ...
    def stats(self) -> dict[str, int]:
        """Counters since start: ``workers``, ``worker_restarts``, ``kills``, ``abandoned_threads``, ``late_outcomes``, ``open_batches``."""

    def worker_pids(self) -> list[int]: ...

@final
class Const:
    """A column with the same value for every sample (``trainer_state``)."""

    def __new__(cls, value: object) -> Const: ...

@final
class Use:
    """Which columns one function's calls get: ``names`` as keywords, or by position when None (sample shape only)."""

    def __new__(
        cls,
        names: Sequence[str] | None,
        columns: Sequence[int],
        finish_names: Sequence[str] = (),
        finish_columns: Sequence[int] = (),
    ) -> Use: ...

@final
class Batch:
    """A batch in flight or finished. All methods may be called from any thread."""

    @property
    def samples(self) -> int: ...
    @property
    def num_generations(self) -> int: ...
    @property
    def done(self) -> bool: ...
    def fileno(self) -> int:
        """A descriptor that is readable from the end of the batch on."""

    def groups_fileno(self) -> int:
        """A descriptor that is readable while a completed group was not handed out yet, and once all were."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the batch is done, the GIL released; signals are handled. False when `timeout` seconds passed first."""

    def next_group(self, timeout: float | None = None) -> int | None:
        """The next completed group, each exactly once, in order of completion; waits. None when all were handed out.

        Raises:
            TimeoutError: `timeout` seconds passed first. ``timeout=0`` polls.
        """

    def cancel(self, reason: str) -> None: ...
    def rewards(self) -> NDArray[np.float32]:
        """``[P, G, F]`` after each function's ``on_failure``; NaN where there is no number. Done batches only."""

    def status(self) -> NDArray[np.uint8]:
        """``[P, G, F]``."""

    def attempts(self) -> NDArray[np.uint16]: ...
    def queue_s(self) -> NDArray[np.float64]: ...
    def run_s(self) -> NDArray[np.float64]: ...
    def group(self, index: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        """Rewards and status ``[G, F]`` of one completed group."""

    def failures(self) -> list[tuple[int, int, int, str, str | None, int, float, float]]:
        """Of every cell that failed, in order: (sample, function, status, reason, traceback, attempts, queue_s, run_s).

        The failures stand here whatever ``on_failure`` made of their value.
        """

    def records(self, function: int) -> list[tuple[int, bytes]]:
        """(first sample of the call, JSON) of what a function recorded, in sample order."""

    def timings(self, function: int) -> dict[str, float]:
        """``run_p50_s``, ``run_p90_s``, ``run_p99_s``, ``run_max_s``, ``run_total_s``, ``queue_p50_s``, ``queue_p99_s``, ``queue_max_s``, ``retries``."""

    @property
    def elapsed_s(self) -> float:
        """From submission to the last outcome (so far, while running)."""

@final
class ThreadQueue:
    """Work for the thread lane's Python threads; every method that waits does so without the GIL."""

    def next_thread(self) -> int | None:
        """Wait until a thread is wanted and return the function it is for; None when the engine closes. Called by one keeper thread."""

    def next_chunk(self, function: int) -> Chunk | None:
        """Wait for calls of `function`; None when this thread must end."""

@final
class Chunk:
    """Calls handed to one thread. Iterating claims one call at a time and stamps its start; the loop must settle each before the next."""

    @property
    def finish(self) -> bool:
        """These are finish_group calls."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """Keyword names of the values (of finish_group's, if `finish`); None = positional."""

    @property
    def rows(self) -> list[tuple[object, ...]]:
        """Argument tuples of the batch's samples for this function, indexed by sample (sample shape)."""

    def __iter__(self) -> Chunk: ...
    def __next__(self) -> int:
        """The next sample (or first sample of the next call); StopIteration when the chunk is done or was taken back."""

    def arguments(self, first: int) -> tuple[list[object], ...]:
        """The lists for a group or batch call that starts at sample `first`."""

    def scores(self, first: int) -> list[float | None]: ...
    def ok(self, value: float) -> bool:
        """Settle the claimed call; False when its thread was abandoned meanwhile and must end."""

    def cell(self, status: int, value: float, records: bytes | None) -> bool: ...
    def cells(self, cells: Sequence[tuple[int, float, str | None]], records: bytes | None) -> bool: ...
    def fail(self, reason: str, traceback: str | None, retryable: bool, retry_after: float | None) -> bool: ...
    def setup_failed(self, reason: str, traceback: str | None) -> None: ...

@final
class LoopQueue:
    """Work for one event loop; the details stand beside the loop in `guerdon._lanes.aio`."""

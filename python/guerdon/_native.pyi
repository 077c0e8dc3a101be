"""The compiled engine. Private: `guerdon` is the public face of everything here.

Arrays have one row per sample in submission order and one column per reward function unless a shape
says otherwise. Times are seconds unless a name ends in ``_ns``; ``_ns`` stamps are CLOCK_MONOTONIC.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from guerdon._http.body import Piece
from guerdon.parse import Parse

__version__: str

_Phase: TypeAlias = Literal["call", "arguments", "setup", "loading"]

def available_parallelism() -> int: ...
def read_score(parse: Parse, text: str, *, cut: bool = False, reasoning: str | None = None) -> float | None: ...

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
        total_timeout: float | None = None,
        retries: int = 0,
        concurrency: int | None = None,
        isolation: str = "worker",
        pinned: bool = False,
        finish: bool = False,
        loop: str | None = None,
        on_failure: str | float = ...,  # "nan"
        memory_limit: int | None = None,
        max_output: int | None = None,
        env: Sequence[tuple[bytes, bytes]] = ...,  # none
        limit: tuple[float | None, float | None, float | None, tuple[str, str] | None] | None = None,
        http: HttpConfig | None = None,
        gather: tuple[int, float, bool] | None = None,
        run_if: tuple[Sequence[tuple[int, str, float]], float | None] | None = None,
        pure: bool = False,
        cache: tuple[OutcomeStore, bytes] | None = None,
        compound: CompoundConfig | None = None,
        follows: tuple[int, int] | None = None,
    ) -> FunctionConfig: ...

@final
class CompoundConfig:
    """How the calls of a function of the http lane become several requests."""

    def __new__(
        cls,
        kind: str,
        *,
        members: Sequence[tuple[str, HttpConfig, int, Sequence[int]]],
        rules: Sequence[
            tuple[
                float,
                int,
                int | None,
                tuple[float | None, float | None, float | None, tuple[str, str] | None] | None,
            ]
        ],
        votes: int = 1,
        reduce: str = "mean",
        weights: Sequence[float] = ...,  # all the same
        needed: int = 1,
        min_agreement: float | None = None,
        columns: int = 1,
        schedule: str = "circular",
        rounds: int | None = None,
        score: str = "win_rate",
        both_orders: bool = True,
    ) -> CompoundConfig:
        """See `guerdon._http.compound`.

        Args:
            members: Name, requests, which of the rules they obey, columns of the second sample.
            rules: Timeout in seconds, retries, requests in flight, limit.

        Raises:
            ValueError: A word or a number can't be.
        """

@final
class HttpConfig:
    """How the calls of a function of the http lane become requests."""

    def __new__(
        cls,
        url: str,
        *,
        body: Sequence[Piece],
        api: str,
        parse: Parse | None = None,
        path: str = "",
        headers: Sequence[tuple[str, str]] = ...,  # none
        key: str | None = None,
        http2: bool = False,
        authorities: bytes | None = None,
        only_these_authorities: bool = False,
        client_certificate: tuple[bytes, bytes] | None = None,
        tariff: Tariff | None = None,
        endpoints: Sequence[tuple[str, float]] = ...,  # the one at `url`
        resolve_all: bool = False,
        hedge_after: tuple[str, float] | None = None,
        hedge_share: float = 0.05,
    ) -> HttpConfig:
        """See `guerdon._http.plan.Plan`.

        Args:
            body: Pieces of JSON; ``("text", column)`` stands within a text, ``("value", column)``
            for one, a list for each sample. path: To the numbers, with ``api="score"`` or
            ``"rewards"``. authorities: Certificates in PEM. client_certificate: A certificate and
            its key, both PEM. endpoints: All URLs with their weights, `url` first. hedge_after:
            ``("quantile", 0.95)`` or ``("seconds", 2.0)``.

        Raises:
            ValueError: It can't work; the message says why.
        """

@final
class OutcomeStore:
    """A cache folder, opened; what is wrong with it is warned of by the engine that uses it."""

    def __new__(cls, folder: str, size: int) -> OutcomeStore: ...

@final
class SpendingCap:
    """A cap on what requests cost."""

    def __new__(cls, max_cost: float, *, whose: str, shared: tuple[str, bool] | None = None) -> SpendingCap:
        """A cap that functions count toward.

        Args:
            whose: For messages: "of the dispatcher".
            shared: The file of all processes that share it, and whether what was spent counts even
            when none of them lives.
        """

@final
class Tariff:
    """What a function's requests cost, and how much they may."""

    def __new__(
        cls,
        *,
        price: tuple[float, float, float] | None = None,  # input, cached, output
        caps: Sequence[SpendingCap] = ...,  # none
        keep_answers: bool = False,
    ) -> Tariff: ...

@final
class Engine:
    """Scheduler, lanes and workers of one dispatcher."""

    def __new__(
        cls,
        functions: Sequence[FunctionConfig],
        *,
        workers: int,
        python: str,
        worker_dir: str,
        serialized_functions: bytes | None,
        environment: Sequence[tuple[bytes, bytes]],
        recycle: tuple[int | None, float | None, int | None],
    ) -> Engine:
        """An engine that starts nothing yet.

        Args:
            functions: The functions, in the order of the columns.
            workers: Workers of the process lane.
            python: Their interpreter.
            worker_dir: The folder of their code.
            serialized_functions: What they load.
            environment: All of their environment.
            recycle: Calls, seconds and resident bytes after which one is replaced.
        """

    @property
    def lanes(self) -> Lanes:
        """What the Python threads of the thread and asyncio lanes hold on to (`guerdon._lanes`)."""

    def submit(
        self,
        columns: Sequence[list[object] | Constant],
        uses: Sequence[FunctionColumns],
        *,
        samples: int,
        num_generations: int,
        held: list[Batch],
        dumps: Callable[[object], bytes],
        batch_timeout: float | None = None,
        group_quorum: int | None = None,
        group_timeout: float | None = None,
    ) -> Batch:
        """Start scoring and return at once.

        Args:
            columns: The data; each a list of ``samples`` values, which nobody changes any more, or
            one `Constant`. uses: For each function which columns its calls get. samples: Number of
            samples, ``P * G``. num_generations: ``G``. held: The batch is appended before this
            returns: a signal handler that raises then finds it there. dumps: Pickles what workers
            get, apart from texts. batch_timeout: Seconds that the whole batch may take.
            group_quorum: Finished samples with which a group is delivered; the others are
            cancelled. group_timeout: Seconds after which a group is delivered; what has not ended
            then times out.

        Raises:
            TypeError: A value for a worker can't be pickled; ``args`` are (message, column, sample
            or None).
        """

    def open(
        self,
        *,
        num_generations: int,
        held: list[Batch],
        batch_timeout: float | None = None,
        group_quorum: int | None = None,
        group_timeout: float | None = None,
        max_pending: int | None = None,
    ) -> Batch:
        """Take on an open batch (`Batch.add`), without samples; arguments as for `submit`.

        Args:
            max_pending: Samples in full groups that are not complete, from which on there is no
            room (`Batch.has_room`).
        """

    def close(self, timeout: float = 5.0) -> bool:
        """End everything; open batches become `cancelled`.

        True when all workers and lane threads are gone in time; else it goes on in the background.
        """

    @property
    def closed(self) -> bool: ...
    def stats(self) -> dict[str, int]:
        """Counters since start.

        ``workers``, ``worker_restarts``, ``worker_loads``, ``kills``, ``abandoned_threads``,
        ``late_outcomes``, ``open_batches``; with cache folders ``cache_bytes`` and
        ``cache_dropped``.
        """

    def call_counts(self) -> list[tuple[int, int, int]]:
        """Per function since the start, in samples: got the outcome of an identical call, found in
        a cache folder, looked up in vain."""

    def usage(self) -> list[dict[str, float]]:
        """What each function used since start, as `Batch.usage`."""

    def worker_pids(self) -> list[int]: ...
    def inspect_workers(self, timeout: float) -> list[WorkerSnapshot]:
        """The calls in worker processes; waits up to `timeout` seconds for their stacks."""

    def inspect_threads(self) -> list[ThreadSnapshot]:
        """The calls on threads of the thread lane; does not wait."""

    def inspect_loops(self) -> list[LoopSnapshot]:
        """The calls on event loops; does not wait."""

    def inspect_requests(self) -> list[RequestSnapshot]:
        """The requests on their way; does not wait."""

    def endpoints(self, function: int, member: int) -> list[EndpointSnapshot]:
        """The endpoints of a function's member, 0 of one that has no others; none where no requests
        are sent."""

    def set_endpoints(self, function: int, member: int, endpoints: Sequence[tuple[str, float]]) -> None:
        """Replace the endpoints of a function's member, each with its weight.

        Raises:
            ValueError: One of them can't be used.
        """

    def open_cells(self) -> list[int]:
        """Cells without an outcome in all open batches, per function."""

@final
class Constant:
    """A column with the same value for every sample (``trainer_state``)."""

    def __new__(cls, value: object) -> Constant: ...

@final
class FunctionColumns:
    """Which columns one function's calls get.

    ``names`` are keywords; None means by position (sample shape only).
    """

    def __new__(
        cls,
        names: Sequence[str] | None,
        columns: Sequence[int],
        finish_names: Sequence[str] = ...,  # none
        finish_columns: Sequence[int] = ...,  # none
        tokens: Sequence[float] | None = None,  # of each sample
    ) -> FunctionColumns: ...

@final
class Batch:
    """A batch in flight or finished. All methods may be called from any thread."""

    @property
    def samples(self) -> int:
        """Places of all groups; of an open batch, so far."""

    @property
    def num_generations(self) -> int: ...
    @property
    def open(self) -> bool:
        """Whether samples can still be added."""

    def add(
        self,
        columns: Sequence[list[object] | Constant],
        uses: Sequence[FunctionColumns],
        *,
        count: int,
        dumps: Callable[[object], bytes],
        group: int | None = None,
        samples: list[int] | None = None,
    ) -> list[int]:
        """Add samples to an open batch.

        They get these indexes, the free ones of this group, or the lowest that are free.

        Returns:
            The place of each sample.

        Raises:
            ValueError: There is no such place; nothing was added. RuntimeError: It takes no more
            samples. TypeError: A value for a worker can't be pickled; ``args`` are (message,
            column, sample or None).
        """

    @property
    def has_room(self) -> bool:
        """Whether fewer samples are pending than ``max_pending``, or the batch is finished."""

    def room_fileno(self) -> int | None:
        """A descriptor that is readable while there is room; None where there always is."""

    def wait_for_room(self) -> None:
        """Wait until there is room, the GIL released; signals are handled."""

    def finish(self) -> None:
        """Take no more samples.

        Raises:
            ValueError: A group lacks samples; the batch stays open.
        """

    @property
    def done(self) -> bool: ...
    def fileno(self) -> int:
        """A descriptor that is readable from the end of the batch on."""

    def groups_fileno(self) -> int:
        """Readable while a completed group was not handed out, and once all were."""

    def apart(self) -> Batch:
        """The same batch to read its result from: without descriptors, so not to be waited for."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the batch is done, the GIL released; signals are handled.

        False when `timeout` seconds passed first.
        """

    def next_group(self, timeout: float | None = None) -> int | None:
        """The next completed group, each exactly once; waits. None when all were handed out.

        Raises:
            TimeoutError: `timeout` seconds passed first. ``timeout=0`` polls.
        """

    def cancel(self, reason: str) -> None: ...
    def release(self) -> None:
        """Let the columns of a done batch go, which a result that is kept does not need.

        Does nothing before.
        """

    def rewards(self) -> NDArray[np.float32]:
        """``[P, G, F]`` after each function's ``on_failure``; NaN where there is no number.

        Done batches only.
        """

    def status(self) -> NDArray[np.uint8]:
        """``[P, G, F]``."""

    def attempts(self) -> NDArray[np.uint16]: ...
    def queue_s(self) -> NDArray[np.float64]: ...
    def run_s(self) -> NDArray[np.float64]: ...
    def group(self, index: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        """Rewards and status ``[G, F]`` of one completed group."""

    def failures(self) -> list[tuple[int, int, int, str, str | None, int, float, float]]:
        """Every cell that failed, in order.

        (sample, function, status, reason, traceback, attempts, queue_s, run_s)

        The failures stand here whatever ``on_failure`` made of their value.
        """

    def records(self, function: int) -> list[tuple[int, list[int], bytes]]:
        """What a function recorded, in sample order.

        (first sample of the call, all of them if they were gathered, JSON)
        """

    def usage(self, function: int) -> dict[str, float] | None:
        """What the calls of a function used, retries and losers included; None if nothing was
        reported.

        ``requests``, ``unknown``, ``prompt_tokens``, ``cached_tokens``, ``completion_tokens``,
        ``reasoning_tokens``, ``cost``.
        """

    def extra(self, function: int) -> list[tuple[int, str, Any]]:
        """Named values that the lane reported, in sample order: None, a float, a str, or a list of
        them.

        Of one name and sample the last one counts.
        """

    def timings(self, function: int) -> dict[str, float]:
        """Seconds and counts by name.

        ``run_p50_s``, ``run_p90_s``, ``run_p99_s``, ``run_max_s``, ``run_total_s``,
        ``queue_p50_s``, ``queue_p99_s``, ``queue_max_s``, ``retries``, ``deferrals``, ``excused``.
        """

    @property
    def elapsed_s(self) -> float:
        """From submission to the last outcome (so far, while running)."""

@final
class CallSnapshot:
    """A call in flight at a moment, as far as it is of one batch."""

    @property
    def function(self) -> int: ...
    @property
    def batch(self) -> int:
        """The batch's number, from 1."""

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Its samples, as (first, end) of each run of neighbours."""

    @property
    def phase(self) -> _Phase: ...
    @property
    def attempt(self) -> int: ...
    @property
    def age_s(self) -> float: ...

@final
class WorkerSnapshot:
    """A call in a worker process."""

    @property
    def call(self) -> CallSnapshot: ...
    @property
    def pid(self) -> int: ...
    @property
    def stack(self) -> str | None: ...
    @property
    def no_stack(self) -> str | None:
        """Why there is no stack."""

@final
class ThreadSnapshot:
    """A call on a thread of the thread lane."""

    @property
    def call(self) -> CallSnapshot: ...
    @property
    def thread(self) -> int:
        """Its number."""

    @property
    def ident(self) -> int:
        """As `threading` identifies it."""

@final
class LoopSnapshot:
    """A call on an event loop, or the ``setup()`` before it."""

    @property
    def call(self) -> CallSnapshot: ...
    @property
    def index(self) -> int: ...
    @property
    def generation(self) -> int: ...
    @property
    def frame(self) -> int: ...
    @property
    def number(self) -> int:
        """The call's index in its frame."""

@final
class EndpointSnapshot:
    """An endpoint of a function of the http lane."""

    @property
    def url(self) -> str: ...
    @property
    def address(self) -> str | None: ...
    @property
    def weight(self) -> float: ...
    @property
    def breaker(self) -> Literal["closed", "open", "half-open"]: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def answered(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def p50_s(self) -> float | None: ...

@final
class RequestSnapshot:
    """A request on its way."""

    @property
    def call(self) -> CallSnapshot: ...
    @property
    def server(self) -> str: ...

@final
class StartThread:
    """Start a thread; one that can't be started drops its slot."""

    @property
    def slot(self) -> ThreadSlot: ...

@final
class StartLoop:
    """Start an event loop."""

    @property
    def index(self) -> int: ...
    @property
    def generation(self) -> int: ...
    @property
    def queue(self) -> LoopQueue | None:
        """None if the loop is not wanted any more."""

@final
class ThreadAbandoned:
    """Warn that a thread was abandoned in a call; ``count`` of the function are now."""

    @property
    def function(self) -> int: ...
    @property
    def count(self) -> int: ...

@final
class ReadStack:
    """Read the stack of a thread, and give it to `Lanes.set_stack`: its call is out of time."""

    @property
    def thread(self) -> int: ...
    @property
    def ident(self) -> int: ...

@final
class LoopBlocked:
    """Find out what blocks an event loop, and warn."""

    @property
    def index(self) -> int: ...
    @property
    def generation(self) -> int: ...

@final
class LoopWasBlocked:
    """Warn that a call of this function blocked its loop, and is over now."""

    @property
    def index(self) -> int: ...
    @property
    def generation(self) -> int: ...
    @property
    def function(self) -> int: ...

@final
class CacheTrouble:
    """Warn of a cache folder that can't be used, or only in part."""

    @property
    def folder(self) -> str: ...
    @property
    def reason(self) -> str: ...

@final
class EndpointWarning:
    """Warn of a function's endpoint: what of, and the last failure's reason."""

    @property
    def function(self) -> int: ...
    @property
    def kind(self) -> Literal["breaker_open", "hangs", "retry_after"]: ...
    @property
    def retry_after(self) -> float: ...
    @property
    def reason(self) -> str: ...

@final
class TooFewDescriptors:
    """Warn that endpoints came for whose connections there are too few file descriptors."""

    @property
    def reason(self) -> str: ...

_SupervisorRequest: TypeAlias = (
    StartThread
    | StartLoop
    | ThreadAbandoned
    | ReadStack
    | LoopBlocked
    | LoopWasBlocked
    | EndpointWarning
    | TooFewDescriptors
    | CacheTrouble
    | list[object]
)

@final
class Lanes:
    """Where the Python threads of the lanes get their work.

    Methods that wait do so without the GIL.
    """

    def next_request(self) -> _SupervisorRequest | None:
        """Wait for a request to the thread supervisor; None when the lanes are closed."""

    def set_stack(self, thread: int, stack: str) -> None:
        """The stack of a thread that was asked for it, as a traceback shows it."""

    def loop_functions(self, index: int) -> list[int]: ...
    def loop_name(self, index: int) -> str: ...

@final
class ThreadSlot:
    """The place of one thread of the thread lane. Dropping it ends the thread for the engine."""

    @property
    def function(self) -> int: ...
    @property
    def thread(self) -> int:
        """The thread's number."""

    def next_frame(self, ident: int) -> ThreadFrame | None:
        """Wait for calls without the GIL; None when this thread must end."""

    def leave(self, reason: str | None = None, traceback: str | None = None) -> bool:
        """The thread is about to end, because of an exception if there is a reason.

        True if it must call the function's ``close()`` first.
        """

    def end(self) -> None:
        """The thread has ended: its last call here."""

@final
class FrameView:
    """What a frame's calls are made of, on every lane of this process. It outlives the frame."""

    @property
    def function(self) -> int: ...
    @property
    def kind(self) -> Literal["sample", "gathered", "group", "batch", "finish"]: ...
    @property
    def calls(self) -> int:
        """Number of calls."""

    @property
    def first(self) -> int | None:
        """The first sample of all, if each call takes one and they follow one another."""

    @property
    def firsts(self) -> bytes:
        """The first sample of each call, 8 bytes each, where `first` is None."""

    @property
    def samples(self) -> int:
        """Samples of the batch."""

    @property
    def size(self) -> int:
        """Samples of one call."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """Keyword names of the values; None: by position."""

    @property
    def columns(self) -> list[tuple[bool, Any]]:
        """(is constant, value or list) of each argument."""

    def columns_of(self, slice: int) -> list[tuple[bool, Any]]:
        """`columns` for the samples of one batch in a call on gathered ones."""

    @property
    def rows(self) -> list[tuple[object, ...]] | None:
        """Argument tuples of an open batch, one a sample; None where its values were released."""

@final
class ThreadFrame:
    """Calls in the hands of one thread, in order. `start` and all that end a call start the next.

    They return how many calls are passed over before that one; None: there is none.
    """

    @property
    def view(self) -> FrameView: ...
    @property
    def setup(self) -> bool:
        """Run the function's ``setup()`` first, and report how that went."""

    def setup_done(self) -> None: ...
    def setup_failed(self, reason: str, traceback: str | None) -> None: ...
    def scores(self) -> bytes:
        """Scores of the group in hand as doubles, NaN where there is none."""

    def is_open(self) -> bool:
        """Whether the call in hand still counts; once it does not, its values may be gone."""

    def gathered(self) -> bytes:
        """The samples of a gathered call, 8 bytes each, without those that count no more.

        The upper four bytes are the number of the batch's slice.
        """

    def start(self) -> int | None: ...
    def used(self, tokens: float) -> None: ...
    def ok(self, value: float) -> int | None: ...
    def cell(self, status: int, value: float, records: bytes | None) -> int | None: ...
    def cells(self, statuses: bytes, values: bytes, wrong: list[str], records: bytes | None) -> int | None:
        """A status and a double for each sample, and a string for each that is no reward."""

    def fail(
        self, reason: str, traceback: str | None, retryable: bool, retry_after: float | None, answer: int | None
    ) -> int | None: ...

@final
class Beat:
    """When an event loop is to look at its calls again."""

    @property
    def nap_s(self) -> float | None:
        """None: nothing is in flight."""

    @property
    def overdue(self) -> bool:
        """`LoopQueue.overdue` has calls."""

@final
class OverdueCall:
    """A call for its event loop to cancel."""

    @property
    def function(self) -> int: ...
    @property
    def frame(self) -> int: ...
    @property
    def call(self) -> int: ...
    @property
    def ended(self) -> bool:
        """It ignored its cancellation: it has its outcome, without its coroutine."""

@final
class OverdueCalls:
    def __iter__(self) -> OverdueCalls: ...
    def __next__(self) -> OverdueCall: ...

@final
class LoopQueue:
    """Work for one event loop; for the loop's own thread."""

    def fileno(self) -> int:
        """Readable while there is news."""

    def drain(self) -> None:
        """Take the wake-up; to be called first."""

    def take(self) -> LoopFrame | None:
        """The next frame that arrived."""

    @property
    def ended(self) -> bool:
        """The loop must end: the engine closes, or another loop took over."""

    def beat(self) -> Beat:
        """Show that the loop turns."""

    def overdue(self) -> OverdueCalls:
        """The calls to cancel, and those that ignored it; each is told once."""

    def turned(self) -> None:
        """The loop has turned, as it was asked to report (`Turn`)."""

    def setup_begins(self, function: int) -> None: ...
    def setup_ends(self, function: int) -> None: ...
    def explain_block(self) -> bool:
        """Whether the loop is blocked and nobody has warned of it yet. From now on somebody has."""

    def not_started(self, reason: str) -> None:
        """The loop could not be started: its last call here."""

    def loop_ended(self) -> None:
        """The loop has ended: its last call here."""

@final
class Turn:
    """What comes, now and then, with the next call of a `LoopFrame`, or before it."""

    @property
    def call(self) -> int | None:
        """The call that has begun; None: the loop is to turn before the next one."""

    @property
    def long(self) -> bool:
        """The runner has run calls since the last turn: others go first."""

    @property
    def report(self) -> bool:
        """`LoopQueue.turned` is to be called when the loop turns next."""

@final
class LoopFrame:
    """Calls in the hands of an event loop. `start` and all that end a call start the next.

    They return its index, None if there is none, or a `Turn`.
    """

    @property
    def id(self) -> int: ...
    @property
    def view(self) -> FrameView: ...
    def scores(self, call: int) -> bytes: ...
    def setup_failed(self, reason: str, traceback: str | None) -> None: ...
    def is_open(self, call: int) -> bool:
        """Whether a call still counts; once it does not, its values may be gone."""

    def gathered(self, call: int) -> bytes:
        """As `ThreadFrame.gathered`."""

    def start(self) -> int | Turn | None: ...
    def used(self, tokens: float) -> None: ...
    def ok(self, call: int, value: float) -> int | Turn | None: ...
    def cell(self, call: int, status: int, value: float, records: bytes | None) -> int | Turn | None: ...
    def cells(
        self, call: int, statuses: bytes, values: bytes, wrong: list[str], records: bytes | None
    ) -> int | Turn | None: ...
    def fail(
        self,
        call: int,
        reason: str,
        traceback: str | None,
        retryable: bool,
        retry_after: float | None,
        answer: int | None,
    ) -> int | Turn | None: ...

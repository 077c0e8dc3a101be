"""The compiled engine. Private: `guerdon` is the public face of everything here.

Arrays have one row per sample in submission order and one column per reward function unless a shape
says otherwise. Times are seconds unless a name ends in ``_ns``; ``_ns`` stamps are CLOCK_MONOTONIC.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypedDict, final, type_check_only

import numpy as np
from numpy.typing import NDArray

from guerdon.parse import Parse

__version__: str

_Phase: TypeAlias = Literal["call", "arguments", "setup", "loading"]

def available_parallelism() -> int: ...
def read_score(parse: Parse, text: str, *, cut: bool = False, reasoning: str | None = None) -> float | None: ...

@final
class Fence:
    """The fences that keep a child with a program under test from everything else."""

    def __new__(cls, rules: Mapping[str, object]) -> Fence:
        """Prepares it, and enters name spaces where that is allowed."""

    def needs_fork(self) -> bool:
        """Whether this process has to fork, and its child to call `finish` and go on."""

    def finish(self) -> None: ...
    def layers(self) -> dict[str, tuple[bool, str]]:
        """Returns for each layer whether it holds, and a remark."""

    def folder(self) -> Path | None:
        """The folder that children may write to."""

    def clear_folder(self) -> None:
        """Makes it as it was mounted, and empty; no child may run."""

    def shares_tasks(self) -> bool:
        """Whether the kernel counts tasks of others as those of children."""

    def leave_room_for_tasks(self, others: int) -> None:
        """Lets children have so many more, which are those of others."""

    def before_fork(self) -> None: ...
    def after_fork(self) -> None:
        """In the parent, after each fork, also where it failed."""

    def enter(self, keep: list[int], alone: bool) -> None:
        """In the child: puts up all fences, and closes all descriptors but these. With `alone` it
        may start no process, though others may."""

def check_http(config: Mapping[str, Any]) -> None:
    """Checks the dict of `guerdon._lanes.http.plan.Plan.config`.

    Raises:
        ValueError: Such requests can't be made; the message says why.
    """

@final
class KeyRequests:
    """Requests for an API key that a function gives, until they are closed or the function of the
    http lane has ended."""

    def __new__(cls) -> KeyRequests: ...
    def close(self) -> None: ...
    def next(self) -> bool:
        """Waits for a request; False at the end."""

    def answer(self, key: str | None, why: str = ...) -> None:
        """Answers that request with a key, or with the reason why there is none."""

@final
class ProgramQuestions:
    """Questions about programs that a sandbox runs, until they are closed or the function of the
    http lane has ended."""

    def __new__(cls) -> ProgramQuestions: ...
    def close(self) -> None: ...
    def next(self) -> tuple[str | None, Any, tuple[str, int, float, str, str] | None, ProgramAnswer] | None:
        """Waits for a question: the values of a new program, as JSON, or the program that an answer
        had, its last run, and the place for the answer. None at the end. Several threads may wait.

        A run is its end (``SandboxRun`` of ``rewards/code/remote``), exit status, seconds, standard
        output and standard error.
        """

@final
class ProgramAnswer:
    """The place for the answer to one question."""

    def send(self, program: object, body: str, name: str) -> None:
        """Answers with a request, and what it is called in reasons."""

    def judged(self, score: float, passed: float, cases: float, reason: str) -> None:
        """Answers with a score."""

    def fail(self, reason: str) -> None:
        """Answers with the reason why there is no score."""

@final
class Kernel:
    """A native reward function."""

    def __new__(cls, spec: str, columns: Sequence[str]) -> Kernel:
        """Made of a JSON object: its name as ``kernel``, and all its options.

        Args:
            columns: Names of the columns that it gets, in order.

        Raises:
            ValueError: It can't work; the message says why.
        """

    def scores(self, columns: Sequence[tuple[str, list[Any]]], timeout: float | None = None) -> list[float | None]:
        """The score of each sample; a column is its kind, "text" or "made", and its texts.

        Raises what a signal's handler raises.

        Args:
            timeout: Seconds that a sample may take.

        Raises:
            ValueError: ``(why, sample)``: that sample can't be scored.
        """

def math_decision(gold: str, answer: str, *, reward: bool, strict: bool = False) -> bool | Literal["no gold"] | None:
    """Returns whether an answer is the gold one; None where math-verify must say.

    Args:
        reward: As TRL's ``accuracy_reward`` reads both; else as math-verify does by default.
        strict: Not where math-verify is lax.

    Returns:
        ``"no gold"``: the gold text has no answer in it.
    """

def metric_families() -> list[tuple[str, Literal["counter", "gauge", "histogram"], list[str], str]]:
    """Every metric: its name, kind, labels and meaning."""

def hold_sockets() -> None:
    """Before a fork, on the thread that forks: no socket of a server is opened or closed from now
    on."""

def release_sockets() -> None:
    """After a fork, in the parent, on the thread that has forked."""

def close_inherited_sockets() -> None:
    """After a fork, in the child: close its copies of the parent's sockets. Does nothing
    elsewhere."""

@final
class Link:
    """One end of the connection between a driver and an agent: it carries bytes."""

    def take(self, timeout: float, *, linger: float = 0.0, enough: int = 0) -> bytes | None:
        """What to send next; waits up to `timeout` seconds. None: nothing yet.

        What does not hurry waits up to `linger` seconds for more, until there are `enough` bytes.

        Raises:
            ConnectionError: There will be nothing any more.
        """

    def take_pieces(self, timeout: float, size: int, *, linger: float = 0.0, enough: int = 0) -> list[bytes] | None:
        """The same, cut in pieces of `size` bytes at most."""

    def deliver(self, *pieces: bytes | bytearray | memoryview | NDArray[np.uint8]) -> None:
        """A message of the other end has come, in pieces; it is copied."""

    def lost(self, reason: str, *, innocent: bool = False) -> None:
        """The connection is gone; only the first time counts.

        Args:
            reason: What may stand after "node X was lost: ".
            innocent: No call can be to blame: the node was preempted, or left.
        """

    @property
    def closed(self) -> bool:
        """Whether the engine is done with it, or it is lost."""

    @property
    def name(self) -> str:
        """Who is at the other end."""

@final
class Carrier:
    """Carries the messages of a link over a socket, to another process of this host."""

    def wait(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds for the end of the connection; whether it has ended."""

    def close_inherited(self) -> None:
        """In a forked child: closes its copy of the socket."""

def carry(
    link: Link,
    socket: int,
    *,
    process: int,
    handle: int | None = None,
    patience: float | None = None,
    ended: int | None = None,
) -> Carrier:
    """Carries the messages of a link over a connected socket until either end is done.

    Args:
        socket: The descriptor, which is taken over.
        process: The process at the other end: its end is the link's loss.
        handle: A pidfd of it, which is taken over; None: it is opened by its number.
        patience: After so many seconds in which it does not answer it is killed; None: it is not
            asked.
        ended: A descriptor to close at the end of the connection; taken over.
    """

def reap_child(process: int) -> None:
    """Takes a child process off the table of processes when it has ended."""

@type_check_only
class NodeState(TypedDict):
    """A node at one moment."""

    name: str
    state: Literal["connecting", "ready", "draining", "lost"]
    slots: int
    """Its workers."""
    frames: int
    calls: int
    bytes: int
    ended: int
    """Calls that it has ended."""
    reason: str | None
    """Why it was lost."""
    stats: dict[str, int]
    """Counters of its workers, as last reported."""

@final
class Agent:
    """The lanes of this process, run by drivers elsewhere."""

    def __new__(cls, config: Mapping[str, Any]) -> Agent:
        """An agent that starts nothing yet.

        Args:
            config: The ``functions`` of the drivers, in their order, none of the http lane; the
                ``digest`` that tells them from others (32 bytes); ``workers`` as for `Engine`.
        """

    @property
    def lanes(self) -> Lanes:
        """What the Python threads of the thread and asyncio lanes hold on to."""

    def warn(self, what: str) -> None:
        """Has a driver say what the lanes' Python threads warn of."""

    def connect(self, peer: str) -> Link:
        """A driver has come: this end of the link to it. When that is lost, what the driver had
        here ends."""

    def close(self, timeout: float = 5.0) -> bool:
        """Ends the workers and all links; whether that was done in time."""

    def stats(self) -> dict[str, int]:
        """Frames that have not ended, and what the workers did."""

    def worker_pids(self) -> list[int]: ...

@final
class Engine:
    """Scheduler, lanes and workers of one dispatcher."""

    def __new__(
        cls,
        config: Mapping[str, Any],
        *,
        encode: Callable[[list[object]], list[str | None]] | None,
        callbacks: Sequence[KeyRequests | ProgramQuestions],
    ) -> Engine:
        """An engine that starts nothing yet.

        Args:
            config: Plain values, which the package has checked, in the form of ``EngineSettings``
                in ``rust/bindings/src/engine_parts.rs``. Times are seconds, and paths bytes.
            encode: Makes JSON of all values but strings, for a journal.
            callbacks: Questions that threads answer, to which functions refer by position.

        Raises:
            RuntimeError: The configuration has another form: a mistake of the package.
            ValueError: A judge or kernel can't work; the message says why.
            OSError: The journal's thread can't be started, or the timeline's file not be written.
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
        dumps: Callable[[list[list[object]]], tuple[list[bytes], list[str]]],
        batch_timeout: float | None = None,
        group_quorum: int | None = None,
        group_timeout: float | None = None,
        cancellable: bool = False,
        step: int | None = None,
        journal: Sequence[int | None] = ...,  # none
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
            then times out. cancellable: `Batch.cancel_group` may be called. step: The training
            step that it belongs to. journal: Indexes of the columns that the journal keeps, in its
            order; None for one that there is not.

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
        step: int | None = None,
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
        ``cache_dropped``; with a journal ``journal_rows``, ``journal_dropped`` and
        ``journal_bytes``.
        """

    def journal_troubles(self) -> list[str]:
        """What went wrong with the journal while the engine was closed; each is told once."""

    def call_counts(self) -> list[tuple[int, int, int]]:
        """Per function since the start, in samples: got the outcome of an identical call, found in
        a cache folder, looked up in vain."""

    def usage(self) -> list[dict[str, float]]:
        """What each function used since start, as `Batch.usage`."""

    def metric_samples(self) -> list[tuple[str, list[tuple[str, str]], float]]:
        """The metrics now: name, labels and value; of a histogram its ``_sum`` and ``_count``."""

    def metrics_text(self, open_metrics: bool) -> str:
        """The metrics now, as text: in OpenMetrics, or in Prometheus' own format."""

    def places(self) -> dict[Literal["metrics", "state", "trace"], tuple[str | None, str | None]]:
        """The address of the metrics, the socket of the live state and the file of the timeline,
        each beside the reason why there is none; both None where nobody asked for it."""

    def worker_pids(self) -> list[int]: ...
    def in_flight(self) -> list[BatchCall]:
        """The calls in this process, the oldest first; does not wait."""

    def in_flight_elsewhere(self, timeout: float) -> list[BatchCall]:
        """The calls in worker processes and on nodes; waits up to `timeout` seconds for their
        stacks."""

    def add_node(self, name: str) -> Link:
        """A node has come, or comes soon; its calls begin when its agent answers.

        Returns:
            This end of the link to its agent.

        Raises:
            ValueError: There is a node of this name.
            RuntimeError: No function of this engine runs on nodes.
        """

    def drain_node(self, name: str) -> None:
        """Gives a node no more calls, takes back what it has not begun, and then closes its link.

        Raises:
            ValueError: There is no such node.
        """

    def nodes(self) -> list[NodeState]:
        """The nodes; those that were lost, until one of their name comes."""

    def endpoints(self, function: int) -> list[EndpointState]:
        """The endpoints of a function; none where no requests are sent."""

    def set_endpoints(self, function: int, endpoints: Sequence[tuple[str, float]]) -> None:
        """Replace the endpoints of a function, each with its weight.

        Raises:
            ValueError: One of them can't be used.
        """

    def open_cells(self) -> list[int]:
        """Cells without an outcome in all open batches, per function."""

    def limit_waits(self) -> list[float | None]:
        """Seconds for which the limit of each function, or the other side of its calls, lets
        nothing through; None where that is not so, or not known."""

def recover_journal(folder: str) -> tuple[int, int, int, int, list[tuple[str, str]]]:
    """Make Parquet files of the streams in a folder whose writers died.

    Returns:
        Parts and rows that were recovered, streams that broke off within a message, the bytes of
        those messages, and which streams stay as they are, and why.

    Raises:
        OSError: The folder can't be read.
    """

@final
class Constant:
    """A column with the same value for every sample (``trainer_state``)."""

    def __new__(cls, value: object) -> Constant: ...

@final
class FunctionColumns:
    """Columns of one function's calls.

    ``names`` are keywords; None means by position (sample shape only).
    """

    def __new__(
        cls,
        names: Sequence[str] | None,
        columns: Sequence[int],
        finish_names: Sequence[str] = ...,  # none
        finish_columns: Sequence[int] = ...,  # none
        tokens: Sequence[float] | None = None,  # of each sample
        second: Sequence[int] = ...,  # positions of the second sample's, in calls on pairs
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
        dumps: Callable[[list[list[object]]], tuple[list[bytes], list[str]]],
        group: int | None = None,
        samples: list[int] | None = None,
        journal: Sequence[int | None] = ...,  # none
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

    def result(self) -> BatchResult:
        """The outcomes of a done batch."""

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
    def cancel_group(self, group: int, reason: str) -> None:
        """Give one group up, in a batch that was submitted as ``cancellable``."""

    def release(self) -> None:
        """Let the columns of a done batch go, which a result that is kept does not need.

        Does nothing before.
        """

    def group(self, index: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        """Rewards and status ``[G, F]`` of one completed group."""

    def reasons(self, sample: int, /) -> list[tuple[int, str]]:
        """The functions that failed on one sample, and why."""

@final
class BatchResult:
    """The outcomes of a done batch, without its columns and descriptors."""

    def rewards(self) -> NDArray[np.float32]:
        """``[P, G, F]`` after each function's ``on_failure``; NaN where there is no number.

        Done batches only.
        """

    def status(self) -> NDArray[np.uint8]:
        """``[P, G, F]``."""

    def attempts(self) -> NDArray[np.uint16]: ...
    def queue_s(self) -> NDArray[np.float64]: ...
    def run_s(self) -> NDArray[np.float64]: ...
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

    @property
    def tail_s(self) -> float:
        """From the last sample's arrival to the last outcome (so far, while running)."""

@type_check_only
class BatchCall(TypedDict):
    """A call in flight at a moment, as far as it is of one batch."""

    function: int
    batch: int
    """The batch's number, from 1."""
    spans: list[tuple[int, int]]
    """Its samples, as (first, end) of each run of neighbours."""
    phase: _Phase
    attempt: int
    age_s: float
    place: str
    """Name of the executor that has it."""
    pid: int | None
    """Id of the worker process that has it."""
    thread: tuple[int, int] | None
    """On a thread of the thread lane: its number, and how `threading` identifies it."""
    on_loop: tuple[int, int, int, int] | None
    """On an event loop, or in the ``setup()`` before it: index and generation of the loop, the
        call's frame and its number in that."""
    node: str | None
    """On another node: which."""
    stack: str | None
    """None of a thread's or a loop's call, too: Python reads those."""
    no_stack: str | None
    """The reason, where a stack is missing."""

@type_check_only
class EndpointState(TypedDict):
    """An endpoint of a function of the http lane."""

    url: str
    address: str | None
    weight: float
    breaker: Literal["closed", "open", "half-open"]
    in_flight: int
    answered: int
    failed: int
    deferred: int
    p50_s: float | None

@final
class StartThread:
    """Start a thread; one that can't be started drops its slot."""

    slot: Final[ThreadSlot]

@final
class StartLoop:
    """Start an event loop."""

    index: Final[int]
    generation: Final[int]
    queue: Final[LoopQueue | None]
    """None if the loop is not wanted any more."""

@final
class ThreadAbandoned:
    """Warn that a thread was abandoned in a call; ``count`` of the function are now."""

    function: Final[int]
    count: Final[int]

@final
class ReadStack:
    """Read the stack of a thread, and give it to `Lanes.set_stack`: its call is out of time."""

    thread: Final[int]
    ident: Final[int]

@final
class ReadStacks:
    """Read the stacks of threads and of calls on event loops, and give them to
    `Lanes.set_stacks`."""

    number: Final[int]
    threads: Final[list[int]]
    """Identifiers of `threading`."""
    loops: Final[list[tuple[int, int, int, tuple[int, int] | None]]]
    """Index and generation of the loop, the function, frame and number of the call; None
        instead of those in ``setup()``."""

@final
class InspectLoop:
    """Inspect an event loop, and warn of a call that blocks it."""

    index: Final[int]
    generation: Final[int]

@final
class LoopWasBlocked:
    """Warn that a call of this function blocked its loop, and is over now."""

    index: Final[int]
    generation: Final[int]
    function: Final[int]

@final
class Trouble:
    """Warn of trouble."""

    source: Final[
        Literal["breaker_open", "hangs", "retry_after", "throttled", "descriptors", "cache", "journal", "trace", "node"]
    ]
    """The part of the engine that has it."""
    place: Final[str]
    """The function, folder or file that has it; empty of the others."""
    why: Final[str]
    """The reason."""

@final
class StallReport:
    """Report that no call has ended for so long."""

    seconds: Final[float]

_SupervisorRequest: TypeAlias = (
    StartThread
    | StartLoop
    | ThreadAbandoned
    | ReadStack
    | InspectLoop
    | LoopWasBlocked
    | ReadStacks
    | StallReport
    | Trouble
    | list[object]
)

@final
class Lanes:
    """Queue from which the Python threads of the lanes take their work.

    Methods that wait do so without the GIL.
    """

    def next_request(self) -> _SupervisorRequest | None:
        """Wait for a request to the thread supervisor; None when the lanes are closed."""

    def set_stack(self, thread: int, stack: str) -> None:
        """The stack of a thread that was asked for it, as a traceback shows it."""

    def set_stacks(self, number: int, stacks: list[str]) -> None:
        """The stacks that a `ReadStacks` asked for, of its threads and then of its loops' calls; ""
        where there is none."""

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
    """Arguments of a frame's calls, on every lane of this process. It outlives the frame."""

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
    def encoded(self) -> bytes | None:
        """The values as `guerdon._worker.wire` reads them, where they are no Python values; then
        there are no `names`, `columns` and `rows`."""

    @property
    def encoded_names(self) -> bytes | None:
        """Of these: keyword names, each ended by a NUL; None: by position."""

    @property
    def places(self) -> bytes:
        """Of these: the samples in order, 8 bytes each, with the number of the slice in the upper
        half."""

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
        """A status and a double for each sample, and a string for each that is not a reward."""

    def fail(
        self, reason: str, traceback: str | None, retryable: bool, retry_after: float | None, answer: int | None
    ) -> int | None: ...

@final
class Beat:
    """When an event loop is to look at its calls again."""

    nap_s: Final[float | None]
    """None: nothing is in flight."""
    overdue: Final[bool]
    """`LoopQueue.overdue` has calls."""

@final
class OverdueCall:
    """A call for its event loop to cancel."""

    function: Final[int]
    frame: Final[int]
    call: Final[int]
    ended: Final[bool]
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
    @property
    def blocked(self) -> bool:
        """True while the loop is blocked and nobody has warned of it."""

    def explain_block(self) -> bool:
        """Returns `blocked`, and counts the block as warned of."""

    def not_started(self, reason: str) -> None:
        """The loop could not be started: its last call here."""

    def loop_ended(self) -> None:
        """The loop has ended: its last call here."""

@final
class Turn:
    """Comes, now and then, with the next call of a `LoopFrame`, or before it."""

    call: Final[int | None]
    """The call that has begun; None: the loop is to turn before the next one."""
    long: Final[bool]
    """The runner has run calls since the last turn: others go first."""
    report: Final[bool]
    """`LoopQueue.turned` is to be called when the loop turns next."""

@final
class LoopFrame:
    """Calls in the hands of an event loop. `start` and all that end a call start the next.

    They return its index, None if no call is left, or a `Turn`.
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

def trace_summary(path: str) -> str:
    """Read a timeline's file.

    Returns:
        What it holds, as JSON.

    Raises:
        OSError: The file can't be read.
        ValueError: The file is not a timeline.
    """

"""``reward`` and ``group_reward``: giving a function its contract and its policy.

Decorating starts nothing and imports nothing heavy; options are checked on the spot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar, overload

from guerdon._functions.cache_folder import Cache
from guerdon._functions.conditions import RunIf
from guerdon._functions.options import BATCH_WAIT, Options
from guerdon._functions.reward_function import RewardFunction
from guerdon._functions.spec import Shape
from guerdon._functions.stateful import StatefulReward
from guerdon._functions.votes import Votes
from guerdon.errors import raised_at_the_call, with_known_options
from guerdon.limits import Limit

if TYPE_CHECKING:
    from typing import Unpack

__all__ = ["RewardFunction", "StatefulReward", "group_reward", "reward"]

P = ParamSpec("P")
R = TypeVar("R")


class _GroupOptions(TypedDict, total=False):
    """The keywords of ``group_reward``, for the type checker."""

    name: str | None
    lane: str | None
    loop: str | None
    timeout: float | None
    grace: float
    total_timeout: float | None
    setup_timeout: float
    retries: int
    limit: Limit | None
    on_failure: str | float
    max_failure_rate: float | None
    isolation: str
    memory_limit: int | str | None
    max_output: int | str | None
    env: Iterable[str]
    node: str | None


class _RewardOptions(_GroupOptions, total=False):
    """The keywords of ``reward``, for the type checker."""

    batch_size: int | None
    batch_wait: float
    rowwise: bool
    run_if: RunIf | None
    otherwise: float | None
    pure: bool | None
    cache: str | PathLike[str] | Cache | None
    cache_version: str | None
    votes: int | Votes


@overload
def reward(function: StatefulReward, **options: Unpack[_RewardOptions]) -> RewardFunction[..., Any]: ...
@overload
def reward(function: Callable[P, R], **options: Unpack[_RewardOptions]) -> RewardFunction[P, R]: ...
@overload
def reward(
    function: None = None, **options: Unpack[_RewardOptions]
) -> Callable[[Callable[P, R]], RewardFunction[P, R]]: ...
@raised_at_the_call
@partial(with_known_options, values=(Limit, Votes))
def reward(
    function: Callable[..., Any] | StatefulReward | None = None,
    *,
    name: str | None = None,
    lane: str | None = None,
    loop: str | None = None,
    timeout: float | str | None = "default",
    grace: float = 0.5,
    total_timeout: float | None = None,
    setup_timeout: float = 300.0,
    retries: int = 0,
    limit: Limit | None = None,
    on_failure: str | float = "nan",
    max_failure_rate: float | None = None,
    isolation: str = "worker",
    memory_limit: int | str | None = None,
    max_output: int | str | None = None,
    env: Iterable[str] = (),
    node: str | None = None,
    batch_size: int | None = None,
    batch_wait: float = BATCH_WAIT,
    rowwise: bool = False,
    run_if: RunIf | None = None,
    otherwise: float | None = None,
    pure: bool | None = None,
    cache: str | PathLike[str] | Cache | None = None,
    cache_version: str | None = None,
    votes: int | Votes = 1,
) -> Any:
    """Make a per-sample reward function: as a decorator, with or without options, or as a call.

    The function is called once per sample with the values that its parameters name: ``prompt``,
    ``completion``, ``completion_ids``, ``text`` (the last assistant message as plain text, or the
    completion itself), ``environment``, ``trainer_state``, any column of the dataset, and ``**row``
    for the dataset columns not named otherwise; a parameter with a default gets its column if there
    is one. ``log_extra(column, values)`` and ``log_metric(name, value)`` record into the trainer's
    log. It returns a number, None (it abstains: no opinion, not a failure), or a dict with
    ``"score"`` whose other fields are logged. One that names ``completions`` is called once per
    batch, as TRL calls it, unless ``rowwise`` or ``batch_size`` is given. It may be async, a
    lambda, closure, partial, bound method, callable object or a `guerdon.StatefulReward` instance.

    Args:
        function: The function, when not used as ``@reward(…)``.
        name: Its name in metrics, files and messages, unique in a dispatcher. Default: the
            function's own.
        lane: Where it runs. ``"process"`` (default for sync functions): a worker process that can
            be killed. ``"thread"``: in this process; trusted, waits or is cheap; can't be killed;
            the default for a sync function that names ``environment``. ``"asyncio"`` (default for
            async functions): on an event loop of this process. An async function on another lane is
            awaited where it runs, one call at a time.
        loop: Name of the event loop, shared by all functions that give the same (asyncio lane).
            Default: one of its own.
        timeout: Seconds that one attempt may run, from the start of the user's code. Default: 30
            for calls on samples, 600 for a call on the whole batch; None: no timeout.
        grace: Seconds between the exception raised in a worker at ``timeout`` and the kill; 0 kills
            at once.
        total_timeout: Seconds that a call may take, queueing and retries included. Default: none.
        setup_timeout: Seconds that ``setup()`` of a `guerdon.StatefulReward` may take.
        retries: Attempts after the first, for an error, timeout or crash; not for a returned value
            that is not a reward, nor for an answer with status 400, 401, 403, 404 or 422.
        limit: ``Limit(concurrency=, rpm=, tpm=, key=)``: calls in flight at once, rates, and the
            endpoint that shares them. Default: 256 in flight on the asyncio lane, 8 on the thread
            lane, the number of workers on the process lane.
        on_failure: What a failed cell becomes. ``"nan"``: it stays failed and makes its sample
            unscorable. ``"abstain"``: as if the function had returned None. A number: that value,
            the status stays failed. ``"raise"``: the batch raises `RewardFailureError` when it is
            complete. All count as failures in metrics and limits.
        max_failure_rate: Failed share of its samples (0 to 1) above which a batch raises
            `RewardFailureError`.
            Default: the dispatcher's.
        isolation: ``"worker"``: workers are used again, state may leak between samples. ``"call"``:
            a fresh fork for each call (process lane).
        memory_limit: Private memory that its calls may hold in a worker, in bytes or as a text like
            ``"2GB"`` or ``"512MiB"`` (process lane). A call that wants more gets a MemoryError: an
            `error` that names the limit.
        max_output: Bytes that one call may print, in C code too, as for ``memory_limit`` (process
            lane). A call that passes it is ended: an `error`, not tried again. Such calls go to
            workers one at a time.
        env: Names of variables of the trainer's environment that it may see although they look like
            secrets (process lane): ``env=["OPENAI_API_KEY"]``. It finds them from ``setup()`` on,
            not yet when its module is imported.
        node: ``"any"``: with a ``cluster=``, its calls run on the threads and event loops of the
            nodes' agents too, not in this process alone (docs/cluster.md): it is sent there as a
            process function is, with ``setup()`` once on each node. Default: it stays in this
            process. Thread and asyncio lanes only; functions that take environments stay.
        batch_size: The function is called with lists, of up to so many samples at a time, under the
            names of `group_reward` (``completions``, ``texts``, …), and returns one value a sample
            (docs/options.md). Timeout and limit are then those of such a call. A call that fails
            is split in two, and so on, until the sample to blame is alone. 1 to 65536.
        batch_wait: Seconds that a sample waits for others to share its call, in a batch to which
            samples are still added (`Dispatcher.stream`); batches that were submitted whole never
            wait. 0 to 60.
        rowwise: The function obeys TRL's batch contract (lists and keyword columns) and its rows
            are independent: call it with lists of one row, so that each sample has its own
            deadline; with ``batch_size``, of up to so many.
        run_if: Conditions on other functions of the dispatcher, by name: ``{"correct": "< 1"}``.
            It is called only for samples on which all hold (docs/options.md); the others are
            `skipped`, no failure and no abstention. Functions of single samples only.
        otherwise: What a skipped sample gets: a number, or None, no reward from this function.
        pure: Equal values give equal outcomes, so identical calls in flight at the same time are
            made once and share the outcome (docs/options.md).
        cache: Folder in which its outcomes are kept, or a `guerdon.Cache`, which gives it a size
            (1 GiB by default): a call with equal values is not made again, by a later run or
            another process either; it is pure then. Failures are not kept.
        cache_version: A text that changes with the function, in place of a look at its code: where
            what it uses can't be seen there, a model's file say.
        votes: Calls a sample, made into one score, the median; or a `guerdon.Votes`. Timeout,
            retries and limit are those of one call.

    Returns: A `RewardFunction`, callable as the plain function; without ``function``, a decorator
        that makes one.

    Raises:
        RegistrationError: An option is wrong, or the signature is one that no batch can satisfy.

    Examples:
        >>> @reward(timeout=2.0)
        ... def correct(completion: str, answer: str) -> float:
        ...     return float(completion.strip() == answer)
        >>> correct("42 ", answer="42")
        1.0
        >>> reward(lambda text: float(len(text)), name="length", lane="thread")
        <reward function 'length': sample, thread lane, timeout 30 s>
        >>> @reward(lane="thread", node="any")  # in this process, or on any node of a cluster
        ... def rounded(completion: str) -> float:
        ...     return round(float(completion), 1)
        >>> from guerdon import Dispatcher
        >>> with Dispatcher([rounded]) as dispatcher:
        ...     print(dispatcher.score(completions=["0.52"]).rewards)
        [[[0.5]]]
    """
    options = Options(
        name=name,
        lane=lane,
        loop=loop,
        timeout=timeout,
        grace=grace,
        total_timeout=total_timeout,
        setup_timeout=setup_timeout,
        retries=retries,
        limit=limit,
        on_failure=on_failure,
        max_failure_rate=max_failure_rate,
        isolation=isolation,
        memory_limit=memory_limit,
        max_output=max_output,
        env=env,
        node=node,
        batch_size=batch_size,
        batch_wait=batch_wait,
        rowwise=rowwise,
        run_if=run_if,
        otherwise=otherwise,
        pure=pure,
        cache=cache,
        cache_version=cache_version,
        votes=votes,
    )
    return _decorate(function, options, "sample")


@overload
def group_reward(function: Callable[P, R], **options: Unpack[_GroupOptions]) -> RewardFunction[P, R]: ...
@overload
def group_reward(
    function: None = None, **options: Unpack[_GroupOptions]
) -> Callable[[Callable[P, R]], RewardFunction[P, R]]: ...
@raised_at_the_call
@partial(with_known_options, values=(Limit,))
def group_reward(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    lane: str | None = None,
    loop: str | None = None,
    timeout: float | str | None = "default",
    grace: float = 0.5,
    total_timeout: float | None = None,
    setup_timeout: float = 300.0,
    retries: int = 0,
    limit: Limit | None = None,
    on_failure: str | float = "nan",
    max_failure_rate: float | None = None,
    isolation: str = "worker",
    memory_limit: int | str | None = None,
    max_output: int | str | None = None,
    env: Iterable[str] = (),
    node: str | None = None,
    batch_size: None = None,
    run_if: None = None,
) -> Any:
    """Make a reward function that sees one whole group, the G completions of one prompt, in order.

    It is called by keyword with lists of length G: any of ``prompts``, ``completions``,
    ``completion_ids``, ``texts``, ``environments`` that it names, dataset columns by their own
    names, ``**columns`` for the dataset columns not named otherwise; and with ``trainer_state``,
    ``log_extra`` and ``log_metric`` if it names them. It returns a list of length G, numbers or
    None (abstained). One call is one group: its failure fails all G cells.

    Args:
        function: The function, when not used as ``@group_reward(…)``.
        name: As for `reward`, like all the others; ``timeout`` and ``retries`` are per group.
        timeout: Seconds that one attempt at one group may run. Default 600.
        batch_size: Refused, with what to do instead: a call is one group, whole.
        run_if: Refused likewise.

    Returns: A `RewardFunction`, callable as the plain function; without ``function``, a decorator
        that makes one.

    Raises:
        RegistrationError: As for `reward`; also for a `guerdon.StatefulReward`, whose
            ``finish_group`` is the way.

    Examples:
        >>> @group_reward
        ... def unlike_others(completions: list[str], **columns: object) -> list[float]:
        ...     return [1.0 / completions.count(completion) for completion in completions]
        >>> unlike_others(completions=["a", "b", "b", "c"])
        [1.0, 0.5, 0.5, 1.0]
    """
    options = Options(
        name=name,
        lane=lane,
        loop=loop,
        timeout=timeout,
        grace=grace,
        total_timeout=total_timeout,
        setup_timeout=setup_timeout,
        retries=retries,
        limit=limit,
        on_failure=on_failure,
        max_failure_rate=max_failure_rate,
        isolation=isolation,
        memory_limit=memory_limit,
        max_output=max_output,
        env=env,
        node=node,
        batch_size=batch_size,
        run_if=run_if,
    )
    return _decorate(function, options, "group")


def _decorate(function: Callable[..., Any] | StatefulReward | None, options: Options, shape: Shape) -> Any:
    if function is None:
        return raised_at_the_call(lambda decorated: RewardFunction(decorated, options, shape))
    return RewardFunction(function, options, shape)

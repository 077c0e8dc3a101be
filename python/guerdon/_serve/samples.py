"""The samples of a request, and what becomes of them.

- A sample that is asked for alone is scored with others that come together; a request with several
  is a separate batch, so that its groups are complete.
- An outcome without a reward has the status that says why: nothing is made up.
"""

from __future__ import annotations

import asyncio
import errno
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from guerdon._batch.columns import BATCH_OPTIONS, RECORDERS
from guerdon._batch.pending import PendingBatch
from guerdon._serve.errors import RequestError
from guerdon._serve.offload import run_owned
from guerdon.errors import ClosedError, DataError, GuerdonError, RewardFailureError
from guerdon.results.status import Status

if TYPE_CHECKING:
    from guerdon.dispatcher import Dispatcher
    from guerdon.results import RewardBatch

RESERVED = frozenset(("environment", "environments", "trainer_state", *BATCH_OPTIONS, *RECORDERS))
"""Names that can't be columns of a request: they are objects of the trainer's process."""

_SHORT_OF: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN))


@dataclass(frozen=True)
class Request:
    """Samples and options of one request.

    Attributes:
        completions: One a sample.
        prompts: The same; None without any.
        columns: One list a column.
        num_generations: Completions per prompt; None where the client does not say.
        alone: It is a single sample by its form, not a list of one.
        function: Whose rewards are asked for; None: the weighted total.
    """

    completions: Sequence[object]
    prompts: Sequence[object] | None = None
    columns: Mapping[str, Sequence[object]] = field(default_factory=dict)
    num_generations: int | None = None
    alone: bool = False
    function: str | None = None

    def __len__(self) -> int:
        return len(self.completions)


@dataclass(frozen=True)
class Outcome:
    """Outcome of a sample: of one function, or of all together.

    Attributes:
        reward: None where there is none.
        status: Of the total: ok, or why there is none.
        reason: Of a failure.
    """

    reward: float | None
    status: Status
    reason: str | None = None


async def score(dispatcher: Dispatcher, request: Request, *, big: bool = False) -> list[Outcome]:
    """The outcome of each sample; a big request is submitted on a thread, as a separate batch.

    Raises:
        RequestError: The samples can't be scored (400), or the server ends or is short of
            descriptors or memory (503).
    """
    if request.function is not None and request.function not in dispatcher.names:
        raise RequestError(400, f"there is no function {request.function!r:.80}: it has {', '.join(dispatcher.names)}.")
    try:
        if request.alone and not big:
            return await _score_one(dispatcher, request)
        return await _score_all(dispatcher, request, big=big)
    except DataError as error:
        raise RequestError(400, str(error)) from None
    except ClosedError:
        raise RequestError(503, "this server is shutting down: ask another one.", retry_after=1.0) from None
    except GuerdonError as error:
        raise RequestError(500, str(error)) from None
    except OSError as error:
        # The engine's own have no number; their text names the missing resource.
        if error.errno not in _SHORT_OF and not any(f"os error {number}" in str(error) for number in _SHORT_OF):
            raise
        raise RequestError(
            503, f"this server is short of resources ({error.strerror or error}): ask another one.", retry_after=2.0
        ) from None


async def _score_one(dispatcher: Dispatcher, request: Request) -> list[Outcome]:
    arguments: dict[str, Any] = {name: values[0] for name, values in request.columns.items()}
    if request.prompts is not None:
        arguments["prompt"] = request.prompts[0]
    arguments["completion"] = request.completions[0]
    found = await dispatcher._sample_scorer.result(dispatcher, arguments)
    cells = {
        name: Outcome(_number(found.rewards[name]), found.status[name], found.reasons.get(name))
        for name in dispatcher.names
    }
    return [_outcome(request.function, cells, found.total)]


async def _score_all(dispatcher: Dispatcher, request: Request, *, big: bool) -> list[Outcome]:
    try:
        columns: dict[str, Any] = dict(request.columns)
        samples: dict[str, Any] = {"completions": request.completions, "prompts": request.prompts, **columns}
        if big:
            batch = await _score_offloaded(
                partial(dispatcher.submit, num_generations=request.num_generations, **samples)
            )
        else:
            batch = await dispatcher.ascore(num_generations=request.num_generations, **samples)
    except RewardFailureError as error:
        if error.result is None:
            raise
        batch = error.result  # too many failures: each says so itself
    names, count = batch.functions, len(batch.functions)
    reasons = {(failure.function, failure.sample): failure.reason for failure in batch.failures()}
    rows = zip(
        batch.rewards.reshape(-1, count).tolist(),
        batch.status.reshape(-1, count).tolist(),
        batch.total.ravel().tolist(),
        strict=True,
    )
    outcomes = []
    for sample, (rewards, states, total) in enumerate(rows):
        cells = {
            name: Outcome(_number(value), Status(state), reasons.get((name, sample)))
            for name, value, state in zip(names, rewards, states, strict=True)
        }
        outcomes.append(_outcome(request.function, cells, total))
    return outcomes


async def _score_offloaded(submit: Callable[[], PendingBatch]) -> RewardBatch:
    pending = await run_owned(submit, PendingBatch.cancel)
    try:
        return await pending.aresult()
    except asyncio.CancelledError:
        pending.cancel()
        raise


def _outcome(function: str | None, cells: Mapping[str, Outcome], total: float) -> Outcome:
    if function is not None:
        return cells[function]
    if (number := _number(total)) is not None:
        return Outcome(number, Status.OK)
    for name, cell in cells.items():
        if cell.status.failed:
            return Outcome(None, cell.status, f"{name}: {cell.reason}" if len(cells) > 1 else cell.reason)
    skipped = all(cell.status == Status.SKIPPED for cell in cells.values())
    return Outcome(None, Status.SKIPPED if skipped else Status.ABSTAINED)


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None

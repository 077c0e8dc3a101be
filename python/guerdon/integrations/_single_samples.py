"""Shared parts of adapters for frameworks that score one sample a call, over
`Dispatcher.ascore_one`.

- A sample without a reward is None here; each framework's module has its form there.
- The first one is warned of, since frameworks log exceptions or swallow them; too many failures of
  a function raise, as they do in a batch.
- Synchronous callers, on any threads, wait for one event loop on a separate thread, so that their
  simultaneous samples are scored together.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Coroutine, Iterable, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from guerdon._batch.columns import BATCH_OPTIONS, COMPLETION_IDS, RECORDERS, TRAINER_STATE
from guerdon.dispatcher import Dispatcher
from guerdon.errors import DataError, GuerdonError, GuerdonWarning, RegistrationError, RewardFailureError
from guerdon.integrations._event_loop_thread import EventLoopThread
from guerdon.integrations.failure_rate import ResultFailureRate
from guerdon.results import SampleResult

T = TypeVar("T")

_FLOAT32_MAX: Final = 3.4028234663852886e38

# Names that `Dispatcher.ascore_one` and a batch's arguments take for themselves.
_RESERVED: Final = frozenset(
    (
        *("prompt", "prompts", "completion", "completions", "environment", "environments", "text"),
        *(COMPLETION_IDS, TRAINER_STATE, *BATCH_OPTIONS, *RECORDERS),
    )
)


@dataclass(frozen=True)
class FrameworkSample:
    """One sample as a framework hands it over.

    Attributes:
        completion: A text or a list of messages.
        prompt: The same; None where the framework does not give it.
        completion_ids: Token ids; None where the framework does not give them.
        columns: The dataset's fields; those whose name is one of the three above, or not a text,
            are left out.
    """

    completion: object
    prompt: object = None
    completion_ids: object = None
    columns: Mapping[Any, object] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments for `Dispatcher.ascore_one`."""
        given = {name: value for name, value in self.columns.items() if isinstance(name, str) and name not in _RESERVED}
        return {
            **given,
            "completion": self.completion,
            "prompt": self.prompt,
            "completion_ids": self.completion_ids,
        }


class SampleRewards:
    """The rewards of single samples for one framework.

    Args:
        dispatcher: Its functions work on single samples.
        framework: Its name, for messages.
        failure_value: The reward of a sample on which a function failed.
        raises: What an exception does to a sample, for the warning; without it there has to be a
            value.
        becomes: What becomes of a sample without a reward, for the warning.

    Raises:
        RegistrationError: A function of the dispatcher works on whole groups, or is a reward model,
            or `failure_value` is not finite.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        framework: str,
        failure_value: float | None,
        *,
        raises: str | None = None,
        becomes: str = "its reward becomes {value:g}",
    ) -> None:
        if failure_value is None and raises is not None:
            self.failure_value, self._becomes = None, raises
        else:
            self.failure_value = _checked_failure_value(failure_value)
            self._becomes = becomes.format(value=self.failure_value)
        if not isinstance(dispatcher, Dispatcher):
            raise RegistrationError(
                f"reward_function() for {framework} takes a dispatcher, not a {type(dispatcher).__name__}: "
                "guerdon.Dispatcher([function, ...])."
            )
        _check_functions(dispatcher, framework)
        self.dispatcher = dispatcher
        self._framework = framework
        self._failure_rate = ResultFailureRate([dispatcher])
        self._thread = EventLoopThread("guerdon-single-samples")
        # Written by whichever thread comes first: at worst a warning comes twice.
        self._warned_of: set[str] = set()

    async def reward(self, sample: FrameworkSample) -> float | None:
        """The weighted sum of the functions' rewards; None if there is none.

        Raises:
            DataError: The sample can't be scored: a function asks for a column that is not there.
            RewardFailureError: A function fails too often, or failed with ``on_failure="raise"``.
        """
        try:
            result = await self.dispatcher.ascore_one(**sample.arguments())
            self._failure_rate.add_one(result)
        except GuerdonError as error:
            can_not = f"a sample of {self._framework} can't be scored, and {self._framework} may only log that"
            self.warn_once("error", f"{can_not}: {error}")
            raise
        if result.total == result.total:
            return result.total
        self._report_failure(result)
        return None

    async def number(self, sample: FrameworkSample) -> float:
        """Does as `reward` for a framework that takes a number from every sample, or an exception
        for "no reward".

        Raises:
            RewardFailureError: There is none, and no `failure_value`.
        """
        reward = await self.reward(sample)
        if reward is not None:
            return reward
        if self.failure_value is None:
            raise RewardFailureError(
                "a sample has no reward: a reward function failed on it, or all abstained or were skipped (see the first "
                "warning)."
            )
        return self.failure_value

    async def rewards(self, samples: Iterable[FrameworkSample]) -> list[float | None]:
        """The rewards of several samples, scored together."""
        return list(await asyncio.gather(*map(self.reward, samples)))

    def numbers(self, samples: Iterable[FrameworkSample]) -> list[float]:
        """The numbers of several samples, scored together, for a synchronous caller."""

        read = list(samples)

        async def together() -> list[float]:
            return list(await asyncio.gather(*map(self.number, read)))

        return self.wait(together())

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine, for a synchronous caller on any thread."""
        return self._thread.run(coroutine)

    def warn_once(self, what: str, message: str) -> None:
        """Warns, of each `what` once."""
        if what not in self._warned_of:
            self._warned_of.add(what)
            warnings.warn(message, GuerdonWarning, stacklevel=3)

    def _report_failure(self, result: SampleResult) -> None:
        reasons = "; ".join(
            f"{name!r} {result.status[name].label}: {reason}" for name, reason in result.reasons.items()
        )
        self.warn_once(
            "failure",
            f"a sample of {self._framework} has no reward ({reasons or 'all functions abstained or were skipped'}); {self._becomes}. Further "
            "ones are not reported one by one: a function that fails on more than `max_failure_rate` of its last samples "
            "raises RewardFailureError.",
        )


def _checked_failure_value(value: object) -> float:
    """A finite number, as float32 too.

    Raises:
        RegistrationError: It is something else.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool) and -_FLOAT32_MAX <= value <= _FLOAT32_MAX:
        return float(value)
    raise RegistrationError(
        f"failure_value={value!r:.60}: expected a finite number (float32), the reward of a sample on which a function failed."
    )


def check_lengths(framework: str, **lists: Sized) -> None:
    """Returns whether lists of one call belong together.

    Raises:
        DataError: Their lengths differ.
    """
    if len({len(values) for values in lists.values()}) > 1:
        lengths = ", ".join(f"{name} {len(values)}" for name, values in lists.items())
        raise DataError(
            f"the lists of one call by {framework} need the same length, one entry a sample. They have: {lengths}."
        )


def _check_functions(dispatcher: Dispatcher, framework: str) -> None:
    if dispatcher.reward_models:
        raise RegistrationError(
            f"the dispatcher has the reward model {dispatcher.reward_models[0]}, which works with TRL only: {framework} "
            "gets functions alone."
        )
    grouped = dispatcher._submitter.group_function
    if grouped is not None:
        raise RegistrationError(
            f"reward function {grouped!r} works on whole groups, but {framework} hands out single samples: leave it out."
        )
    batch = [spec.name for spec in dispatcher._specs if spec.shape == "batch" and not spec.rowwise]
    if batch:
        warnings.warn(
            f"reward function {batch[0]!r} is called with the list of a whole batch, and {framework} hands out single "
            "samples: it gets those that come together. If its rows are independent, say so with guerdon.reward(function, "
            "rowwise=True); if not, its rewards depend on what comes together.",
            GuerdonWarning,
            stacklevel=4,
        )

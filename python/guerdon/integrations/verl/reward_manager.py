"""The class that verl makes in each of its reward workers, and asks for one response at a time.

verl's event loop never runs user code: it only waits for the dispatcher. Responses that come in one
moment are scored together; where a function works on whole groups, they are put together wherever
they arrived, and else only a failed one waits for the others of its prompt. Settings that can't
work are refused when verl makes its workers. A worker that is lost is started again, and its
responses come again.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator, Hashable, Sequence
from typing import Any, ClassVar, Final

import ray
from verl import DataProto
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase
from verl.experimental.reward_loop.reward_manager.registry import register

from guerdon._batch.coalescing import Coalescer
from guerdon.errors import DataError, GuerdonWarning, RewardFailureError
from guerdon.integrations.failure_rate import ResultFailureRate
from guerdon.integrations.verl import settings, worker_restarts
from guerdon.integrations.verl.answered_groups import Answer, AnsweredGroups
from guerdon.integrations.verl.groups import Groups
from guerdon.integrations.verl.origin import Origin
from guerdon.integrations.verl.reward_output import Place, ScoredBatch, has_reward, reward_output
from guerdon.integrations.verl.routing import WorkerRouting
from guerdon.integrations.verl.sample import Response, columns_of, has_split, own_size, read, step_of
from guerdon.integrations.verl.siblings import Siblings

__all__ = ["RewardManager"]

MOST_TOGETHER: Final = 64
"""Responses of one batch, of those that come in the same moment."""


class RewardManager(RewardManagerBase):  # type: ignore[misc] # verl has no types
    """Rewards through Guerdon in verl 0.9.

    Set ``reward.reward_manager.name=guerdon``; where verl's plugins are switched off
    (``VERL_USE_EXTERNAL_PLUGINS=none``), ``reward.reward_manager.source=importlib``,
    ``reward.reward_manager.name=RewardManager`` and
    ``reward.reward_manager.module.path=pkg://guerdon.integrations.verl``. The functions are those
    of ``+reward.reward_kwargs.dispatcher=module:attribute`` (or ``file.py:attribute``), else verl's
    own ``reward.custom_reward_function`` or default ``compute_score``.

    Raises:
        RegistrationError: The configuration can't work; the message names the key to set.
    """

    restarts_workers: ClassVar[bool] = True
    """verl's workers are made such that Ray starts them again; see `worker_restarts`."""

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        compute_score: Any = None,
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
    ) -> None:
        super().__init__(config, tokenizer, compute_score)
        fixed = {"reward_router_address": reward_router_address, "reward_model_tokenizer": reward_model_tokenizer}
        self._router = {} if reward_router_address is None else fixed
        self._settings = settings.read(config, compute_score, self._router, _nodes())
        self.dispatcher = self._settings.dispatcher
        self._failure_rate = ResultFailureRate([self.dispatcher])
        self._routing = WorkerRouting(self._settings.reward_workers)
        # A batch of verl's is a few of the engine's, and a slow response holds up few others.
        self._coalescer: Coalescer[Response, Place] = Coalescer(self._score_apart, MOST_TOGETHER)
        self._reported: set[str] = set()
        self._answered = AnsweredGroups(self._routing)
        self._groups = Groups(self._score_group, self._answers, self._settings.group_timeout)
        self._siblings = Siblings(self._coalescer.add, self._keep, self._settings.group_timeout)

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """The reward of one response.

        Returns:
            ``{"reward_score": float, "reward_extra_info": {…}}``. The extra info has each
            function's reward, the fields that functions returned or recorded, and
            ``guerdon_status``.

        Raises:
            DataError: A function asks for a field that verl's data lacks, or a group does not fill.
            RewardFailureError: The response has no reward and ``failed_reward`` is ``"raise"``, or
                a function fails too often.
        """
        lost = self._routing.lost_worker(data)
        if lost is not None:
            return self._answered.groups_of(lost)
        given = self._settings
        failed = given.failed
        if given.assumed and not self._knows_group(data):
            failed = "raise"
        if not given.grouped or (failed == "raise" and given.assumed):
            place = await self._coalescer.add(read(data, self.tokenizer))
            return self._output(place, failed, [place])
        origin = self._routing.origin(data)  # first: responses are numbered as they come
        key = self._key(data)
        if not self._routing.owns(key):
            return self._answered.received(key, await self._routing.send(key, origin, data))
        answer = await self._answered.find(key, origin)
        if answer is None:
            sample = read(data, self.tokenizer)
            size = own_size(data) or given.sizes[sample.validation]
            if self.dispatcher._submitter.group_function is None:
                place, group = await self._siblings.add(key, origin, sample, size)
                return self._output(place, failed, group)
            answer = await self._groups.add(key, origin, sample, size)
        return answer

    def _answers(self, key: Hashable, origins: list[Origin], scored: ScoredBatch) -> list[Answer]:
        """Those of a whole group, in order."""
        answers: list[Answer] = []
        group = [(scored, index) for index in range(len(origins))]
        for place in group:
            try:
                answers.append(self._output(place, self._settings.failed, group))
            except RewardFailureError as error:
                answers.append(error)
        return self._answered.add(key, origins, answers)

    def _keep(self, key: Hashable, places: dict[Origin, Place]) -> None:
        """Keeps the answers of responses that were scored one by one, for those that come again."""
        group = list(places.values())
        answers: list[Answer] = [
            self._output(place, self._settings.failed, [place] if has_reward(*place) else group) for place in group
        ]
        self._answered.add(key, list(places), answers)

    def _output(self, place: Place, failed: settings.Failed, group: Sequence[Place]) -> dict[str, Any]:
        given = self._settings
        scored, index = place
        output = reward_output(scored, index, failed, group, plain=given.plain, overlong=given.overlong)
        if not has_reward(scored, index):
            self._report_failure(scored, index, output["reward_score"])
        return output

    def _knows_group(self, data: DataProto) -> bool:
        """Returns whether the data says which responses belong together, and how many they are."""
        given = self._settings
        field = given.group_by if given.group_by not in data.non_tensor_batch else None
        if field is None and (given.sizes[0] == given.sizes[1] or has_split(data)):
            return True
        lacks = f"the field {field!r}" if field else "extra_info['split'], which tells training from validation"
        self._report(
            "groups",
            f"verl's data lacks {lacks}, so the responses to a prompt can't be put together: one on which a function fails "
            "will raise. Choose what it becomes: +reward.reward_kwargs.failed_reward=<a number>, raise or group_mean.",
        )
        return False

    def _report_failure(self, scored: ScoredBatch, index: int, score: float) -> None:
        why = [str(failure) for failure in scored.result.failures() if failure.sample == index]
        rule = "the mean of the others of its prompt" if self._settings.failed == "group_mean" else "failed_reward"
        self._report(
            "failure",
            f"a response has no reward ({'; '.join(why) or 'all functions abstained or were skipped'}) and gets {score:g}, {rule}. Further ones "
            "are not reported one by one: see guerdon_status; more than max_failure_rate of a function's last responses raise.",
        )

    def _report(self, what: str, message: str) -> None:
        if what not in self._reported:
            self._reported.add(what)
            warnings.warn(message, GuerdonWarning, stacklevel=3)

    async def _score_apart(self, samples: list[Response]) -> AsyncGenerator[tuple[int, Place], None]:
        scored = await self._score(samples, 1)
        for index in range(len(samples)):
            yield index, (scored, index)

    async def _score_group(self, samples: list[Response]) -> ScoredBatch:
        return await self._score(samples, len(samples))

    async def _score(self, samples: list[Response], group: int) -> ScoredBatch:
        """Scores responses, in groups of this size, however many fail: `ResultFailureRate` judges
        over several batches."""
        columns = {**columns_of(samples), "trainer_state": step_of(samples)}
        columns.update({name: [value] * len(samples) for name, value in self._router.items()})
        try:
            result = await self.dispatcher.ascore(num_generations=group, **columns)
        except RewardFailureError as error:
            if error.result is None:
                raise
            result = error.result
        self._failure_rate.add(result)
        overlong = self._settings.overlong
        tokens = [len(sample.completion_ids) for sample in samples]
        return ScoredBatch(result, [0.0 if overlong is None else overlong.penalty(count) for count in tokens])

    def _key(self, data: DataProto) -> Hashable:
        name = self._settings.group_by
        values = data.non_tensor_batch.get(name)
        if values is None:
            function = self.dispatcher._submitter.group_function
            what = f"reward function {function!r}" if function else "failed_reward=group_mean"
            raise DataError(
                f"{what} works on whole groups, and verl's data has no field {name!r} to tell them by. It has: "
                f"{', '.join(data.non_tensor_batch) or 'nothing'}. Set +reward.reward_kwargs.group_by=<field>."
            )
        key: Hashable = values[-1]
        return key


def _nodes() -> int:
    """Machines over which verl spreads its reward workers, which share the cores of each."""
    if not ray.is_initialized():
        return 1
    return sum(bool(node["Alive"]) and node["Resources"].get("CPU", 0) > 0 for node in ray.nodes())


worker_restarts.install()
# Not where verl loads this file by its path, as another class of the same name.
if __name__ == "guerdon.integrations.verl.reward_manager":
    register("guerdon")(RewardManager)

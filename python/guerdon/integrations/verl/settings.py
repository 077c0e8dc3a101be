"""Settings of the reward manager in verl's configuration, checked before the first response.

Settings that can't work are refused in each reward worker, with the key to set. Warned of or
refused is also a number of workers with which groups could wait forever, or contain copies. A
dispatcher keeps its own options; only a default number of worker processes is divided among verl's
reward workers.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from guerdon._engine.dispatcher_options import bound
from guerdon._system.cpu_count import usable_cores
from guerdon.dispatcher import Dispatcher
from guerdon.errors import GuerdonWarning, RegistrationError
from guerdon.integrations.verl import overlong
from guerdon.integrations.verl.compute_score import as_reward
from guerdon.profile.exit_codes import UsageError
from guerdon.profile.load_rewards import load

Failed = Literal["raise", "group_mean"] | float
"""The score of a response on which a function failed."""

_OWN: Final = ("dispatcher", "failed_reward", "group_by", "group_timeout", "options", "restarts")
_KNOWN: Final = (*_OWN, "max_resp_len", "overlong_buffer_cfg")
_WHERE: Final = "reward.reward_kwargs"
GROUP_TIMEOUT: Final = 600.0
RESTARTS: Final = 3
MAX_IN_FLIGHT: Final = 1000
"""Calls that Ray lets an asynchronous actor hold by default, as verl's does."""


@dataclass(frozen=True)
class Settings:
    """The settings of one reward worker.

    Attributes:
        dispatcher: Not started yet.
        plain: Its one function is verl's ``compute_score``: fields that it returns keep their
            names.
        failed: The score of a response on which a function failed.
        assumed: It was not chosen; it is ``"group_mean"`` where the data tells groups.
        overlong: The penalty of long responses; None without one.
        grouped: Responses are scored in whole groups.
        group_by: The field that is the same for the responses of one prompt.
        group_timeout: Seconds that a group may wait for its next response.
        sizes: Responses per prompt, in training and in validation.
        reward_workers: Reward workers of verl.
    """

    dispatcher: Dispatcher
    plain: bool
    failed: Failed
    assumed: bool
    overlong: overlong.Overlong | None
    grouped: bool
    group_by: str
    group_timeout: float
    sizes: tuple[int, int]
    reward_workers: int


def read(config: Any, compute_score: Callable[..., Any] | None, fixed: Mapping[str, Any], nodes: int) -> Settings:
    """The settings in verl's `config`.

    Args:
        config: verl's whole configuration, an OmegaConf ``DictConfig``.
        compute_score: What verl makes of ``reward.custom_reward_function``, or its own default.
        fixed: Further keyword arguments of ``compute_score``.
        nodes: Machines over which verl spreads its reward workers.

    Raises:
        RegistrationError: The configuration can't work.
    """
    given = _reward_kwargs(config)
    restarts(config)
    workers = _count("reward.num_workers", config.reward.num_workers)
    chosen = given.get("failed_reward")
    failed = _default_failed(config) if chosen is None else _failed(chosen)
    penalty = overlong.read(given)
    named = given.get("dispatcher")
    if named is not None:
        if given.get("options"):
            raise RegistrationError(
                f"{_WHERE}.options are for compute_score; set options of a dispatcher's functions where they are defined."
            )
        dispatcher = _loaded(str(named))
    else:
        dispatcher = Dispatcher([_compute_score(config, compute_score, fixed, given.get("options") or {})])
    _check_functions(config, dispatcher, named)
    if dispatcher.options["workers"] is None:
        dispatcher = dispatcher.replace(workers=max(1, usable_cores() // math.ceil(workers / max(1, nodes))))
    rollout = config.actor_rollout_ref.rollout
    size = dispatcher.options["num_generations"] or int(rollout.n)
    grouped = dispatcher._submitter.group_function is not None or failed == "group_mean"
    if grouped:
        _check_workers(config, workers, _responses(config))
    return Settings(
        dispatcher=dispatcher,
        plain=named is None,
        failed=failed,
        assumed=chosen is None and dispatcher._submitter.group_function is None,
        overlong=penalty,
        grouped=grouped,
        group_by=_field(given.get("group_by", "uid")),
        group_timeout=bound(f"{_WHERE}.group_timeout", given.get("group_timeout", GROUP_TIMEOUT)),
        sizes=(size, int(rollout.val_kwargs.n)),
        reward_workers=workers,
    )


def restarts(config: Any) -> int:
    """Returns how often a reward worker's call is repeated after the loss of the worker.

    Raises:
        RegistrationError: It is not a whole number.
    """
    given = _reward_kwargs(config).get("restarts", RESTARTS)
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    raise RegistrationError(f"{_WHERE}.restarts={given!r}: expected a whole number of at least 0.")


def _reward_kwargs(config: Any) -> dict[str, Any]:
    from omegaconf import OmegaConf

    kwargs = config.reward.get("reward_kwargs")
    if kwargs is not None and not OmegaConf.is_dict(kwargs):
        raise RegistrationError(f"{_WHERE}={kwargs!r}: expected settings by name, as in +{_WHERE}.failed_reward=0.")
    given: dict[str, Any] = {} if kwargs is None else dict(OmegaConf.to_container(kwargs, resolve=True))
    unknown = [name for name in given if name not in _KNOWN]
    if unknown:
        raise RegistrationError(f"{_WHERE}.{unknown[0]} is unknown to guerdon. Its settings are {', '.join(_KNOWN)}.")
    return given


def _loaded(named: str) -> Dispatcher:
    try:
        return load(named.strip())
    except (UsageError, RegistrationError) as error:
        raise RegistrationError(f"{_WHERE}.dispatcher={named!r}: {error}") from error


def _compute_score(
    config: Any, compute_score: Callable[..., Any] | None, fixed: Mapping[str, Any], options: Mapping[str, Any]
) -> Any:
    """verl's ``compute_score`` as a reward function.

    The user's own is loaded again, under a name that workers can import; verl's wrapper of it would
    bring all of verl into each worker.
    """
    custom = config.reward.get("custom_reward_function") or {}
    path = custom.get("path")
    if path:
        place = str(path).removeprefix("file://")
        if place.startswith("pkg://"):
            place = place.removeprefix("pkg://").replace("/", ".")
        compute_score = _function(place, str(custom.get("name")))
        more = custom.get("reward_kwargs") or {}
        if not isinstance(more, Mapping):
            raise RegistrationError(
                f"reward.custom_reward_function.reward_kwargs={more!r}: expected arguments by name."
            )
        fixed = {**fixed, **dict(more)}
    if compute_score is None:
        raise RegistrationError(
            f"there is no reward function: set +{_WHERE}.dispatcher=module:attribute (or file.py:attribute), or "
            "reward.custom_reward_function.path."
        )
    try:
        return as_reward(compute_score, fixed, options)
    except TypeError as error:
        raise RegistrationError(f"{_WHERE}.options: {error}") from error


def _function(place: str, name: str) -> Callable[..., Any]:
    from guerdon.profile.load_rewards import find

    try:
        found: Callable[..., Any] = find(place, name)
    except UsageError as error:
        raise RegistrationError(f"reward.custom_reward_function: {error}") from error
    if not callable(found):
        raise RegistrationError(f"reward.custom_reward_function: {name!r} is a {type(found).__name__}, not a function.")
    return found


def _check_functions(config: Any, dispatcher: Dispatcher, named: object) -> None:
    batch = [spec.name for spec in dispatcher._specs if spec.shape == "batch" and not spec.rowwise]
    if batch:
        raise RegistrationError(
            f"reward function {batch[0]!r} works on a whole batch, but verl hands out single responses. "
            "Have it take one completion, decorated with @guerdon.reward; if it is verl's compute_score, set reward.custom_reward_function.path and name "
            f"instead of {_WHERE}.dispatcher."
        )
    if dispatcher.reward_models:
        raise RegistrationError(
            f"the dispatcher has the reward model {dispatcher.reward_models[0]}, which works with TRL only: remove it, and use "
            "verl's own with reward.reward_model.enable=True."
        )
    custom = (config.reward.get("custom_reward_function") or {}).get("path")
    model = bool(config.reward.reward_model.enable)
    if model and not custom:
        raise RegistrationError(
            "with reward.reward_model.enable=True and no reward.custom_reward_function.path, verl calls its model and never a "
            f"reward manager. Set the path, of a function that calls the model{' (or of any: the dispatcher is used)' if named else ''}."
        )
    if named and custom and not model:
        raise RegistrationError(
            f"both {_WHERE}.dispatcher and reward.custom_reward_function.path are set: leave one out. A dispatcher can hold the "
            "function too: guerdon.reward(compute_score) takes verl's arguments as columns."
        )


def _check_workers(config: Any, workers: int, responses: int) -> None:
    """Returns whether that many reward workers can put the groups of a training step together."""
    if _handed_out_as_a_batch(config):
        if responses % workers:
            raise RegistrationError(
                f"reward.num_workers={workers} does not divide the {responses} responses of a batch (data.train_batch_size times "
                "actor_rollout_ref.rollout.n), so verl would fill it up with copies, which guerdon can't tell from responses of a "
                f"group. Set a number that divides it, or, without functions of whole groups, +{_WHERE}.failed_reward=<a number> or raise."
            )
    elif _in_flight(responses, workers) > MAX_IN_FLIGHT:
        enough = next(count for count in range(workers, responses + 1) if _in_flight(responses, count) <= MAX_IN_FLIGHT)
        warnings.warn(
            f"with reward.num_workers={workers}, {responses} responses of a batch may wait for others of their prompts, but Ray lets "
            f"a worker hold {MAX_IN_FLIGHT} calls: if groups need responses that wait behind those, scoring stalls until "
            f"{_WHERE}.group_timeout. Set reward.num_workers={enough}.",
            GuerdonWarning,
            stacklevel=2,
        )


def _handed_out_as_a_batch(config: Any) -> bool:
    """Otherwise responses are handed out one by one."""
    model = config.reward.reward_model
    return bool(model.enable and not model.enable_resource_pool)


def _responses(config: Any) -> int:
    """Returns the number of responses in one training batch."""
    return int(config.data.train_batch_size) * int(config.actor_rollout_ref.rollout.n)


def _default_failed(config: Any) -> Failed:
    """Returns the default treatment of failures: the mean of the group, whose advantage is 0."""
    if int(config.actor_rollout_ref.rollout.n) == 1:
        raise RegistrationError(
            "a prompt has one response (actor_rollout_ref.rollout.n=1), so there is no mean of others to take. Choose what a "
            f"response without a reward becomes (verl has no mask for it): +{_WHERE}.failed_reward=<a number>, which is trained "
            "on, or raise, which ends the run or leaves the response out, as the trainer does with errors."
        )
    return "group_mean"


def _in_flight(responses: int, workers: int) -> float:
    """Calls that a worker holds when all responses wait: its own, and those routed to it."""
    return responses / workers * (2 - 1 / workers)


def _failed(given: object) -> Failed:
    if given in ("raise", "group_mean"):
        return given
    if isinstance(given, (int, float)) and not isinstance(given, bool) and math.isfinite(given):
        return float(given)
    raise RegistrationError(f"{_WHERE}.failed_reward={given!r}: expected a number, 'raise' or 'group_mean'.")


def _count(where: str, given: object) -> int:
    if isinstance(given, int) and not isinstance(given, bool) and given >= 1:
        return given
    raise RegistrationError(f"{where}={given!r}: expected a whole number of at least 1.")


def _field(given: object) -> str:
    if isinstance(given, str) and given:
        return given
    raise RegistrationError(f"{_WHERE}.group_by={given!r}: expected the name of a field of verl's data.")

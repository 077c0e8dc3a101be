"""Scoring by one judge, whatever its server does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from guerdon import Dispatcher, Server, http_reward, judge
from guerdon.results import Failure, RewardBatch
from tests.http import server

_OF_SERVERS = {one.name for one in fields(Server)} - {"base_url", "api_key_env"}


def reached(options: Mapping[str, Any], url: str = "base_url") -> dict[str, Any]:
    """Options of a judge, with those that only a `Server` has in one."""
    rest = dict(options)
    own = {name: rest.pop(name) for name in _OF_SERVERS & rest.keys()}
    if own:
        own |= {"api_key_env": rest.pop("api_key_env")} if "api_key_env" in rest else {}
        rest["server"] = Server(rest.pop(url), **own)
    return rest


def asked(
    answer: server.Answer,
    completions: Sequence[Any] = ("x",),
    *,
    make: Callable[..., Any] = judge,
    base: str = "",
    columns: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[RewardBatch, server.Server]:
    """The result of one batch by a judge or service whose server answers so, and the server, which
    keeps what was sent to it.

    Args:
        answer: What the server answers.
        completions: Of the batch.
        make: What makes the judge, of its options.
        base: The path of its address.
        columns: The others of the batch, and its options.
        options: Of the judge.
    """
    is_service = getattr(make, "func", make) is http_reward
    url = "url" if is_service else "base_url"
    usual = {"retries": 0, **({} if is_service else {"model": "m"})}
    usual |= {"prompt": "{completion}"} if make is judge else {}
    with server.serving(answer) as running:
        function = make(**reached({url: running.url + base, **usual, **options}, url))
        return scored(function, completions, **(columns or {})), running


def judging(url: object, **options: Any) -> Any:
    """A judge of completions."""
    return judge(**reached({"base_url": url, "model": "m", "prompt": "{completion}", **options}))


def scored(functions: Any, completions: Sequence[Any] = ("x",), **columns: Any) -> RewardBatch:
    """One batch by a function or several."""
    functions = functions if isinstance(functions, list) else [functions]
    with Dispatcher(functions, max_failure_rate=1.0) as dispatcher:
        return dispatcher.score(completions=list(completions), **columns)


def score(url: str, completions: Sequence[str] = ("x",), **options: Any) -> RewardBatch:
    """One batch by a judge."""
    return scored(judging(url, **{"timeout": 20, "retries": 1, **options}), completions)


def only(result: RewardBatch) -> Failure:
    """The failure of the one sample."""
    (failure,) = result.failures()
    assert np.isnan(result.rewards).all()
    return failure

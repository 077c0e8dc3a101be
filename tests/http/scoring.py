"""Scoring by one judge, whatever its server does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from guerdon import Dispatcher, Server, judge
from guerdon.results import Failure, RewardBatch

_OF_SERVERS = {one.name for one in fields(Server)} - {"base_url", "api_key_env"}


def reached(options: Mapping[str, Any], url: str = "base_url") -> dict[str, Any]:
    """Options of a judge, with those that only a `Server` has in one."""
    rest = dict(options)
    own = {name: rest.pop(name) for name in _OF_SERVERS & rest.keys()}
    if own:
        own |= {"api_key_env": rest.pop("api_key_env")} if "api_key_env" in rest else {}
        rest["server"] = Server(rest.pop(url), **own)
    return rest


def score(url: str, completions: list[str], **options: Any) -> RewardBatch:
    asked = {"base_url": url, "model": "m", "prompt": "{completion}", "timeout": 20, "retries": 1, **options}
    with Dispatcher([judge(**reached(asked))], max_failure_rate=1.0) as dispatcher:
        return dispatcher.score(completions=completions)


def only(result: RewardBatch) -> Failure:
    """The failure of the one sample."""
    (failure,) = result.failures()
    assert np.isnan(result.rewards).all()
    return failure

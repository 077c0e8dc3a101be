"""Options that a public function or class doesn't have."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest

from guerdon import (
    Cache,
    Dispatcher,
    Journal,
    Limit,
    Ray,
    Recycle,
    RegistrationError,
    SandboxFusion,
    Server,
    Trace,
    Votes,
    code_reward,
    group_reward,
    http_reward,
    judge,
    pairwise,
    panel,
    reward,
    rewards,
    rubric,
)

MISSPELT: list[tuple[Callable[..., object], str, str]] = [
    (Dispatcher, "weight", "weights"),
    (Journal, "column", "columns"),
    (Limit, "concurency", "concurrency"),
    (Ray, "adress", "address"),
    (Recycle, "call", "calls"),
    (SandboxFusion, "langage", "language"),
    (Trace, "pth", "path"),
    (code_reward, "timout", "timeout"),
    (group_reward, "on_fail", "on_failure"),
    (Cache, "sizes", "size"),
    (Server, "api_key_fil", "api_key_file"),
    (Votes, "min_agrement", "min_agreement"),
    (http_reward, "column", "columns"),
    (judge, "api_key_envv", "api_key_env"),
    (judge, "max_completion_tokens", "max_tokens"),
    (pairwise, "both_order", "both_orders"),
    (panel, "wieghts", "weights"),
    (reward, "time_out", "timeout"),
    (rewards.exact_match, "colum", "column"),
    (rewards.math_reward, "timeot", "timeout"),
    (rubric, "criterias", "criteria"),
]


@pytest.mark.parametrize(("maker", "misspelt", "meant"), MISSPELT, ids=[misspelt for _, misspelt, _ in MISSPELT])
def test_a_misspelt_option_is_refused_with_the_nearest_one(
    maker: Callable[..., Any], misspelt: str, meant: str
) -> None:
    with pytest.raises(RegistrationError) as refused:
        maker(**{misspelt: 1})
    assert str(refused.value) == f"{maker.__name__}() has no option {misspelt!r}; did you mean {meant!r}?"


@pytest.mark.parametrize(
    ("maker", "option", "value"),
    [
        (judge, "headers", "server=guerdon.Server(…, headers=…)"),
        (judge, "min_agreement", "votes=guerdon.Votes(…, min_agreement=…)"),
        (http_reward, "price", "server=guerdon.Server(…, price=…)"),
        (pairwise, "api_key_file", "server=guerdon.Server(…, api_key_file=…)"),
        (reward, "concurrency", "limit=guerdon.Limit(concurrency=…)"),
    ],
)
def test_an_option_of_a_value_is_refused_with_the_value(maker: Callable[..., object], option: str, value: str) -> None:
    with pytest.raises(RegistrationError, match=re.escape(f"has no option {option!r}: give it as {value}.")):
        maker(**{option: 1})


def test_an_option_unlike_all_others_is_refused() -> None:
    with pytest.raises(RegistrationError, match=r"^Limit\(\) has no option 'zzz'\.$"):
        Limit(zzz=1)  # type: ignore[call-arg]


def test_objects_with_known_options_are_pickled() -> None:
    assert pickle.loads(pickle.dumps(Limit(concurrency=3))) == Limit(concurrency=3)
    made = judge(base_url="http://127.0.0.1:1/v1", model="m", prompt="{completion}")
    assert repr(pickle.loads(pickle.dumps(made))) == repr(made)

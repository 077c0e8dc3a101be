"""How many calls of a function a rank has in flight, where the function says nothing of it."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, Limit, judge, reward
from guerdon._functions import spec as specs
from guerdon._functions.build import spec_of
from guerdon._functions.spec import FunctionSpec
from tests.processes import run_python


async def waiting(completion: str) -> float:
    return 1.0


async def batch_contract(completions: list[str], **columns: Any) -> list[float]:
    return [1.0] * len(completions)


def remote_judge(**options: Any) -> Any:
    return judge(base_url="http://127.0.0.1:9/v1", model="m", prompt="{completion}", name="remote_judge", **options)


@pytest.mark.parametrize(("ranks", "share"), [(2, 128), (3, 85), (64, 4), (256, 1), (1000, 1)])
def test_ranks_share_what_is_usual(ranks: int, share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specs, "world_size", lambda: ranks)
    assert spec_of(reward(waiting)).concurrency == share
    assert spec_of(batch_contract).concurrency == share
    assert spec_of(remote_judge()).concurrency == share


def test_a_limit_of_its_own_and_other_lanes_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specs, "world_size", lambda: 64)
    assert spec_of(reward(waiting, limit=Limit(concurrency=256))).concurrency == 256
    assert spec_of(remote_judge(limit=Limit(concurrency=256))).concurrency == 256
    assert spec_of(reward(waiting, limit=Limit(rpm=60))).concurrency is None
    assert spec_of(reward(lambda completion: 1.0, name="waits", lane="thread")).concurrency is None
    assert spec_of(reward(lambda completion: 1.0, name="works")).concurrency is None


def test_one_rank_has_all_of_it() -> None:
    assert spec_of(reward(waiting)).concurrency is None  # the lane's own
    assert spec_of(remote_judge()).concurrency == 256


def most_in_flight() -> int:
    """Returns the most calls in flight of 600 samples."""
    flying = most = 0

    @reward
    async def counting(completion: str) -> float:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        await asyncio.sleep(0.02)
        flying -= 1
        return 1.0

    with Dispatcher([counting]) as dispatcher:
        dispatcher.score(completions=["a"] * 600)
    return most


def test_so_many_calls_are_in_flight() -> None:
    """The launcher's variables name 64 processes."""
    launched = {"WORLD_SIZE": "64", "RANK": "3", "LOCAL_WORLD_SIZE": "8", "LOCAL_RANK": "3"}
    code = "from tests.registration.test_concurrency import most_in_flight; print(most_in_flight())"
    done = run_python(code, env=launched, cwd=Path(__file__).parents[2])
    assert int(done.stdout) == 4
    assert 4 < most_in_flight() <= 256


def test_a_copy_of_a_function_has_the_same_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specs, "world_size", lambda: 4)
    copied: FunctionSpec = pickle.loads(pickle.dumps(Dispatcher([remote_judge()])))._specs[0]
    assert copied.concurrency == 64

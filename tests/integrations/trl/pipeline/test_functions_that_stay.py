"""Functions that rank 0 can score for all ranks, and their workers and limits."""

from __future__ import annotations

import os
from typing import Any

import pytest

pytest.importorskip("trl")

from guerdon import Dispatcher, Limit, reward
from guerdon.integrations.trl.pipeline import functions_that_stay
from guerdon.integrations.trl.pipeline.split_vllm_client import SplitVLLMClient
from tests.integrations.trl import reward_functions
from tests.integrations.trl.pipeline.shared_scoring_ranks import (
    matches,
)


@reward
def in_worker(text: str) -> float:
    return 1.0


@reward(lane="thread")
def in_thread(text: str) -> float:
    return 1.0


def plain(text: str, **row: Any) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("function", "options", "hosts", "reason"),
    [
        (matches, {}, 1, None),
        (matches, {}, 2, None),
        (in_worker, {}, 1, None),
        (in_worker, {"cluster": "host"}, 1, None),
        (in_worker, {}, 2, "'in_worker' runs in workers of its rank's host"),
        (in_worker, {"cluster": "host"}, 2, "'in_worker' runs in workers of its rank's host"),
        (in_thread, {}, 1, "'in_thread' runs in a thread of its rank's process"),
        (reward_functions.vowels, {}, 1, r"'vowels' is called once with all samples.*rowwise=True"),
    ],
)
def test_functions_stay_on_their_rank_for_known_reasons(
    function: Any, options: dict[str, Any], hosts: int, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(functions_that_stay, "ranks_on_host", lambda: 8)
    monkeypatch.setattr(functions_that_stay, "world_size", lambda: 8 * hosts)
    with Dispatcher([function], **options) as dispatcher:
        found = functions_that_stay.reason_to_stay(dispatcher)
    assert (found is None) == (reason is None)
    if reason is not None:
        with pytest.raises(ValueError, match=reason):
            raise ValueError(functions_that_stay.stays(dispatcher.names, found))


def test_workers_of_ranks_that_are_bound_to_cores_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = tuple(range(len(os.sched_getaffinity(0)) + 1))
    monkeypatch.setattr(functions_that_stay, "host_cores", lambda: cores)
    with Dispatcher([in_worker]) as dispatcher, Dispatcher([in_worker], cluster="host") as of_host:
        assert "cluster='host'" in str(functions_that_stay.reason_to_stay(dispatcher))
        assert functions_that_stay.reason_to_stay(of_host) is None


def test_rank_0_has_the_workers_and_the_share_of_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "0")

    @reward(name="limited", limit=Limit(concurrency=3))
    async def limited(text: str) -> float:
        return 1.0

    with Dispatcher([matches, limited, in_worker], workers=1) as dispatcher:
        assert [spec.concurrency for spec in dispatcher._specs] == [64, 3, None]
        assert dispatcher._serve_ranks(4)
        assert dispatcher._serve_ranks(4)  # of another trainer
        assert dispatcher.workers == 4
        assert [spec.concurrency for spec in dispatcher._specs] == [None, 3, None]
    with Dispatcher([limited], workers=1) as dispatcher:
        dispatcher.score(completions=["a"])
        assert not dispatcher._serve_ranks(4)
        assert dispatcher.workers == 1


def test_a_client_knows_the_prompt_of_each_row() -> None:
    class Server:
        def generate(self, prompts: Any, *, n: int, **_: Any) -> Any:
            return {"prompt_ids": prompts, "completion_ids": [[7]] * (n * len(prompts)), "logprobs": None}

    client = SplitVLLMClient(Server())
    seen = {}
    client.on_complete = lambda rows, ids: seen.update((row, client.prompt_of(row)) for row in rows)
    client.generate([[1], [2]], n=2)
    assert seen == {0: [1], 1: [1], 2: [2], 3: [2]}

"""verl's real RewardLoopManager, two reward workers of Ray, our manager by configuration alone."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

import ray

from tests.verl import code_rewards, rewards
from tests.verl.cluster import ray_cluster
from tests.verl.verl_setup import dispatched, make_config, make_data, reward_loop, scores_of

pytestmark = pytest.mark.timeout(600)  # each of Ray's workers imports verl

REWARDS = Path(rewards.__file__)
TEXTS = ["aaaa", "b", "cc", "ddd", "eeeee", "ff", "g", "hhh", "i", "jj", "kkk", "llll"]
RANKS = [3.0, 0.0, 1.0, 2.0, 3.0, 1.0, 0.0, 2.0, 0.0, 1.0, 2.0, 3.0]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with ray_cluster(num_cpus=2):
        yield


@pytest.fixture
def made(request: pytest.FixtureRequest) -> Any:
    """Makes a loop manager, whose workers end with the test, which frees their names."""

    def make(config: Any) -> reward_loop.RewardLoopManager:
        manager = reward_loop.RewardLoopManager(config)
        request.addfinalizer(lambda: [ray.kill(worker) for worker in manager.reward_loop_workers])
        return manager

    return make


def test_a_users_compute_score(made: Any, model: Path, tokenizer: Any) -> None:
    """The function unchanged, with configured arguments; one call hangs, one raises. The manager by
    its registered name: Ray's workers have it from verl's plugins.
    """
    config = make_config(
        model,
        "reward.reward_manager.source=register",
        "reward.reward_manager.name=guerdon",
        f"reward.custom_reward_function.path={REWARDS}",
        "+reward.custom_reward_function.reward_kwargs.bonus=0.25",
        "+reward.reward_kwargs.failed_reward=-1",
        "+reward.reward_kwargs.options.timeout=4",
    )
    batch = made(config).compute_rm_score(make_data(tokenizer, ["a", "hang", "ccc", "3", "raise", "ff", "g"]))
    assert scores_of(batch) == [1.25, -1.0, 3.25, 1.25, -1.0, 2.25, 1.25]
    extra = batch.non_tensor_batch
    assert batch.meta_info["reward_extra_keys"] == list(extra)
    words = ["ok", "timeout", "ok", "ok", "error", "ok", "ok"]
    assert extra["guerdon_status"].tolist() == [f"compute_score:{word}" for word in words]
    assert extra["pred"].tolist() == ["a", None, "ccc", "3", None, "ff", "g"]
    assert extra["acc"].tolist() == [0.0, -1.0, 0.0, 1.0, -1.0, 0.0, 0.0]


def test_groups_over_both_workers(made: Any, model: Path, tokenizer: Any) -> None:
    """A class with ``finish_group`` sees each group whole and in order, in a batch that verl cuts
    in the middle of a group, and where verl hands each response to any worker, as its agent loop
    does while others are being generated.
    """
    manager = made(make_config(model, dispatched("ranks")))
    data = make_data(tokenizer, TEXTS)
    batch = manager.compute_rm_score(data)
    assert scores_of(batch) == RANKS
    assert batch.non_tensor_batch["Rank"].tolist() == RANKS
    assert batch.non_tensor_batch["guerdon_status"].tolist() == ["Rank:ok"] * len(TEXTS)

    streamed = make_data(tokenizer, TEXTS, session_id=[0, 1, 2, 3] * 3)
    shuffled = random.Random(5).sample(range(len(TEXTS)), len(TEXTS))
    asked = {
        index: manager.reward_loop_worker_handles[turn % 2].compute_score.remote(streamed[index : index + 1])
        for turn, index in enumerate(shuffled)
    }
    answers = ray.get([asked[index] for index in range(len(TEXTS))], timeout=300)
    assert [answer["reward_score"] for answer in answers] == RANKS


@pytest.mark.whole
def test_programs_are_judged_by_the_ground_truth_that_verls_code_data_has(
    made: Any, model: Path, tokenizer: Any
) -> None:
    """``inputs`` and ``outputs`` as JSON; a program that ends itself or hangs is wrong, and a
    ground truth that holds no cases is no fault of the program."""
    manager = made(
        make_config(
            model,
            f"+reward.reward_kwargs.dispatcher={code_rewards.__file__}:dispatcher",
            "+reward.reward_kwargs.failed_reward=-1",
        )
    )
    truth = json.dumps({"inputs": ["1\n", "41\n"], "outputs": ["2\n", "42\n"]})
    programs = {
        "print(int(input())+1)": 1.0,
        "print(2)": 0.5,
        "while 1: pass": 0.0,
        "import os; os._exit(0)": 0.0,
        "print(2": 0.0,
        "": 0.0,
        "print(1+int(input()))": -1.0,
    }
    given = [{"style": "rule", "ground_truth": "42" if score < 0 else truth} for score in programs.values()]
    data = make_data(tokenizer, list(programs), reward_model=given)
    batch = manager.compute_rm_score(data)
    assert scores_of(batch) == list(programs.values())
    extra = batch.non_tensor_batch
    assert extra["guerdon_status"].tolist() == ["code:ok"] * 6 + ["code:error"]
    assert "SyntaxError" in extra["code/reason"][4]
    assert extra["code/isolation"][0] == extra["code/isolation"][2]

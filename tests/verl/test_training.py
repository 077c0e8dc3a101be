"""Our reward manager in the loops of verl's own trainers, on a CPU. training.py and fake_workers.py
say what is faked: the model that is trained and the server that generates. `make stress-trainers`
runs this.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("verl")

from tests.verl import rewards
from tests.verl.cluster import ray_cluster

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]  # each of a dozen processes imports verl

DISPATCHER = f"+reward.reward_kwargs.dispatcher={rewards.__file__}:"
RANKS = {1: 0.0, 2: 1.0, 4: 3.0}  # of a group of four; `picky` fails on three letters
MEAN = sum(RANKS.values()) / 3
# That of the fourth is 0
DEVIATION = (sum((rank - MEAN) ** 2 for rank in RANKS.values()) / 3) ** 0.5


@pytest.fixture(autouse=True)
def cluster() -> Iterator[None]:
    with ray_cluster(num_cpus=8, num_gpus=1):
        yield


@pytest.mark.parametrize("kind", ["sync", "colocate_async", "version 0", "one step off"])
def test_a_trainer_trains_on_our_rewards(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function on each lane and a class that sees whole groups, four responses to each prompt, of
    which one has no reward: with ``group_mean`` it is no reason to change anything. Trainers that
    generate while they train score meanwhile, too.
    """
    from tests.verl.training import (
        train,
    )  # only here: it takes seconds, and packages that verl's reward loop does without

    run = train(kind, tmp_path, monkeypatch, f"{DISPATCHER}trained", "+reward.reward_kwargs.failed_reward=group_mean")

    groups: dict[tuple[int, str], list[int]] = {}
    for row in run.trained:
        groups.setdefault((row.step, row.ground_truth), []).append(row.letters)
        failed = row.letters == 3
        score = MEAN if failed else RANKS[row.letters]
        assert row.status == f"noted:ok picky:{'error' if failed else 'ok'} judge:ok Rank:ok"
        assert row.reward == pytest.approx(0.25 + 0.5 + int(row.ground_truth) / 100 + score, abs=1e-5)
        assert row.advantage == pytest.approx((score - MEAN) / DEVIATION, abs=1e-4)
    assert [step for step, _ in groups] == [1] * 4 + [2] * 4
    assert len({prompt for _, prompt in groups}) == 8
    assert all(sorted(letters) == [1, 2, 3, 4] for letters in groups.values())

    first, last = run.log
    for step, entry in enumerate((first, last), start=1):
        rewards_of_step = [row.reward for row in run.trained if row.step == step]
        assert entry["critic/rewards/mean"] == pytest.approx(sum(rewards_of_step) / 16, abs=1e-5)
    # Two and three letters: the second fails, and the first is the only one to take a mean of.
    assert last["val-core/test/reward/mean@2"] == pytest.approx(0.25 + 0.5 + 0.015, abs=1e-5)
    assert last["val-aux/test/Rank/mean@2"] == pytest.approx(0.5)
    assert last["val-aux/test/picky/mean@1"] == pytest.approx(0.5)


def test_a_response_without_a_reward_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``failed_reward=raise`` in verl's default trainer: the prompt's others are trained on."""
    from tests.verl.training import train

    # A mini-batch of one prompt: verl would fill a larger one up with rows of no meaning.
    run = train(
        "sync", tmp_path, monkeypatch, f"{DISPATCHER}trained_apart", "actor_rollout_ref.actor.ppo_mini_batch_size=1"
    )
    groups: dict[tuple[int, str], list[int]] = {}
    for row in run.trained:
        groups.setdefault((row.step, row.ground_truth), []).append(row.letters)
        assert row.status == "picky:ok length:ok"
        assert row.reward == pytest.approx(0.5 + row.letters)
        # The group's letters are 1, 2 and 4
        assert row.advantage == pytest.approx((row.letters - 7 / 3) / (7 / 3) ** 0.5, abs=1e-4)
    assert [step for step, _ in groups] == [1] * 4 + [2] * 4
    assert all(sorted(letters) == [1, 2, 4] for letters in groups.values())
    assert run.log[-1]["val-core/test/reward/mean@1"] == pytest.approx(2.5)

"""All frameworks with one call a sample: failures, and synchronous callers."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import guerdon
from guerdon import Dispatcher, reward
from guerdon.errors import DataError, GuerdonError, GuerdonWarning, RegistrationError, RewardFailureError
from guerdon.integrations import areal, miles, nemo_rl, openrlhf, roll, skyrl, slime, verifiers
from guerdon.integrations._event_loop_thread import EventLoopThread
from guerdon.integrations._single_samples import FrameworkSample, SampleRewards
from tests.integrations.frameworks.rewards import dispatcher, meeting

NEEDS_A_VALUE: list[Any] = [
    miles.reward_function,
    nemo_rl.reward_function,
    openrlhf.reward_function,
    skyrl.reward_function,
    slime.reward_function,
    lambda made, **options: roll.reward_function(made, tokenizer=None, **options),
]
RAISES: list[Any] = [areal.reward_function, areal.async_reward_function, verifiers.reward_function]


@pytest.mark.parametrize("make", NEEDS_A_VALUE)
def test_failure_value_is_required_if_rewards_cannot_be_left_out(make: Any) -> None:
    with pytest.raises(TypeError, match="failure_value"):
        make(dispatcher())
    for value in (None, float("nan"), "0", True, 1e300, 10**400):
        with pytest.raises(RegistrationError, match="finite number"):
            make(dispatcher(), failure_value=value)


@pytest.mark.parametrize("make", [*(lambda d, m=m: m(d, failure_value=0.0) for m in NEEDS_A_VALUE), *RAISES])
def test_functions_of_groups_are_refused_on_single_samples(make: Any) -> None:
    @guerdon.group_reward
    def rank(completions: list[str]) -> list[float]:
        return [0.0] * len(completions)

    with pytest.raises(RegistrationError, match="'rank' works on whole groups"):
        make(Dispatcher([rank]))
    with pytest.raises(RegistrationError, match="takes a dispatcher, not a list"):
        make([reward(lambda text: 1.0, name="one")])
    with pytest.raises(RegistrationError, match="reward model some/model"):
        make(Dispatcher([reward(lambda text: 1.0, name="one"), "some/model"]))


def test_a_function_of_lists_works_and_is_warned_of() -> None:
    def lengths(completions: list[str], **columns: Any) -> list[float]:
        return [float(len(one)) for one in completions]

    with pytest.warns(GuerdonWarning, match=r"'lengths' is called with the list of a whole batch.*rowwise=True"):
        scorer = SampleRewards(Dispatcher([lengths]), "a framework", 0.0)
    assert scorer.wait(scorer.reward(FrameworkSample("abc"))) == 3.0
    scorer.dispatcher.close()


def test_the_first_sample_without_a_reward_is_warned_of_and_no_other() -> None:
    scorer = SampleRewards(dispatcher(), "Framework", 0.0)
    bad = FrameworkSample("bad", columns={"label": "4"})
    with pytest.warns(GuerdonWarning) as caught:
        found = scorer.wait(scorer.rewards([bad, FrameworkSample("4", columns={"label": "4"}), bad]))
    assert found == [None, 1.0, None]
    assert [str(one.message) for one in caught] == [
        (
            "a sample of Framework has no reward ('correct' error: ValueError: no score for this); its reward becomes 0. Further "
            "ones are not reported one by one: a function that fails on more than `max_failure_rate` of its last samples raises "
            "RewardFailureError."
        )
    ]


def test_too_many_failures_raise() -> None:
    scorer = SampleRewards(dispatcher(max_failure_rate=0.25), "Framework", 0.0)
    good, bad = FrameworkSample("4", columns={"label": "4"}), FrameworkSample("bad", columns={"label": "4"})
    with pytest.warns(GuerdonWarning):
        scorer.wait(scorer.rewards([good] * 47 + [bad] * 16))
    said = "(?s)failed on 17 of its last 64 samples.*ValueError: no score for this"
    with pytest.raises(RewardFailureError, match=said), pytest.warns(GuerdonWarning):
        scorer.wait(scorer.reward(bad))


def test_a_column_that_is_missing_is_reported_although_the_framework_may_swallow_it() -> None:
    scorer = SampleRewards(dispatcher(), "Framework", 0.0)
    with pytest.warns(GuerdonWarning, match=r"Framework may only log that: .*label"), pytest.raises(DataError):
        scorer.wait(scorer.reward(FrameworkSample("4")))


def test_fields_with_names_of_ours_are_left_out() -> None:
    given = {"prompt": "x", "completion": "x", "text": "x", "num_generations": 3, "log_extra": 1, "label": "4"}
    scorer = SampleRewards(dispatcher(), "Framework", 0.0)
    assert scorer.wait(scorer.reward(FrameworkSample("4", "2 + 2", columns=given))) == 1.0


def test_calls_of_many_threads_run_at_once() -> None:
    """Each returns only while all run."""
    scorer = SampleRewards(meeting(), "Framework", 0.0)
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(lambda: scorer.wait(scorer.reward(FrameworkSample("abc")))) for _ in range(4)]
        assert [answer.result() for answer in answers] == [3.0] * 4
    scorer.dispatcher.close()


def test_the_thread_ends_with_its_owner() -> None:
    before = set(threading.enumerate())
    owner = EventLoopThread()
    assert owner.run(asyncio.sleep(0, "done")) == "done"
    (thread,) = set(threading.enumerate()) - before
    del owner
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def _in_a_child(scorer: SampleRewards, answers: Any) -> None:
    answers.put(scorer.wait(scorer.reward(FrameworkSample("4", columns={"label": "4"}))))


def test_a_forked_child_scores_too() -> None:
    """AReaL's reward processes are forked."""
    scorer = SampleRewards(dispatcher(), "Framework", 0.0)
    sample = FrameworkSample("4", columns={"label": "4"})
    assert scorer.wait(scorer.reward(sample)) == 1.0
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_in_a_child, args=(scorer, answers))
    child.start()
    assert answers.get() == 1.0
    child.join(30)
    assert child.exitcode == 0
    answers.close()


def test_no_thread_for_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    score = nemo_rl.reward_function(dispatcher(), failure_value=0.0)
    log = [{"role": "assistant", "content": "4"}]

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(GuerdonError, match=r"can't start new thread.*`ulimit -u`"):
            score([log], [{"label": "4"}])
    assert score([log], [{"label": "4"}]).rewards.tolist() == [1.0]

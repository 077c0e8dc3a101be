"""A function that ``run_if`` skips, in each framework that asks for one sample's reward.

The number of ``otherwise=`` counts where it is given. Else the sample's other rewards count; if
there is none, the sample has no reward, and that is not a failure.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from guerdon import Dispatcher, Status, reward
from guerdon.errors import GuerdonWarning, RewardFailureError
from guerdon.integrations import areal, miles, nemo_rl, openrlhf, roll, skyrl, slime, verifiers
from guerdon.integrations._single_samples import FrameworkSample, SampleRewards
from tests.integrations.frameworks.test_environments import DataProto, Tokenizer, tokens
from tests.integrations.frameworks.test_slime import ARGS, Row
from tests.integrations.frameworks.test_verifiers import TaskData, call, trace

Ask = Callable[[Dispatcher, str], float]
FAILED = -1.0


def right(text: str) -> float | None:
    if text == "bad":
        raise ValueError("no score for this")
    return None if text == "mute" else float(text == "4")


def partial(text: str) -> float:
    assert text == "5", "called for a right answer, or one that could not be judged"
    return 0.25


def gated(otherwise: float | None, **options: Any) -> Dispatcher:
    skips = reward(partial, lane="thread", run_if={"right": "< 1"}, otherwise=otherwise)
    return Dispatcher([skips, reward(right, lane="thread")], **options)


def in_openrlhf(made: Dispatcher, text: str) -> float:
    function = openrlhf.reward_function(made, failure_value=FAILED)
    return float(function([f"2 + 2 = {text}"], ["2 + 2 = "], ["4"])["rewards"].item())


def in_areal(made: Dispatcher, text: str) -> float:
    return areal.reward_function(made, failure_value=FAILED)("2 + 2", text, [1], [2])


def in_verifiers(made: Dispatcher, text: str) -> float:
    score = verifiers.reward_function(made, failure_value=FAILED)
    return float(call(score, {"task": TaskData("4"), "trace": trace(text)}))


def in_skyrl(made: Dispatcher, text: str) -> float:
    environment = skyrl.reward_function(made, failure_value=FAILED)(env_config={}, extras={})
    environment.init([{"role": "user", "content": "2 + 2"}])
    return float(environment.step(text)["reward"])


def in_nemo_rl(made: Dispatcher, text: str) -> float:
    log = [{"role": "user", "content": "2 + 2"}, {"role": "assistant", "content": text}]
    return float(nemo_rl.reward_function(made, failure_value=FAILED)([log], [{}]).rewards[0])


def in_roll(made: Dispatcher, text: str) -> float:
    data = DataProto({"prompts": tokens("2+2"), "responses": tokens(text)}, {"tag": np.array(["a"], dtype=object)})
    rewards = roll.reward_function(made, tokenizer=Tokenizer(), failure_value=FAILED)(data)
    return float(rewards.batch["scores"][0])


def in_slime(made: Dispatcher, text: str) -> float:
    return _row(slime, made, text).reward


def in_miles(made: Dispatcher, text: str) -> float:
    return _row(miles, made, text).reward


def _row(module: Any, made: Dispatcher, text: str) -> Row:
    row = Row(text)

    async def ask() -> None:
        row.reward = await module.reward_function(made, failure_value=FAILED)(ARGS, row)

    asyncio.run(ask())
    return row


EVERY = [in_openrlhf, in_areal, in_verifiers, in_skyrl, in_nemo_rl, in_roll, in_slime, in_miles]


@pytest.mark.parametrize("ask", EVERY)
@pytest.mark.parametrize(("otherwise", "skipped"), [(None, 1.0), (0.5, 1.5)])
def test_a_skipped_function_adds_its_otherwise(ask: Ask, otherwise: float | None, skipped: float) -> None:
    with gated(otherwise) as made, warnings.catch_warnings():
        warnings.simplefilter("error", GuerdonWarning)
        assert [ask(made, text) for text in ("4", "5")] == [skipped, 0.25]


@pytest.mark.parametrize("ask", EVERY)
def test_skipped_sample_has_no_reward_if_no_function_scored_it(ask: Ask) -> None:
    with gated(None) as made:
        with pytest.warns(GuerdonWarning, match="all functions abstained or were skipped"):
            assert ask(made, "mute") == FAILED
        with pytest.warns(GuerdonWarning, match=r"has no reward \('right' error: ValueError: no score for this\)"):
            assert ask(made, "bad") == FAILED
    # A number for what was skipped is a reward, where the source is mute and has not failed.
    with gated(0.5) as made:
        assert ask(made, "mute") == 0.5
        with pytest.warns(GuerdonWarning, match="'right' error"):
            assert ask(made, "bad") == FAILED


@pytest.mark.parametrize("module", [slime, miles])
def test_slime_trains_on_a_sample_with_a_skipped_function(module: Any) -> None:
    with gated(None) as made:
        assert not _row(module, made, "4").remove_sample
        with pytest.warns(GuerdonWarning):
            assert _row(module, made, "mute").remove_sample


def test_no_skipped_sample_counts_as_failed_or_called() -> None:
    with gated(None, max_failure_rate=0.0) as made:
        scorer = SampleRewards(made, "Framework", 0.0)
        assert scorer.wait(scorer.rewards([FrameworkSample("4")] * 300)) == [1.0] * 300
        single = asyncio.run(made.ascore_one(completion="4"))
        assert (single.status["partial"], single.reasons) == (Status.SKIPPED, {})
        # The source's failures are its own: of 'partial' nothing is counted.
        bad = [FrameworkSample("bad")] * 64
        with pytest.warns(GuerdonWarning), pytest.raises(RewardFailureError, match="'right' failed") as caught:
            scorer.wait(scorer.rewards(bad))
        assert "partial" not in str(caught.value)

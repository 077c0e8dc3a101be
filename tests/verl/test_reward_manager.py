"""The reward manager in one process, asked as verl's reward workers ask it."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

from guerdon import read_journal
from guerdon.errors import DataError, GuerdonWarning, RegistrationError, RewardFailureError
from guerdon.integrations.verl import settings
from tests.verl import rewards
from tests.verl.verl_setup import changed, dispatched, make_config, make_data

# Imported last: verl_setup imports verl without its warnings.
from verl.experimental.reward_loop.reward_manager.dapo import DAPORewardManager  # isort: skip
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager  # isort: skip
from verl.trainer.ppo.reward import load_reward_manager  # isort: skip

REWARDS = Path(rewards.__file__)
DAPO = [
    "+reward.reward_kwargs.overlong_buffer_cfg.enable=true",
    "+reward.reward_kwargs.overlong_buffer_cfg.len=8",
    "+reward.reward_kwargs.overlong_buffer_cfg.penalty_factor=0.5",
    "+reward.reward_kwargs.overlong_buffer_cfg.log=true",
    "+reward.reward_kwargs.max_resp_len=16",
]


@pytest.fixture(scope="module")
def base(model: Path) -> Any:
    return make_config(model, workers=1)


@pytest.fixture
def make(base: Any, tokenizer: Any, request: pytest.FixtureRequest) -> Any:
    """Makes a manager as verl's workers do, from a configuration; the test's end closes it."""

    def made(*overrides: str) -> Any:
        manager = load_reward_manager(changed(base, *overrides), tokenizer)
        request.addfinalizer(manager.dispatcher.close)
        return manager

    return made


def custom(name: str) -> list[str]:
    return [f"reward.custom_reward_function.path={REWARDS}", f"reward.custom_reward_function.name={name}"]


def ask(manager: Any, data: Any, order: list[int] | None = None) -> list[Any]:
    """All responses at once; an exception in place of an answer is returned."""

    async def gather() -> list[Any]:
        chosen = range(len(data)) if order is None else order
        tasks = {index: asyncio.create_task(manager.run_single(data[index : index + 1])) for index in chosen}
        answers = await asyncio.gather(*tasks.values(), return_exceptions=True)
        return [answer for _, answer in sorted(zip(tasks, answers, strict=True), key=lambda pair: pair[0])]

    return asyncio.run(gather())


def scores(answers: list[Any]) -> list[float]:
    """The rewards of all answers but exceptions."""
    return [answer["reward_score"] for answer in answers if isinstance(answer, dict)]


@pytest.mark.parametrize("name", ["compute_score", "plain_score", "slow_score"])
def test_compute_score_gives_what_it_gives_in_verls_own_manager(
    name: str, make: Any, base: Any, tokenizer: Any
) -> None:
    data = make_data(tokenizer, ["a", "bcd", "2", ""])

    async def in_verl() -> list[Any]:
        # It keeps the loop that it is made on.
        own = NaiveRewardManager(base, tokenizer, getattr(rewards, name))
        return [await own.run_single(data[index : index + 1]) for index in range(len(data))]

    ours, verls = ask(make(*custom(name)), data), asyncio.run(in_verl())
    for mine, theirs in zip(ours, verls, strict=True):
        assert mine["reward_score"] == theirs["reward_score"]
        info = dict(mine["reward_extra_info"])
        assert info.pop("guerdon_status") == f"{name}:ok"
        expected = dict(theirs["reward_extra_info"])
        if "pid" in expected:
            assert info.pop("pid") != expected.pop("pid"), "a sync function runs in a worker process"
        assert {key: info[key] for key in expected} == expected


def test_hanging_call_ends_at_its_timeout_and_is_shown(make: Any, tokenizer: Any) -> None:
    manager = make(
        *custom("compute_score"),
        "+reward.custom_reward_function.reward_kwargs.bonus=0.5",
        "+reward.reward_kwargs.options.timeout=5",
        "+reward.reward_kwargs.failed_reward=-1",
    )
    with pytest.warns(GuerdonWarning, match="a response has no reward .* gets -1, failed_reward"):
        answers = ask(manager, make_data(tokenizer, ["a", "hang", "raise", "bc"]))
    assert scores(answers) == [1.5, -1.0, -1.0, 2.5]
    states = [answer["reward_extra_info"]["guerdon_status"].rpartition(":")[2] for answer in answers]
    assert states == ["ok", "timeout", "error", "ok"]
    failed = answers[1]["reward_extra_info"]
    # verl takes means of numbers; of a field that no other of its batch has, nothing is known.
    assert (failed["score"], failed["acc"], failed["pred"]) == (-1.0, -1.0, None)
    assert failed["pid"] in (-1.0, None)


def test_by_default_a_failure_is_warned_of_and_has_the_mean_of_its_group(make: Any, tokenizer: Any) -> None:
    """One call that failed does not end a run: its advantage is 0."""
    manager = make(*custom("compute_score"))
    data = make_data(tokenizer, ["a", "raise", "bc", "dddddd", "a", "raise", "raise", "raise"])
    with pytest.warns(GuerdonWarning) as caught:
        answers = ask(manager, data)
    assert scores(answers) == [1.0, 3.0, 2.0, 6.0, 1.0, 1.0, 1.0, 1.0]
    ours = [one for one in caught if one.category is GuerdonWarning]
    assert len(ours) == 1, "the first alone"
    message = str(ours[0].message)
    assert "a response has no reward" in message
    assert "no score for this" in message
    assert "the mean of the others of its prompt" in message


def test_failure_raises_if_groups_are_unknown_as_reported_before(make: Any, tokenizer: Any) -> None:
    """Groups are unknown without the field, or if validation may have others; no response waits."""
    without = make_data(tokenizer, ["a", "raise", "bc"])
    del without.non_tensor_batch["uid"]
    no_split = make_data(tokenizer, ["a", "raise", "bc"], extra_info=[{"index": index} for index in range(3)])
    for data, lacks in ((without, "the field 'uid'"), (no_split, r"extra_info\['split'\]")):
        with pytest.warns(GuerdonWarning, match=f"lacks {lacks}.*failed_reward=<a number>"):
            answers = ask(make(*custom("compute_score")), data)
        assert scores(answers) == [1.0, 2.0]
        assert isinstance(answers[1], RewardFailureError)


def test_missing_group_requires_the_choice_at_creation(make: Any) -> None:
    single = [*custom("compute_score"), "actor_rollout_ref.rollout.n=1"]
    with pytest.raises(RegistrationError, match=r"one response .*failed_reward=<a number>"):
        make(*single)
    make(*single, "+reward.reward_kwargs.failed_reward=0")
    make(*single, "+reward.reward_kwargs.failed_reward=raise")


def test_a_failure_raises_where_that_was_chosen(make: Any, tokenizer: Any) -> None:
    manager = make(*custom("compute_score"), "+reward.reward_kwargs.failed_reward=raise")
    answers = ask(manager, make_data(tokenizer, ["a", "raise", "bc", "d"]))
    assert isinstance(answers[1], RewardFailureError)
    assert "failed_reward" in str(answers[1])
    assert "no score for this" in str(answers[1])
    assert scores(answers) == [1.0, 2.0, 1.0]


def test_group_mean_leaves_the_mean_of_a_group_as_it_is(make: Any, tokenizer: Any) -> None:
    manager = make(dispatched("dispatcher"), "+reward.reward_kwargs.failed_reward=group_mean")
    with pytest.warns(GuerdonWarning, match="the mean of the others of its prompt"):
        answers = ask(manager, make_data(tokenizer, ["a", "bad", "ccc", "dd"]))
    assert scores(answers) == pytest.approx([1.0, (1.0 + 3.02 + 2.03) / 3, 3.02, 2.03])
    info = answers[1]["reward_extra_info"]
    assert info["guerdon_status"] == "length:error judge:ok"
    assert info["length"] == pytest.approx((1 + 3 + 2) / 3)
    assert math.isclose(info["judge"], 0.01, rel_tol=1e-6)


@pytest.mark.parametrize(("name", "skipped"), [("gated", None), ("gated_with_a_number", 0.5)])
def test_a_function_that_is_skipped_adds_its_otherwise(
    name: str, skipped: float | None, make: Any, tokenizer: Any, recwarn: pytest.WarningsRecorder
) -> None:
    """No failure: nothing is warned of, however many are skipped, and the keys stay the same."""
    manager = make(dispatched(name), "+reward.reward_kwargs.failed_reward=raise")
    answers = ask(manager, make_data(tokenizer, ["right", "wrong", *["right"] * 70]))
    assert scores(answers[:3]) == [1 + (skipped or 0), 0.25, 1 + (skipped or 0)]
    first, second = (answer["reward_extra_info"] for answer in answers[:2])
    assert (first["guerdon_status"], first["partial"]) == ("partial:skipped judged:ok", skipped or 0.0)
    assert (second["guerdon_status"], second["partial"]) == ("partial:ok judged:ok", 0.25)
    assert first.keys() == second.keys()
    assert not [one for one in recwarn if issubclass(one.category, GuerdonWarning)]


def test_a_response_of_which_all_is_skipped_or_mute_has_no_reward(make: Any, tokenizer: Any) -> None:
    manager = make(dispatched("gated"), "+reward.reward_kwargs.failed_reward=-1")
    with pytest.warns(GuerdonWarning, match="all functions abstained or were skipped"):
        answers = ask(manager, make_data(tokenizer, ["mute", "right", "bad"]))
    assert scores(answers) == [-1.0, 1.0, -1.0]
    states = [answer["reward_extra_info"]["guerdon_status"] for answer in answers]
    assert states == ["partial:skipped judged:abstained", "partial:skipped judged:ok", "partial:skipped judged:error"]
    # No skipped sample is a failure: only those of the source are judged.
    errors = ask(manager, make_data(tokenizer, ["bad"] * 64))
    assert all("'judged' failed on" in str(error) and "partial" not in str(error) for error in errors)


def test_too_many_failures_raise_whatever_a_failure_becomes(make: Any, tokenizer: Any) -> None:
    manager = make(dispatched("dispatcher"), "+reward.reward_kwargs.failed_reward=0")
    answers = ask(manager, make_data(tokenizer, ["bad"] * 12))
    assert all("'length' failed on 12 of 12 samples" in str(error) for error in answers)
    assert all(isinstance(error, RewardFailureError) for error in answers)


def test_thousands_at_once_are_a_few_batches(make: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = make(*custom("slow_score"), "+reward.reward_kwargs.failed_reward=raise")
    sizes, score = [], manager.dispatcher.ascore

    async def counted(**columns: Any) -> Any:
        sizes.append(len(columns["completions"]))
        return await score(**columns)

    monkeypatch.setattr(manager.dispatcher, "ascore", counted)
    texts = [str(index if index % 3 else -1) for index in range(200)]
    answers = ask(manager, make_data(tokenizer, texts))
    assert scores(answers) == [float(index % 3 > 0) for index in range(200)]
    assert sizes == [64, 64, 64, 8]


def test_groups_are_whole_and_in_order_however_responses_arrive(make: Any, tokenizer: Any) -> None:
    """Verl's session number is the order, where it gives one."""
    manager = make(dispatched("ranks"))
    texts = ["aaaa", "b", "cc", "ddd", "e", "fff", "gg", "h"]
    data = make_data(tokenizer, texts, session_id=[0, 1, 2, 3] * 2)
    answers = ask(manager, data, order=[7, 2, 0, 5, 1, 3, 4, 6])
    assert scores(answers) == [3.0, 0.0, 1.0, 2.0, 0.0, 3.0, 2.0, 0.0]


def test_a_field_that_verl_lacks_is_the_error_of_each_response_of_a_group(make: Any, tokenizer: Any) -> None:
    manager = make(dispatched("noted_ranks"))
    without = make_data(tokenizer, ["a", "b", "c", "d"], session_id=[0, 1, 2, 3])
    del without.non_tensor_batch["reward_model"]
    assert all(isinstance(error, DataError) and "ground_truth" in str(error) for error in ask(manager, without))


def test_validation_has_groups_of_its_own_size(make: Any, tokenizer: Any) -> None:
    manager = make(dispatched("ranks"), "actor_rollout_ref.rollout.val_kwargs.n=2")
    data = make_data(tokenizer, ["aa", "b"], extra_info=[{"index": 0, "split": "test"}, {"index": 1, "split": "test"}])
    assert scores(ask(manager, data)) == [1.0, 0.0]


def test_a_group_that_does_not_get_complete_says_what_to_set(make: Any, tokenizer: Any) -> None:
    manager = make(dispatched("ranks"), "+reward.reward_kwargs.group_timeout=0.2")
    answers = ask(manager, make_data(tokenizer, ["a", "b", "c"]))
    assert all(isinstance(answer, DataError) and "3 of 4 responses" in str(answer) for answer in answers)
    without = make_data(tokenizer, ["a"])
    without.non_tensor_batch.pop("uid")
    assert "group_by" in str(ask(manager, without)[0])


PLAIN = custom("plain_score")


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["+reward.reward_kwargs.dispatcher=no_such.py:d"], "no file 'no_such.py'"),
        ([dispatched("nothing")], "nothing"),
        ([dispatched("plain_score")], "custom_reward_function.path"),
        ([dispatched("dispatcher"), *PLAIN], "leave one out"),
        ([*PLAIN, "+reward.reward_kwargs.failed_reward=lowest"], "'group_mean'"),
        ([*PLAIN, "+reward.reward_kwargs.options.timeuot=1"], "timeuot"),
        ([*PLAIN, "+reward.reward_kwargs.dispacher=x"], "dispacher"),
        ([*PLAIN, *DAPO[:-1]], "max_resp_len=None"),
        ([*PLAIN, *DAPO, "+reward.reward_kwargs.max_resp_len=7"], "less than overlong_buffer_cfg.len=8"),
        ([*PLAIN, *DAPO, "+reward.reward_kwargs.overlong_buffer_cfg.len=0"], "overlong_buffer_cfg.len=0"),
        ([*PLAIN, *DAPO, "+reward.reward_kwargs.overlong_buffer_cfg.lenght=8"], "lenght"),
        ([*PLAIN, "+reward.reward_kwargs.overlong_buffer_cfg=8"], "overlong_buffer_cfg=8"),
        ([*PLAIN, "reward.reward_model.enable=True", "reward.num_workers=3"], "failed_reward=<a number>"),
        ([*PLAIN, "+reward.reward_kwargs.group_timeout=0"], "above 0"),
        ([*PLAIN, "+reward.reward_kwargs.group_by=null"], "the name of a field"),
        ([*PLAIN, "reward.num_workers=0"], "at least 1"),
        (custom("__doc__"), "not a function"),
        (["reward.reward_model.enable=True", dispatched("ranks")], "custom_reward_function.path"),
        (
            [
                *PLAIN,
                "reward.reward_model.enable=True",
                "reward.num_workers=3",
                "+reward.reward_kwargs.failed_reward=group_mean",
            ],
            "reward.num_workers=3 does not divide the 32 responses",
        ),
    ],
)
def test_invalid_settings_are_refused_with_the_key_to_set(overrides: list[str], says: str, make: Any) -> None:
    with pytest.raises(RegistrationError) as caught:
        make(*overrides)
    assert says in str(caught.value)


def test_more_responses_than_ray_lets_workers_have_are_reported_with_the_number_to_set(make: Any) -> None:
    """4096 responses, each a call held on its way to the owner of its group, and there."""
    many = [dispatched("ranks"), "data.train_batch_size=1024"]
    with pytest.warns(GuerdonWarning, match=r"4096 responses .* Set reward.num_workers=8\."):
        make(*many, "reward.num_workers=4")
    make(*many, "reward.num_workers=8")


def test_verls_default_function_works_too(make: Any, tokenizer: Any) -> None:
    data = make_data(tokenizer, ["#### 0", "#### 7"], data_source=["openai/gsm8k"] * 2)
    manager = make("+reward.reward_kwargs.options.lane=thread", "+reward.reward_kwargs.failed_reward=0")
    assert scores(ask(manager, data)) == [1.0, 0.0]


def test_dapos_options_give_what_they_give_in_verls_own_manager(make: Any, base: Any, tokenizer: Any) -> None:
    """Responses before the buffer, in it, at its end and beyond."""
    data = make_data(tokenizer, ["a", "b" * 11, "c" * 15, "d" * 20])

    async def in_verl() -> list[Any]:
        own = DAPORewardManager(changed(base, *DAPO), tokenizer, rewards.plain_score)
        return [await own.run_single(data[index : index + 1]) for index in range(len(data))]

    ours, verls = ask(make(*custom("plain_score"), *DAPO), data), asyncio.run(in_verl())
    for mine, theirs in zip(ours, verls, strict=True):
        assert mine["reward_score"] == pytest.approx(float(theirs["reward_score"]))
        for key in ("overlong", "overlong_reward", "acc"):
            assert float(mine["reward_extra_info"][key]) == pytest.approx(float(theirs["reward_extra_info"][key]))
    penalties = [answer["reward_extra_info"]["overlong_reward"] for answer in ours]
    assert penalties == pytest.approx([0.0, -0.25, -0.5, -0.8125])


def test_a_failed_response_has_the_mean_of_what_the_others_are_trained_on(make: Any, tokenizer: Any) -> None:
    manager = make(*custom("compute_score"), *DAPO)
    with pytest.warns(GuerdonWarning):
        answers = ask(manager, make_data(tokenizer, ["a", "raise", "b" * 11, "c" * 15], session_id=[0, 1, 2, 3]))
    assert scores(answers) == pytest.approx([1.0, (1.0 + 10.75 + 14.5) / 3, 10.75, 14.5])


def test_dapos_options_switched_off(make: Any, tokenizer: Any) -> None:
    """verl's recipes leave them so, without the fields that an enabled one needs."""
    manager = make(*custom("plain_score"), "+reward.reward_kwargs.overlong_buffer_cfg.enable=false")
    answers = ask(manager, make_data(tokenizer, ["a", "b" * 20, "1", "d"]))
    assert all("overlong" not in answer["reward_extra_info"] for answer in answers)


@pytest.mark.parametrize("file", ["__init__.py", "reward_manager.py"])
def test_the_manager_given_by_file(file: str, make: Any, tokenizer: Any) -> None:
    """verl loads it under a name of its own making, which nothing can import."""
    path = Path(settings.__file__).with_name(file)
    manager = make(f"reward.reward_manager.module.path={path}", *custom("plain_score"))
    assert ask(manager, make_data(tokenizer, ["a", "1", "2", "x"]))[1]["reward_score"] == 2.0


JOURNALLED = """
import guerdon

@guerdon.{kind}(lane="thread")
def some(**given):
    assert "trainer_state" not in given
    texts = given.get("completions")
    return 1.0 if texts is None else [1.0] * len(texts)

@guerdon.reward(lane="thread")
def length(text: str) -> float:
    return float(len(text))

dispatcher = guerdon.Dispatcher([some, length], weights=[1.0, 1.0], journal={folder!r})
"""


@pytest.mark.parametrize("grouped", [False, True])
def test_a_journal_has_the_step_that_verl_tells(make: Any, tokenizer: Any, tmp_path: Path, grouped: bool) -> None:
    kind = "group_reward" if grouped else "reward"
    file = tmp_path / f"journalled_{kind}.py"
    file.write_text(JOURNALLED.format(kind=kind, folder=str(tmp_path / "journal")))
    manager = make(f"+reward.reward_kwargs.dispatcher={file}:dispatcher")
    versions = [{"global_steps": 7, "min_global_steps": 6, "max_global_steps": 7}] * 4
    with_version = make_data(tokenizer, ["0", "1", "2", "3"], tool_extra_fields=versions)
    ask(manager, with_version)
    of_the_trainer = make_data(tokenizer, ["0", "1", "2", "3"], uid=["other"] * 4)
    of_the_trainer.meta_info["global_steps"] = 12
    ask(manager, of_the_trainer)
    ask(manager, make_data(tokenizer, ["0", "1", "2", "3"], uid=["third"] * 4))
    manager.dispatcher.close()
    steps = read_journal(tmp_path / "journal", columns=["step"])["step"].to_pylist()
    assert sorted(steps, key=str) == [12] * 8 + [7] * 8 + [None] * 8


def test_a_scored_response_is_answered_while_others_of_its_prompt_are_missing(make: Any, tokenizer: Any) -> None:
    """A failed one alone waits for them."""
    manager = make(*custom("compute_score"))
    data = make_data(tokenizer, ["a", "raise", "bcd", "dddddddd"], session_id=[0, 1, 2, 3])

    async def one_by_one() -> list[Any]:
        failed = asyncio.create_task(manager.run_single(data[1:2]))
        early = [await manager.run_single(data[index : index + 1]) for index in (0, 2)]
        assert not failed.done()
        return [*early, await manager.run_single(data[3:4]), await failed]

    with pytest.warns(GuerdonWarning, match="the mean of the others of its prompt"):
        answers = asyncio.run(one_by_one())
    assert scores(answers) == [1.0, 3.0, 8.0, 4.0]


def test_a_failed_response_has_the_mean_of_those_that_came(make: Any, tokenizer: Any) -> None:
    manager = make(*custom("compute_score"), "+reward.reward_kwargs.group_timeout=0.2")
    with pytest.warns(GuerdonWarning, match="the mean of the others of its prompt"):
        answers = ask(manager, make_data(tokenizer, ["a", "raise", "bcd", "d"]), order=[0, 1, 2])
    assert scores(answers) == [1.0, 2.0, 3.0]


def test_a_prompt_may_have_more_responses_than_the_configuration_says(make: Any, tokenizer: Any) -> None:
    texts = ["a", "bb", "ccc", "dddd", "eeeee", "raise"]
    uid = ["one"] * 6
    manager = make(*custom("compute_score"))
    with pytest.warns(GuerdonWarning, match="no reward"):
        answers = ask(manager, make_data(tokenizer, texts, uid=uid, __rollout_n__=[6] * 6))
    assert scores(answers) == [1.0, 2.0, 3.0, 4.0, 5.0, 3.0]
    without = make_data(tokenizer, texts[:5], uid=uid[:5])
    assert scores(ask(manager, without)) == [1.0, 2.0, 3.0, 4.0, 5.0]

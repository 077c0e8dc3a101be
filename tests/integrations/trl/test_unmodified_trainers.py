"""TRL's trainers, unmodified, with a dispatcher's columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl")

from guerdon import Dispatcher, reward
from tests.integrations.trl import reward_functions
from tests.integrations.trl.tiny_trainer import last, make_scorer, make_trainer, rewards_of, without_times

pytestmark = [
    pytest.mark.filterwarnings("default", "error::guerdon.GuerdonWarning"),
    pytest.mark.usefixtures("trainers"),
]

PLAIN = [reward_functions.vowels, reward_functions.answers, reward_functions.lengths, reward_functions.noted]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Functions write here, in this process and in workers; set before a dispatcher starts any."""
    monkeypatch.setenv("GUERDON_TEST_FOLDER", str(tmp_path))
    return tmp_path


def written(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
@pytest.mark.parametrize("conversational", [False, True], ids=["plain", "chat"])
def test_a_run_logs_what_plain_trl_logs(kind: str, conversational: bool, tmp_path: Path) -> None:
    """Function names, rewards, losses, extra columns and metrics: equal under the same seed."""
    options: dict[str, Any] = {"kind": kind, "conversational": conversational, "evaluate": True}
    plain = make_trainer(list(PLAIN), tmp_path / "plain", **options)
    plain.train()
    with Dispatcher(PLAIN, workers=2) as dispatcher:
        ours = make_trainer(dispatcher.reward_funcs, tmp_path / "ours", **options)
        assert ours.reward_func_names == plain.reward_func_names == ["vowels", "answers", "lengths", "noted"]
        ours.train()
    history = without_times(ours.state.log_history)
    assert history == without_times(plain.state.log_history)
    assert any("rewards/answers/mean" in entry and "longest" in entry for entry in history)
    assert any("eval_rewards/answers/std" in entry and "eval_longest" in entry for entry in history)
    np.testing.assert_array_equal(list(rewards_of(ours).values()), list(rewards_of(plain).values()))
    assert dict(ours._logs["extra"]) == dict(plain._logs["extra"])
    assert list(ours._logs["advantages"]) == list(plain._logs["advantages"])


def test_undecorated_functions_get_what_trl_gives_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    witnesses = [reward_functions.witness, reward_functions.async_witness]
    seen = []
    for name in ("plain", "ours"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv("GUERDON_TEST_FOLDER", str(tmp_path / name))
        with Dispatcher(witnesses, workers=1) as dispatcher:
            trainer = make_trainer(
                list(witnesses) if name == "plain" else dispatcher.reward_funcs, tmp_path / "out", conversational=True
            )
            trainer.train()
        seen.append([written(tmp_path / name, witness.__name__) for witness in witnesses])
    assert seen[0] == seen[1]
    call = seen[1][0][1]
    assert set(call) == {
        "prompts", "completions", "completion_ids", "answer", "trainer_state", "log_extra", "log_metric",
    }  # fmt: skip
    assert call["trainer_state"] == 1
    assert call["log_extra"] == call["log_metric"] == "callable"


@pytest.mark.fault(
    "a tenth of the calls of one function fail under the unmodified TRL trainer",
    sees="the advantage of their samples is 0, mean and deviation of their groups are those of the others, the failed fraction is in the log",
)
@pytest.mark.parametrize("scale", ["group", "none"])
def test_row_10_failed_samples_are_left_out_of_their_group(scale: str, tmp_path: Path) -> None:
    """Three functions, about 10 % injected failures in one of them, in the unmodified trainer."""
    weights = [1.0, 0.5, 0.01]
    rewards = [reward_functions.vowels, reward_functions.flaky, reward_functions.lengths]
    with Dispatcher(rewards, workers=2, weights=weights, log_metrics="all") as dispatcher:
        trainer = make_trainer(
            dispatcher.reward_funcs,
            tmp_path,
            prompts=20,
            per_device_train_batch_size=80,
            reward_weights=dispatcher.reward_weights,
            scale_rewards=scale,
            max_steps=1,
        )
        trainer.train()
    failed = np.array([reward_functions.unlucky(text) for text in trainer._logs["completion"]])
    assert 2 <= failed.sum() <= 20
    columns = np.array([rewards_of(trainer)[name] for name in ("vowels", "flaky", "lengths")])
    assert np.isnan(columns[:, failed]).all()
    assert not np.isnan(columns[:, ~failed]).any()

    total = np.array(weights) @ columns
    advantages = np.array(trainer._logs["advantages"])
    assert (advantages[failed] == 0).all()
    for group in np.arange(80).reshape(20, 4):
        survivors = group[~failed[group]]
        mean, std = total[survivors].mean(), total[survivors].std(ddof=1)
        distance = advantages[survivors] * (std + 1e-4 if scale == "group" else 1.0)
        # Each shows the same mean
        np.testing.assert_allclose(total[survivors] - distance, mean, atol=1e-6)
        if scale == "group":
            far = np.abs(total[survivors] - mean) > 1e-3
            shown = (total[survivors] - mean)[far] / advantages[survivors][far] - 1e-4
            np.testing.assert_allclose(shown, std, atol=1e-6, rtol=1e-5)
    assert last(trainer, "reward") == pytest.approx(np.nanmean(total), abs=1e-6)
    assert last(trainer, "reward_std") == pytest.approx(np.nanstd(total, ddof=1), abs=1e-6)
    assert last(trainer, "guerdon/flaky/failed_frac") == pytest.approx(failed.mean())
    assert last(trainer, "guerdon/flaky/error_frac") == pytest.approx(failed.mean())
    assert last(trainer, "guerdon/vowels/failed_frac") == 0.0


def test_row_14_functions_of_one_second_run_concurrently(tmp_path: Path, folder: Path) -> None:
    """Two sync functions and an async one of 1 s each, two workers: about 1 s for the three."""
    with Dispatcher(
        [reward_functions.second_one, reward_functions.second_two, reward_functions.second_async], workers=2
    ) as dispatcher:
        make_trainer(dispatcher.reward_funcs, tmp_path / "out").train()
    stamps = written(folder, "stamps")[-3:]  # of the second step: workers are warm
    assert {stamp["name"] for stamp in stamps} == {"one", "two", "async"}
    assert max(stamp["started"] for stamp in stamps) < min(stamp["ended"] for stamp in stamps)


def test_groups_have_the_trainers_size_and_functions_their_metrics_in_training_and_evaluation(tmp_path: Path) -> None:
    rewards = [reward_functions.group_size, reward_functions.flaky, reward_functions.lengths]
    with Dispatcher(rewards, workers=1, log_metrics="all") as dispatcher:
        trainer = make_trainer(dispatcher.reward_funcs, tmp_path, evaluate=True)
        trainer.train()
    assert last(trainer, "rewards/group_size/mean") == 4.0
    assert last(trainer, "eval_rewards/group_size/mean") == 2.0
    for prefix in ("", "eval_"):
        for name in ("flaky", "lengths"):
            for metric in ("failed_frac", "timeout_frac", "error_frac", "crashed_frac"):
                assert 0.0 <= last(trainer, f"{prefix}guerdon/{name}/{metric}") < 1.0
            for metric in ("run_p50_s", "run_p90_s", "run_p99_s", "queue_p50_s", "queue_p99_s"):
                assert 0.0 <= last(trainer, f"{prefix}guerdon/{name}/{metric}") < 30.0


def test_functions_see_the_trainers_state_and_what_they_record_is_logged(tmp_path: Path) -> None:
    """Columns of the table and metrics, from workers and from threads."""
    rewards = [reward_functions.noting, reward_functions.step_number, reward_functions.step_number_in_worker]
    with Dispatcher(rewards, workers=2) as dispatcher:
        trainer = make_trainer(dispatcher.reward_funcs, tmp_path, log_completions=True)
        trainer.train()
    for name in ("step_number", "step_number_in_worker"):
        key = f"rewards/{name}/mean"
        assert [entry[key] for entry in trainer.state.log_history if key in entry] == [0.0, 1.0]
    texts = list(trainer._logs["completion"])
    sizes = [len(text) for text in texts]
    assert list(trainer._logs["extra"]["noting/letters"]) == sizes
    assert len(trainer._logs["extra"]["answer seen"]) == 8
    assert set(trainer._logs["extra"]) == {"noting/letters", "answer seen"}
    assert last(trainer, "size") == pytest.approx(np.mean(sizes))


class Counter:
    """An environment without anything to do in it."""

    def __init__(self) -> None:
        self.resets = 0

    def reset(self, **row: Any) -> None:
        self.resets += 1

    def look(self) -> str:
        """Looks around.

        Returns:
            What there is.
        """
        return "nothing"

    def get_reward(self) -> float:
        return 0.5


def test_environments_reach_the_functions_that_name_them(tmp_path: Path, folder: Path) -> None:
    @reward(lane="thread", name="mine")
    def mine(environment: Any) -> float:
        return float(environment.resets)

    with Dispatcher([reward_functions.environment_witness, mine, reward_functions.vowels], workers=1) as dispatcher:
        trainer = make_trainer(
            dispatcher.reward_funcs, tmp_path / "out", conversational=True, environment_factory=Counter, max_steps=2
        )
        trainer.train()
    rewards = rewards_of(trainer)
    assert rewards["environment_witness"] == rewards["mine"]
    assert set(rewards["mine"]) == {2.0}
    assert set(rewards["Counter"]) == {0.5}  # the environment's own reward, which is the trainer's
    assert written(folder, "environment_witness")[0]["environments"] == ["Counter"] * 8


def test_a_reward_model_stays_in_its_place(tmp_path: Path) -> None:
    scorer = make_scorer(tmp_path)
    with Dispatcher(
        [reward_functions.vowels, scorer, reward_functions.lengths], weights=[1, 0.5, 0.1], workers=1
    ) as dispatcher:
        trainer = make_trainer(dispatcher.reward_funcs, tmp_path / "out", reward_weights=dispatcher.reward_weights)
        trainer.train()
    assert trainer.reward_func_names == ["vowels", "scorer", "lengths"]
    assert not np.isnan(list(rewards_of(trainer).values())).any()


def test_dispatchers_serve_several_trainers_in_one_process(tmp_path: Path) -> None:
    """Two that exist at the same time, and then another with groups of another size."""
    with (
        Dispatcher([reward_functions.vowels, reward_functions.group_size], workers=1) as one,
        Dispatcher([reward_functions.lengths], workers=1) as two,
    ):
        trainers = [make_trainer(dispatcher.reward_funcs, tmp_path) for dispatcher in (one, two)]
        for trainer in trainers:
            trainer.train()
        later = make_trainer(one.reward_funcs, tmp_path, num_generations=2)
        later.train()
    assert [set(rewards_of(trainer)) for trainer in trainers] == [{"vowels", "group_size"}, {"lengths"}]
    assert [last(trainer, "rewards/group_size/mean") for trainer in (trainers[0], later)] == [4.0, 2.0]


def test_a_bare_dispatcher_is_refused_when_the_trainer_is_made(tmp_path: Path) -> None:
    with (
        Dispatcher([reward_functions.vowels]) as dispatcher,
        pytest.raises(TypeError, match=r"pass dispatcher\.reward_funcs"),
    ):
        make_trainer(dispatcher, tmp_path)  # type: ignore[arg-type]

"""Pipelines train on each prompt as often as TRL, and on no sample twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

from guerdon import Dispatcher
from guerdon.integrations.trl import Pipeline
from tests.integrations.trl import reward_functions
from tests.integrations.trl.recording_trainer import RecordingTrainer, trained
from tests.integrations.trl.tiny_trainer import make_data

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("trainers")]

MODES = [Pipeline(lookahead=2), Pipeline(mini_batch=True, lookahead=1)]


@pytest.fixture(scope="module")
def dispatcher() -> Iterator[Dispatcher]:
    with Dispatcher(
        [reward_functions.vowels, reward_functions.random_wait, reward_functions.lengths], workers=2
    ) as made:
        yield made


def assert_each_sample_once(trainer: RecordingTrainer, times: int = 1) -> None:
    """All generated rows were trained on, each `times` times, in pieces of whole batches."""
    batch = trainer.args.steps_per_generation
    seen = Counter(row for piece in trainer.pieces for row in piece)
    generated = Counter(trainer.generated)
    assert trainer.prompts_seen() == Counter({prompt: count * times for prompt, count in generated.items()})
    for start in range(0, len(trainer.pieces), batch * times):
        rounds = [trainer.pieces[start + index * batch : start + (index + 1) * batch] for index in range(times)]
        assert all(sorted(map(sorted, one)) == sorted(map(sorted, rounds[0])) for one in rounds)
        prompts = Counter(prompt for piece in rounds[0] for prompt, _ in piece)
        assert set(prompts.values()) == {trainer.num_generations}
    assert sum(seen.values()) == len(trainer.generated) * times


CASES: dict[str, dict[str, Any]] = {
    # 10 prompts, 4 a batch: a remainder of 2 is dropped in each epoch
    "two epochs with a dropped remainder": {"prompts": 10, "num_train_epochs": 2, "max_steps": -1},
    "several batches a step": {"steps_per_generation": 2, "prompts": 8, "max_steps": 2},
    "several steps a batch": {"gradient_accumulation_steps": 2, "steps_per_generation": 4, "max_steps": 4},
    "two iterations": {"num_iterations": 2, "max_steps": 4},
    # 5 micro-steps an epoch with 2 a step: a step of one at each epoch's end
    "an odd end of each epoch": {
        "steps_per_generation": 1,
        "gradient_accumulation_steps": 2,
        "prompts": 5,
        "num_train_epochs": 2,
        "max_steps": -1,
    },
}


@pytest.mark.parametrize("case", CASES)
def test_each_prompt_is_seen_as_often_and_no_sample_twice(case: str, tmp_path: Path, dispatcher: Dispatcher) -> None:
    plain = trained(dispatcher, tmp_path, "off", **CASES[case])
    assert_each_sample_once(plain, times=plain.num_iterations)
    for mode in MODES:
        if CASES[case].get("steps_per_generation") == 1 and Pipeline.of(mode).mini_batch:
            continue  # there are no mini-batches
        ours = trained(dispatcher, tmp_path, mode, **CASES[case])
        assert_each_sample_once(ours, times=ours.num_iterations)
        # The same prompts in the same order, none beyond the end
        assert ours.generated == plain.generated
        assert ours.state.global_step == plain.state.global_step
        assert ours.state.num_input_tokens_seen > 0
        assert not ours._generated_ahead


def test_a_stream_of_data_is_read_ahead_too(tmp_path: Path, dispatcher: Dispatcher) -> None:
    """An epoch of a stream has no length; its order changes with the epoch."""
    seen = []
    for one in ("off", "one_step"):
        data = make_data(10).to_iterable_dataset()
        trainer = trained(dispatcher, tmp_path, one, data=data, max_steps=5)
        assert_each_sample_once(trainer)
        seen.append(trainer.generated)
    assert seen[0] == seen[1]


def test_groups_split_over_pieces_stay_in_order(tmp_path: Path, dispatcher: Dispatcher) -> None:
    """Six rows a piece, groups of four."""
    trainer = trained(
        dispatcher,
        tmp_path,
        "mini_batch",
        per_device_train_batch_size=6,
        gradient_accumulation_steps=2,
        max_steps=2,
    )
    assert_each_sample_once(trainer)
    rows = [row for piece in trainer.pieces[:2] for row in piece]
    assert all(len({prompt for prompt, _ in rows[start : start + 4]}) == 1 for start in range(0, 12, 4))


def test_training_starts_on_the_groups_that_are_scored_first(tmp_path: Path) -> None:
    trainer = trained([reward_functions.later_for_smaller], tmp_path, "mini_batch", max_steps=1, shuffle_dataset=False)
    assert [piece[0][0] for piece in trainer.pieces] == ["say 3", "say 2", "say 1", "say 0"]

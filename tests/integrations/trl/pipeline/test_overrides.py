"""Methods that a user's class overrides, in front of a pipeline and behind one: each run's logs and
tables are those of TRL's own trainer with the same override."""

from __future__ import annotations

import copy
import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

trl = pytest.importorskip("trl")
torch = pytest.importorskip("torch")

from guerdon import Dispatcher, GuerdonWarning, RewardFailureError, reward  # noqa: E402
from guerdon.integrations.trl import GRPOTrainer, pipelined  # noqa: E402
from guerdon.integrations.trl.pipeline.mini_batch import MiniBatches  # noqa: E402
from tests.integrations.trl import reward_functions  # noqa: E402
from tests.integrations.trl.tiny_trainer import (  # noqa: E402
    MODES,
    SIZES,
    apart,
    assert_same_runs,
    make_scorer,
    make_trainer,
)

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("trainers")]

REWARDS = [reward_functions.vowels, reward_functions.answers, reward_functions.noted]


@pytest.fixture(scope="module")
def dispatcher() -> Iterator[Dispatcher]:
    with Dispatcher(REWARDS, workers=1) as made:
        yield made


def kinds(mixin: type, base: Any = trl.GRPOTrainer) -> tuple[Any, Any, Any]:
    """A class of TRL's, one with a pipeline behind the override, one with a pipeline in front."""
    ours = GRPOTrainer if base is trl.GRPOTrainer else pipelined(base)
    made = [type(mixin.__name__, (mixin, one), {"__module__": __name__}) for one in (base, ours)]
    return made[0], made[1], pipelined(made[0])


def compare(
    mixin: type,
    modes: Sequence[str],
    folder: Path,
    dispatcher: Dispatcher,
    functions: Sequence[Any] = (),
    base: Any = trl.GRPOTrainer,
    check: Callable[[Any], None] = lambda trainer: None,
    own: Sequence[Any] = (),
    front: Sequence[str] | None = None,
    **options: Any,
) -> Any:
    """Trains TRL's class and, in each mode, those with a pipeline; returns the first trainer.

    Args:
        functions: For TRL's; by default the dispatcher's columns.
        check: Called with each trainer after its training.
        own: Functions of the trainer's own, behind the dispatcher's.
        front: Modes of the class with the override in front of the pipeline, if they are others.
    """
    plain, in_front, behind = kinds(mixin, base)
    ours = [dispatcher, *own]
    runs: list[tuple[Any, Any, dict[str, Any]]] = [(plain, list(functions) or dispatcher.reward_funcs, {})]
    runs += [(in_front, ours, {"pipeline": mode}) for mode in (modes if front is None else front)]
    runs += [(behind, ours, {"pipeline": mode}) for mode in modes]
    expected: Any = None
    for kind, given, more in runs:
        trainer = make_trainer(given, folder, trainer_class=kind, more=more, **{**SIZES, **options})
        with apart(trainer):
            trainer.train()
        assert dispatcher.stats().get("open_batches", 0) == 0
        assert not isinstance(trainer._buffered_inputs, MiniBatches)
        assert not {"_generate", "_get_per_token_logps_and_entropies", "_replaying"} & set(vars(trainer))
        check(trainer)
        expected = expected or trainer
        assert_same_runs(trainer, expected)
    return expected


class Lower:
    """Counts batches, and makes texts lower case."""

    batches = 0

    def _generate(self, prompts: Any) -> Any:
        self.batches += 1
        ids, completion_ids, tools, completions, *rest = super()._generate(prompts)  # type: ignore[misc]
        self._metrics["train"]["mine"].append(float(len(prompts)))  # type: ignore[attr-defined]
        return (ids, completion_ids, tools, [text.lower() for text in completions], *rest)


def test_an_override_of_the_generation_runs_once_a_batch(tmp_path: Path, dispatcher: Dispatcher) -> None:
    def check(trainer: Any) -> None:
        assert trainer.batches == 2

    compare(Lower, MODES, tmp_path, dispatcher, REWARDS, check=check)


class Clamp:
    """Log-probabilities with a lower bound for each token, half of a batch at a time; the
    generation computes some too."""

    def _generate(self: Any, prompts: Any) -> Any:
        made = super()._generate(prompts)  # type: ignore[misc]
        some = torch.tensor([ids[:2] for ids in made[0]])
        self._get_per_token_logps_and_entropies(self.model, some, torch.ones_like(some), 1)
        return made

    def _get_per_token_logps_and_entropies(self: Any, model: Any, ids: Any, mask: Any, *args: Any, **named: Any) -> Any:
        if len(ids) > 8:
            pairs = [(ids[:8], mask[:8]), (ids[8:], mask[8:])]
            halves = [self._get_per_token_logps_and_entropies(model, *pair, *args, **named) for pair in pairs]
            return (torch.cat([half[0] for half in halves]), *halves[0][1:])
        logps, *rest = super()._get_per_token_logps_and_entropies(model, ids, mask, *args, **named)  # type: ignore[misc]
        return (logps.clamp(min=-5.5), *rest)


def test_an_override_of_log_probabilities_counts_in_rloos_rewards(tmp_path: Path, dispatcher: Dispatcher) -> None:
    modes, front = ["off", "one_step", "all"], ["overlap", "mini_batch", "one_step"]
    options: dict[str, Any] = {"base": trl.RLOOTrainer, "kind": "RLOO", "beta": 0.2}
    compare(Clamp, modes, tmp_path, dispatcher, REWARDS, front=front, **options)


# --- other arguments for reward functions than TRL's


def _other_completions(inputs: Any, prompts: Any, completions: Any, ids: Any) -> Any:
    return inputs, prompts, [[{**message, "content": "aeiou"} for message in each] for each in completions], ids


def _completions_in_place(inputs: Any, prompts: Any, completions: Any, ids: Any) -> Any:
    for completion, row in zip(completions, inputs, strict=True):
        completion[0]["content"] += row["answer"]
    return inputs, prompts, completions, ids


def _other_answers(inputs: Any, *rest: Any) -> Any:
    return [{**row, "answer": "z"} for row in inputs], *rest


def _answers_in_place(inputs: Any, *rest: Any) -> Any:
    for row in inputs:
        row["answer"] += "z"
    return inputs, *rest


def _more_columns(inputs: Any, *rest: Any) -> Any:
    return [{**row, "more": 1} for row in inputs], *rest


def _fewer_columns(inputs: Any, *rest: Any) -> Any:
    return [{"prompt": row["prompt"]} for row in inputs], *rest


def _other_prompts(inputs: Any, prompts: Any, *rest: Any) -> Any:
    return inputs, [[*prompt, *prompt] for prompt in prompts], *rest


def _equal_copies(*given: Any) -> Any:
    return copy.deepcopy(given)


CHANGES = {
    "completions": _other_completions,
    "completions in place": _completions_in_place,
    "answer": _other_answers,
    "answer in place": _answers_in_place,
    "more": _more_columns,
    "fewer": _fewer_columns,
    "prompts": _other_prompts,
    "equal": _equal_copies,
}


class Scores:
    """Per row; notes how often it was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, completion: Any, prompt: Any, answer: str = " ", **more: Any) -> float:
        self.calls += 1
        spoken = len(completion[-1]["content"]) + len(prompt) / 10 + len(prompt[-1]["content"])
        return spoken + sum(map(ord, answer)) / 100 + len(more)


@pytest.mark.parametrize("name", CHANGES)
def test_an_override_changes_what_is_scored(name: str, tmp_path: Path) -> None:
    """Also of rows whose rewards began before. They are scored once more in one batch of a run
    alone, and what the override logs is logged once."""

    class Changing:
        def _generate(self: Any, prompts: Any) -> Any:
            self._log_metric("prompts", float(len(prompts)))
            self._log_completion_extra("place", range(len(prompts)))
            return super()._generate(prompts)  # type: ignore[misc]

        def _calculate_rewards(self, *given: Any) -> Any:
            rewards = super()._calculate_rewards(*CHANGES[name](*given))  # type: ignore[misc]
            self._metrics["train"]["mine"].append(rewards.mean().item())  # type: ignore[attr-defined]
            return rewards

    scores, calls = Scores(), [0]
    with warnings.catch_warnings(record=True) as caught, Dispatcher([reward(scores, name="s", lane="thread")]) as made:
        warnings.simplefilter("always")
        # TRL's table has the changed completions; a batch that is replayed has logged them before.
        some = {"completions in place": MODES[:2], "completions": MODES, "answer in place": ["off", "all"]}
        modes = some.get(name, ["overlap", "all"])
        sizes: dict[str, Any] = {"prompts": 64, "max_steps": 4, "conversational": True}
        compare(Changing, modes, tmp_path, made, check=lambda _: calls.append(scores.calls), front=["overlap"], **sizes)
    # Two batches had begun with "all".
    plain, *ours = (after - before for before, after in itertools.pairwise(calls))
    assert plain == 4 * 16
    assert all(plain <= count <= plain + 3 * 16 for count in ours)
    found = [str(one.message) for one in caught if "nothing is hidden" in str(one.message)]
    assert len(found) == (0 if name == "equal" else len(modes))
    changed = "answer" if name == "fewer" else name.split()[0]
    assert all(f"Changing overrides _calculate_rewards, and it changes {changed}. " in message for message in found)


class Completing:
    """Functions can't be called, or fail, without what it gives them."""

    def _calculate_rewards(self, inputs: Any, *rest: Any) -> Any:
        rows = [{**row, "place": ord(row["answer"]), "answer": "z"} for row in inputs]
        return super()._calculate_rewards(rows, *rest)  # type: ignore[misc]


@reward(lane="thread")
def needs_place(text: str, place: int) -> float:
    return place + len(text)


@reward(lane="thread", max_failure_rate=0.1)
def needs_answer(text: str, answer: str) -> float:
    if answer != "z":
        raise ValueError("not that")
    return float(len(text))


@pytest.mark.parametrize(
    ("function", "modes", "steps"),
    [(needs_place, MODES, 2), (needs_answer, MODES, 2), (needs_answer, ["mini_batch"], 1)],
    ids=["needs_place", "needs_answer", "one batch"],
)
def test_functions_may_need_what_an_override_gives_them(
    function: Any, modes: list[str], steps: int, tmp_path: Path
) -> None:
    warned = pytest.warns(GuerdonWarning, match="Completing overrides _calculate_rewards, and .*place")
    with Dispatcher([function]) as made, warned:
        compare(Completing, modes, tmp_path, made, front=["off"], max_steps=steps)


class Scaling:
    """It changes the rewards alone, and ends where a whole batch lacks some."""

    def _calculate_rewards(self, *given: Any) -> Any:
        rewards = super()._calculate_rewards(*given)  # type: ignore[misc]
        assert len(rewards) < 16 or not rewards.isnan().any()
        return rewards / 2


@pytest.mark.parametrize("mode", MODES)
def test_functions_that_fail_end_a_run_whose_override_gives_them_nothing_else(mode: str, tmp_path: Path) -> None:
    with Dispatcher([needs_answer]) as made:
        kind = kinds(Scaling)[2]
        trainer = make_trainer(made, tmp_path, trainer_class=kind, more={"pipeline": mode}, **SIZES)
        with pytest.raises(RewardFailureError, match="'needs_answer' failed on 16 of 16"):
            trainer.train()
        assert made.stats()["open_batches"] == 0


class Exclaiming:
    """The model gets other prompts than reward functions."""

    def _generate(self, prompts: Any) -> Any:
        return super()._generate([[*prompt, {"role": "user", "content": "!"}] for prompt in prompts])  # type: ignore[misc]


class Mutating:
    """The generation changes the prompts in place."""

    def _generate(self, prompts: Any) -> Any:
        made = super()._generate(prompts)  # type: ignore[misc]
        for prompt in prompts:
            prompt[-1]["content"] += "!"
        return made


class Adding:
    """The generation adds a column."""

    def _generate(self, prompts: Any) -> Any:
        made = list(super()._generate(prompts))  # type: ignore[misc]
        made[5] = {"more": [1] * len(prompts)}
        return tuple(made)


class Answering:
    """Batches are made of other rows than the data has."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        return super()._generate_and_score_completions([{**row, "answer": "z"} for row in inputs])  # type: ignore[misc]


@reward(lane="thread")
def needs_more(text: str, more: int) -> float:
    return more + len(text)


@pytest.mark.parametrize("mixin", [Exclaiming, Mutating, Adding, Answering])
def test_functions_get_what_trl_gives_them_after_an_override(mixin: Any, tmp_path: Path) -> None:
    """Also those whose calls began while others of their batch were generated."""
    functions = [needs_more] if mixin is Adding else []
    with Dispatcher([reward(Scores(), name="s", lane="thread"), *functions]) as made:
        compare(mixin, ["off", "overlap"], tmp_path, made, conversational=True)


# --- an override of the rewards sees the trainer


class Likelihood:
    """Rewards depend on log-probabilities and a coefficient."""

    def _calculate_rewards(self: Any, inputs: Any, prompts: Any, completions: Any, ids: Any) -> Any:
        rewards = super()._calculate_rewards(inputs, prompts, completions, ids)  # type: ignore[misc]
        width = max(map(len, ids))
        tokens = torch.tensor([[*row, *[0] * (width - len(row))] for row in ids])
        each, *_ = self._get_per_token_logps_and_entropies(self.model, tokens, torch.ones_like(tokens), width - 1)
        likely = torch.stack([row[: len(own) - 1].sum() for row, own in zip(each.detach(), ids, strict=True)])
        return rewards + self.beta * likely[:, None]


class Room:
    """An environment for an override of the rewards."""

    def reset(self, **row: Any) -> None:
        self.answer = str(row["answer"])

    def look(self) -> str:
        """Looks."""
        return self.answer


class InRooms:
    """Rewards depend on environments, and other answers go to functions."""

    def _calculate_rewards(self: Any, inputs: Any, *rest: Any) -> Any:
        rewards = super()._calculate_rewards([{**row, "answer": "o"} for row in inputs], *rest)  # type: ignore[misc]
        pairs = zip(self.environments, inputs, strict=True)
        seen = [ord(room.answer) if room.answer == row["answer"] else 1e6 for room, row in pairs]
        return rewards + rewards.new_tensor(seen)[:, None] / 100


def in_room(completions: Any, environments: Any, answer: Any, **_: Any) -> list[float]:
    return [ord(room.answer) / 100 + ord(one) for room, one in zip(environments, answer, strict=True)]


class Calling:
    """Calls the functions itself: one again with the same lists, which have changed."""

    def _calculate_rewards(self: Any, inputs: Any, prompts: Any, completions: Any, ids: Any) -> Any:
        first, second, _ = self.reward_funcs
        texts, answers = list(completions), [row["answer"] for row in inputs]
        same = {"prompts": prompts, "completions": texts, "completion_ids": ids, "answer": answers}
        columns = [first(**same), second(prompts=prompts, completions=["aeiou"] * len(texts), answer=answers)]
        texts[:] = ["a" + text for text in texts]
        columns.append(first(**same))
        return torch.tensor([[math.nan if value is None else value for value in column] for column in columns]).T


class Halving:
    """Asks for the rewards of a batch, and of its halves."""

    def _calculate_rewards(self: Any, *given: Any) -> Any:
        half = len(given[0]) // 2
        calls = [given, [values[:half] for values in given], [values[half:] for values in given], given]
        first, *halves, last = [super(Halving, self)._calculate_rewards(*each) for each in calls]  # type: ignore[misc]
        return first + torch.cat(halves) + last


@pytest.mark.parametrize(
    ("mixin", "modes", "options"),
    [
        (Likelihood, ["off", "one_step"], {"beta": 0.2}),
        (InRooms, ["off", "mini_batch", "one_step"], {"conversational": True, "environment_factory": Room}),
        (Calling, ["off", "all"], {}),
        (Halving, ["overlap", "one_step"], {}),
        (Halving, ["off"], {"evaluate": True}),
    ],
)
def test_an_override_of_the_rewards_sees_the_trainer_as_in_trl(
    mixin: Any, modes: list[str], options: dict[str, Any], tmp_path: Path
) -> None:
    functions = [in_room] if mixin is InRooms else REWARDS
    models = [make_scorer(tmp_path)] if mixin is Halving else []
    with Dispatcher(functions, workers=1) as made:
        expected: list[Any] = [*functions, *models]
        compare(mixin, modes, tmp_path, made, expected, front=modes[:1], own=models, **options)

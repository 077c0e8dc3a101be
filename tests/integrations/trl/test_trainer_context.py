"""Columns and their caller, without a real trainer."""

from __future__ import annotations

import threading
import types
from typing import Any

import numpy as np
import pytest

from guerdon import DataError, Dispatcher, GuerdonError, GuerdonWarning, RewardFailureError, group_reward, reward
from guerdon._batch.failures import BatchFailures, FunctionFailures
from guerdon._batch.trainer.context import TrainerContext, TrainerMemory, context_of
from guerdon.integrations.trl import trainer_context as integration
from guerdon.integrations.trl.trainer_context import RankReport, TRLTrainerContext
from tests.processes import run_python

# These call columns by themselves; tests/integrations/trl/test_unmasked_trainers.py has the
# warning.
pytestmark = pytest.mark.filterwarnings("ignore:.*is not known to leave out samples")


class Trainer:
    """A trainer with the attributes that a column looks for."""

    def __init__(self, **attributes: Any) -> None:
        self.num_generations = 4
        self.num_generations_eval: int | None = 2
        self.reward_funcs: list[Any] = []
        self.reward_weights = [1.0]
        self.model = types.SimpleNamespace(training=True)
        self.logged: list[tuple[str, Any]] = []
        vars(self).update(attributes)

    def train(self, call: Any) -> Any:
        return call()

    def log_extra(self, column: str, values: list[Any]) -> None:
        self.logged.append((column, values))

    def log_metric(self, name: str, value: float) -> None:
        self.logged.append((name, value))

    def arguments(self, *texts: str) -> dict[str, Any]:
        count = len(texts)
        return {
            "prompts": ["p"] * count,
            "completions": list(texts),
            "completion_ids": [[1]] * count,
            "log_extra": self.log_extra,
            "log_metric": self.log_metric,
        }


@group_reward(lane="thread")
def size(completions: list[str]) -> list[float]:
    return [float(len(completions))] * len(completions)


@reward(lane="thread")
def one(completion: str) -> float:
    return 1.0


@reward(lane="thread")
def picky(completion: str) -> float:
    if completion == "bad":
        raise ValueError("a bad one")
    return 1.0


class Ranks:
    """Two ranks of torch.distributed; the other one's message is fixed."""

    def __init__(self, other: Any = None, rank: int = 0) -> None:
        self.other, self.rank = RankReport(None, None) if other is None else other, rank
        self.gathered: list[Any] = []

    def get_world_size(self) -> int:
        return 2

    def all_gather_object(self, every: list[Any], mine: Any) -> None:
        self.gathered.append(mine)
        every[self.rank], every[1 - self.rank] = mine, self.other


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    made = Ranks()
    monkeypatch.setattr(integration, "_distributed", lambda: made)
    return made


def test_the_trainer_is_found_behind_either_recorder() -> None:
    trainer, memories = Trainer(), dict[Any, TrainerMemory]()
    for name in ("log_extra", "log_metric"):
        assert context_of({name: getattr(trainer, name)}, memories).group_size() == 4
    assert list(memories) == [trainer]


@pytest.mark.parametrize("log", [print, lambda *_: None, [].append, None, types.SimpleNamespace().__repr__])
def test_other_recorders_have_no_trainer(log: Any) -> None:
    assert context_of({"log_metric": log}, {}).group_size() is None


def test_a_group_function_sees_the_trainers_groups() -> None:
    trainer = Trainer()
    with Dispatcher([size]) as dispatcher:
        assert dispatcher.reward_funcs[0](**trainer.arguments(*"abcdefgh")) == [4.0] * 8
        trainer.model.training = False
        assert dispatcher.reward_funcs[0](**trainer.arguments("a", "b")) == [2.0] * 2
        with pytest.raises(DataError, match="3 samples don't make whole groups of num_generations=2"):
            dispatcher.reward_funcs[0](**trainer.arguments("a", "b", "c"))
    with Dispatcher([size], num_generations=4) as dispatcher:
        with pytest.raises(DataError, match=r"num_generations=4, and the trainer's groups have 2 completions"):
            dispatcher.reward_funcs[0](**trainer.arguments("a", "b", "c", "d"))
        trainer.num_generations_eval = None
        assert dispatcher.reward_funcs[0](**trainer.arguments(*"abcd")) == [4.0] * 4
        trainer.model.training = True
        assert dispatcher.reward_funcs[0](**trainer.arguments(*"abcd")) == [4.0] * 4


def test_a_group_that_is_split_over_ranks_is_refused_where_a_function_needs_it_whole(ranks: Ranks) -> None:
    trainer = Trainer()
    with Dispatcher([size]) as dispatcher, pytest.raises(DataError, match=r"rank 0: 'size'.*6 samples of this rank"):
        dispatcher.reward_funcs[0](**trainer.arguments(*"abcdef"))
    with Dispatcher([one]) as dispatcher:
        assert dispatcher.reward_funcs[0](**trainer.arguments(*"abcdef")) == [1.0] * 6
        with pytest.raises(DataError, match=r"5 samples on each of 2 ranks don't make whole groups"):
            dispatcher.reward_funcs[0](**trainer.arguments(*"abcde"))


class OldGRPOTrainer(Trainer):
    """One that passes nothing of itself to its functions, as TRL's before 1.0 do."""

    args = None

    def score(self, *texts: str) -> list[Any]:
        return [function(prompts=list(texts), completions=list(texts)) for function in self.reward_funcs]


# The same code in a module of TRL's, of which it is known that every rank calls it
TRLS: dict[str, Any] = {"__name__": "trl.trainer.grpo_trainer"}
exec(
    "def score(self, *texts):\n    return [one(prompts=[*texts], completions=[*texts]) for one in self.reward_funcs]",
    TRLS,
)


@pytest.mark.parametrize("kind", [OldGRPOTrainer, type("GRPOTrainer", (OldGRPOTrainer,), {"score": TRLS["score"]})])
def test_a_trainer_that_passes_nothing_is_found_where_it_calls(kind: Any, ranks: Ranks) -> None:
    with Dispatcher([size]) as dispatcher:
        trainer = kind(reward_funcs=dispatcher.reward_funcs)
        with pytest.warns(GuerdonWarning, match=rf"{kind.__name__}.* is not known to leave out samples"):
            assert trainer.score(*"abcdefgh") == [[4.0] * 8]
        trainer.model.training = False
        assert trainer.score("a", "b") == [[2.0] * 2]
    assert len(ranks.gathered) == (0 if kind is OldGRPOTrainer else 2)


@pytest.mark.filterwarnings("error:.*is not known to leave out samples")
@pytest.mark.parametrize(
    ("options", "of_dispatcher"),
    [({}, {"incomplete": "sum"}), *(({"on_failure": choice}, {}) for choice in (0.0, "abstain", "raise"))],
)
def test_explicit_choice_is_not_warned_of(options: dict[str, Any], of_dispatcher: dict[str, Any]) -> None:
    good = reward(lambda text: 1.0, name="good", lane="thread", **options)
    with Dispatcher([good], **of_dispatcher) as dispatcher:
        assert OldGRPOTrainer(reward_funcs=dispatcher.reward_funcs).score(*"abcd") == [[1.0] * 4]


def test_the_first_rank_that_failed_speaks_for_all(ranks: Ranks) -> None:
    context = TRLTrainerContext(TrainerMemory(), Trainer())
    assert context.agree(None, None) is None
    ranks.other = RankReport((RewardFailureError, "too many"), None)
    for mine in (None, ValueError("mine")):
        ranks.rank = 1
        error = context.agree(mine, None)
        assert type(error) is RewardFailureError
        assert str(error) == "rank 0: too many"
    ranks.rank = 0
    error = context.agree(DataError("mine"), None)
    assert type(error) is DataError
    assert str(error) == "rank 0: mine"
    # An error that takes more than a message becomes one that every rank can make.
    error = context.agree(OSError(2, "mine"), None)
    assert type(error) is GuerdonError
    assert ranks.gathered[-1] == RankReport((GuerdonError, "[Errno 2] mine"), None)


def test_a_rank_that_can_score_raises_with_the_others(ranks: Ranks) -> None:
    ranks.rank, ranks.other = 1, RankReport((RewardFailureError, "too many"), None)
    with Dispatcher([one]) as dispatcher:
        with pytest.raises(RewardFailureError, match="rank 0: too many") as caught:
            dispatcher.reward_funcs[0](**Trainer().arguments("a", "b", "c", "d"))
        assert caught.value.result is not None
    assert ranks.gathered == [RankReport(None, BatchFailures(4, {}))]


def test_failures_are_those_of_all_ranks(ranks: Ranks) -> None:
    """Batches that a rank scores beside its trainer's own are not counted."""

    trainer = Trainer()
    with Dispatcher([picky], incomplete="sum") as dispatcher:
        column = dispatcher.reward_funcs[0]
        ranks.other = RankReport(None, BatchFailures(8, {}))
        for _ in range(20):  # 4 of 16
            assert column(**trainer.arguments(*["bad"] * 4, *"abcd"))[0] is None
        with pytest.raises(RewardFailureError, match="failed on 8 of 8 samples"):
            dispatcher.score(completions=["bad"] * 8)
        failures = FunctionFailures(tuple(range(8)), {"error": 8}, "sample 0: bad", "Mend it.")
        ranks.other = RankReport(None, BatchFailures(8, {"picky": failures}))
        with pytest.raises(RewardFailureError, match="failed on 16 of 16 samples on 2 ranks") as caught:
            column(**trainer.arguments(*["bad"] * 8))
    assert caught.value.result is not None
    assert len(caught.value.result) == 8


def test_ranks_are_asked_on_the_trainers_thread_alone(ranks: Ranks) -> None:
    """The main thread, or one that runs the trainer: only there its collectives are in order."""
    error, trainer, got = ValueError("mine"), Trainer(), list[Any]()
    assert TrainerContext(TrainerMemory()).agree(error, None) is error

    def ask() -> None:
        got.append(TRLTrainerContext(TrainerMemory(), trainer).agree(error, None))

    for target, asked in ((ask, 0), (lambda: trainer.train(ask), 1)):
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
        assert len(ranks.gathered) == asked
    assert got[0] is error
    assert str(got[1]) == "rank 0: mine"


def test_a_column_once_logged_is_logged_for_every_batch_of_its_trainer() -> None:
    @reward(lane="thread")
    def once(completion: str, log_extra: Any) -> float:
        if completion == "a":
            log_extra("seen", [completion])
        return 1.0

    first, second = Trainer(), Trainer()
    with Dispatcher([once]) as dispatcher:
        for trainer, texts in ((first, "abcd"), (first, "bbbb"), (second, "bbbb")):
            dispatcher.reward_funcs[0](**trainer.arguments(*texts))
    assert [entry for entry in first.logged if entry[0] == "seen"] == [
        ("seen", ["a", None, None, None]),
        ("seen", [None] * 4),
    ]
    assert not [entry for entry in second.logged if entry[0] == "seen"]


def test_the_first_failure_of_each_kind_is_reported_once_a_trainer(caplog: pytest.LogCaptureFixture) -> None:
    with Dispatcher([picky]) as dispatcher:
        for trainer in (Trainer(), Trainer()):
            for _ in range(2):
                dispatcher.reward_funcs[0](**trainer.arguments("a", "bad", "c", "bad"))
    reported = [record.getMessage() for record in caplog.records if record.name == "guerdon"]
    assert len(reported) == 2
    assert all("'picky' on sample 1: error: ValueError: a bad one" in line for line in reported)
    assert all("guerdon/picky/…_frac" in line for line in reported)


def test_weights_that_float32_makes_equal_or_of_a_longer_list_are_accepted() -> None:
    with Dispatcher([one, size], weights=[1, 0.1]) as dispatcher:
        columns = dispatcher.reward_funcs
        for functions, weights in ((columns, [1.0, float(np.float32(0.1))]), ([*columns, print], [1.0, 2.0, 3.0])):
            trainer = Trainer(reward_funcs=functions, reward_weights=weights)
            assert columns[0](**trainer.arguments(*"abcd")) == [1.0] * 4


def test_weights_are_compared_once_a_trainer() -> None:
    with Dispatcher([one], weights=[0.5]) as dispatcher:
        column = dispatcher.reward_funcs[0]
        good, bad = Trainer(reward_funcs=[column], reward_weights=[0.5]), Trainer(reward_funcs=[column])
        column(**good.arguments(*"abcd"))
        good.reward_weights = [7.0]  # a schedule of the trainer's own
        column(**good.arguments(*"abcd"))
        for _ in range(2):
            with pytest.raises(DataError, match=r"\[1\.0\].*\[0\.5\]"):
                column(**bad.arguments(*"abcd"))


def test_nothing_of_the_trainer_is_imported() -> None:
    code = (
        "import sys; import guerdon.integrations.trl.trainer_context; import guerdon._batch.trainer.context; guerdon.Dispatcher;"
        "print([name for name in ('torch', 'trl', 'transformers', 'numpy', 'asyncio') if name in sys.modules])"
    )
    assert run_python(code).stdout.strip() == "[]"


def test_functions_of_the_trainer_still_count_failed_samples_and_are_reported() -> None:
    with Dispatcher([picky]) as dispatcher:
        column = dispatcher.reward_funcs[0]
        alone = Trainer(reward_funcs=[column], reward_func_names=["picky"])
        mixed = Trainer(reward_funcs=[column, print], reward_func_names=["picky", "Environment"])
        assert column(**alone.arguments("bad", "b", "c", "d")) == [None, 1.0, 1.0, 1.0]
        with pytest.warns(GuerdonWarning, match="trainer itself runs Environment and still counts it"):
            column(**mixed.arguments("bad", "b", "c", "d"))
        column(**mixed.arguments("bad", "b", "c", "d"))  # reported once; warnings are errors here

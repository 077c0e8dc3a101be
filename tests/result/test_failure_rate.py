"""Functions that fail too often (failure-rate-1, failure-rate-2), and such as say nothing or the
same for every sample."""

from __future__ import annotations

import asyncio
import random
import warnings
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, QuietRewardWarning, reward
from guerdon._batch.failure_rate import MIN_ALL_FAILED, MIN_JUDGED, WINDOW, FailureRate, FailureWindow
from guerdon._batch.failures import BatchFailures, FunctionFailures
from tests.processes import run_python


def batch(samples: int, failed: Iterable[int] = (), *, cancelled: bool = False) -> BatchFailures:
    """One rank's batch, with these samples failed."""
    places = tuple(sorted(failed))
    found = FunctionFailures(places, {"error": len(places)}, f"sample {places[0]}: bad", "Mend it.") if places else None
    return BatchFailures(samples, {} if found is None else {"f": found}, cancelled)


def ended_at(days: Iterable[Sequence[BatchFailures | None]], limit: float = 0.5) -> int | None:
    """The number of the batch that ends the run; None if none does."""
    rate = FailureRate({"f": limit})
    return next((number for number, ranks in enumerate(days) if rate.add(ranks) is not None), None)


GOOD, ALL_FAILED, BAD = batch(8), batch(8, range(8)), batch(16, range(15))
HARD = batch(8, range(5))  # timeouts in a batch of one group, by the defaults of a GRPO trainer


@pytest.mark.parametrize(
    ("days", "limit", "end"),
    [
        pytest.param([[HARD]], 0.5, None, id="one hard prompt"),
        *(([*[[GOOD]] * between, [HARD]] * 100, 0.5, None) for between in (1, 3, 20)),
        ([[HARD]] * 7, 0.5, None),
        pytest.param([[HARD]] * 8, 0.5, 7, id="40 of 64"),
        pytest.param([[batch(MIN_ALL_FAILED, range(MIN_ALL_FAILED))]], 0.5, 0, id="all of a batch"),
        pytest.param([[batch(7, range(7))]] * 100, 0.5, MIN_JUDGED // 7, id="too small to tell alone"),
        ([[batch(1, [0])]] * 100, 0.5, MIN_JUDGED - 1),
        pytest.param([*[[GOOD]] * 1000, [ALL_FAILED]], 0.5, 1000, id="after long good days"),
        pytest.param([[ALL_FAILED, ALL_FAILED]] * 100, 1.0, None, id="limit 1"),
        ([[batch(16)], [batch(16, [3])], [batch(16)], [batch(15)], [batch(16, [1])]], 0.0, 4),
        pytest.param([[batch(16)]] * 50, 0.0, None, id="limit 0 without failures"),
        pytest.param([[GOOD, ALL_FAILED]] * 200, 0.5, None, id="no more than the limit"),
        ([[GOOD, ALL_FAILED]] * 200, 0.4, MIN_JUDGED // 16 - 1),
        ([[ALL_FAILED, ALL_FAILED]], 0.5, 0),
        pytest.param([[batch(4, range(4)), batch(4, range(4))]], 0.5, 0, id="8 in all"),
        ([[batch(4, range(4)), batch(3, range(3))]], 0.5, None),
        pytest.param([[None, ALL_FAILED]], 0.5, 0, id="a rank that scores nothing"),
        pytest.param([[*[GOOD] * 7, ALL_FAILED]] * 500, 0.5, None, id="one bad rank of eight"),
        ([[*[GOOD] * 7, ALL_FAILED]] * 500, 0.12, 0),
        pytest.param([[batch(16)], [BAD]] * 500, 0.5, None, id="the mean of alternating batches"),
        pytest.param([[batch(16)], [BAD]] * 500, 0.4, 3, id="30 of 64"),
        pytest.param([[batch(16)], [BAD], [BAD]] * 500, 0.5, 4, id="45 of 80"),
        pytest.param([[batch(1000, range(700, 1000))]], 0.5, None, id="a batch larger than the window"),
        ([[batch(1000, range(501))]], 0.5, 0),
    ],
)
def test_the_batch_that_ends_a_run(days: list[Any], limit: float, end: int | None) -> None:
    assert ended_at(days, limit) == end


@pytest.mark.parametrize("seed", range(5))
def test_a_drifting_rate_ends_the_run_near_the_limit(seed: int) -> None:
    """The rate goes from 0 to 100 % over 400 batches of 32, and the run ends where the window's
    share is the limit."""
    chance = random.Random(seed)
    days = [
        [batch(16, [one for one in range(16) if chance.random() < day / 400]) for _ in range(2)] for day in range(400)
    ]
    end = ended_at(days)
    assert end is not None
    assert 170 <= end <= 230


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_a_steady_rate_well_below_the_limit_ends_nothing(share: float) -> None:
    chance = random.Random(7)
    days = ([batch(8, [one for one in range(8) if chance.random() < share])] for _ in range(20_000))
    assert ended_at(days) is None


def test_older_samples_are_forgotten() -> None:
    bad, good = [batch(100, range(50))], [batch(WINDOW)]
    rate = FailureRate({"f": 0.5})
    for ranks in (bad, good, [batch(100, range(90))], [batch(30, range(29))]):
        assert rate.add(ranks) is None
    message = rate.add([batch(30, range(29))])
    assert message is not None
    assert "failed on 148 of its last 256 samples (limit 50 %), in this batch on 29 of 30: 29 error." in message


@pytest.mark.parametrize("seed", range(20))
def test_the_window_is_the_last_samples(seed: int) -> None:
    """Against all samples in a list."""
    chance = random.Random(seed)
    window = FailureWindow()
    samples: deque[bool] = deque()
    for _ in range(60):
        size = chance.choice([0, 1, 3, 8, 64, 255, 256, 257, 700])
        failed = sorted(chance.sample(range(size), chance.choice([0, 0, chance.randint(0, size)])))
        window.add(size, failed)
        samples.extend(place in set(failed) for place in range(size))
        while size and len(samples) > max(WINDOW, size):
            samples.popleft()
        assert (window.samples, window.failed) == (len(samples), sum(samples))


def test_ranks_that_add_the_same_come_to_the_same_end() -> None:
    chance = random.Random(3)
    rates = [FailureRate({"f": 0.5}) for _ in range(2)]
    for _ in range(300):
        ranks = [batch(8, [one for one in range(8) if chance.random() < 0.5]) for _ in range(4)]
        one, other = (rate.add(ranks) for rate in rates)
        assert one == other


def test_the_message_names_ranks_where_there_are_several() -> None:
    rate = FailureRate({"f": 0.5})
    assert rate.add([batch(8), batch(8, [2])]) is None
    message = rate.add([batch(4, range(4)), batch(4, range(4))])
    assert message is not None
    assert message.startswith("reward function 'f' failed on 8 of 8 samples on 2 ranks (limit 50 %): 8 error.")
    assert "First: rank 0, sample 0: bad. Mend it." in message


@pytest.mark.parametrize(
    ("first", "later"), [(batch(256, range(256)), [1]), (batch(256, range(200), cancelled=True), range(30))]
)
def test_batches_after_an_error_or_a_cancelled_batch_are_judged_anew(
    first: BatchFailures, later: Iterable[int]
) -> None:
    """A caller that catches the error and goes on does not meet old failures again."""
    rate = FailureRate({"f": 0.5})
    assert rate.add([first]) is not None
    assert rate.add([batch(64, later)]) is None


def forgets_its_return(completion: str) -> float | None:
    float(len(completion))
    return None


def finds_nothing(completion: str) -> float:
    return 0.0


def alternates(completion: str) -> float:
    return float(len(completion) % 2)


def sometimes(completion: str) -> float | None:
    return 1.0 if len(completion) % 2 else None


def fails(completion: str) -> float:
    raise ValueError(completion)


def warned(functions: list[Any], batches: list[int], **options: Any) -> list[str]:
    """What is warned of in batches of these sizes."""
    functions = [reward(function, lane="thread") for function in functions]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Dispatcher(functions, max_failure_rate=1.0) as dispatcher:
            for samples in batches:
                dispatcher.score(completions=["a" * index for index in range(samples)], **options)
    return [str(one.message) for one in caught if one.category is QuietRewardWarning]


def test_function_that_abstains_on_64_samples_is_reported_once() -> None:
    assert warned([forgets_its_return], [60, 3]) == []
    [message] = warned([forgets_its_return, alternates], [60, 4, 64, 64])
    assert "'forgets_its_return' abstained on each of its first 64 samples" in message
    assert "forget a return" in message
    assert "too hard" in message
    assert message.endswith("The first completion was: ''")


def test_function_that_gives_256_samples_one_number_is_reported_once() -> None:
    assert warned([finds_nothing], [200, 55]) == []
    [message] = warned([alternates, finds_nothing], [200, 56, 300])
    assert "'finds_nothing' gave the reward 0 to each of its first 256 samples" in message
    assert "hard data set" in message


def test_functions_with_two_answers_and_failed_calls_are_not_reported() -> None:
    assert warned([alternates, sometimes, fails], [2, 300]) == []
    assert warned([alternates], [4], prompts=["a"] * 4) == [], "texts for parameters of strings"


def test_samples_that_are_scored_one_by_one_are_counted() -> None:
    async def score(dispatcher: Dispatcher) -> None:
        await asyncio.gather(*(dispatcher.ascore_one(completion=str(index)) for index in range(64)))

    with (
        Dispatcher([reward(forgets_its_return, lane="thread")]) as dispatcher,
        pytest.warns(QuietRewardWarning, match="'forgets_its_return' abstained on each of its first"),
    ):
        asyncio.run(score(dispatcher))


def test_warning_is_printed_where_warnings_are_errors(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from guerdon import Dispatcher, reward\n"
        "def f(completion): pass\n"
        "with Dispatcher([reward(f, lane='thread')]) as dispatcher:\n"
        "    print(dispatcher.score(completions=['a'] * 64).status.tolist()[0])\n"
    )
    ended = run_python(program, flags=["-W", "error"])
    assert ended.stdout == "[[1]]\n"
    assert ended.stderr.startswith("guerdon: reward function 'f' abstained on each of its first 64 samples")


MESSAGES = [{"role": "assistant", "content": "a"}]


def test_str_parameter_that_gets_messages_is_reported_once() -> None:
    def strict(prompt: str, completion: str, text: str, untyped: Any, answer: str) -> float:
        return float(completion == answer)

    options = {"prompts": [MESSAGES] * 2, "completions": [MESSAGES] * 2, "untyped": [MESSAGES] * 2, "answer": ["a"] * 2}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Dispatcher([reward(strict, lane="thread")]) as dispatcher:
            dispatcher.score(**options)
            dispatcher.score(**options)
    messages = [str(one.message) for one in caught if one.category is QuietRewardWarning]
    assert len(messages) == 2
    assert "'strict': its parameter 'prompt' is annotated as str" in messages[0]
    assert "its parameter 'completion' is annotated as str" in messages[1]
    assert "Take the parameter text in its place" in messages[1]

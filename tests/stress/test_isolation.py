"""isolation="call": each call in a fork of its own."""

from __future__ import annotations

import pytest

from guerdon import Dispatcher, StatefulReward, Status, reward
from tests.stress import limited_functions
from tests.stress.harness import wait_for


@pytest.mark.fault(
    'functions leave state behind, hang, abort and raise under `isolation="call"`',
    sees="each in its own cell; no call sees what another left, each has a process of its own",
)
def test_calls_share_nothing_and_fail_alone() -> None:
    texts = ["fine"] * 60
    wrong = {7: ("hang", Status.TIMEOUT), 23: ("die", Status.CRASHED), 40: ("raise", Status.ERROR)}
    for index, (text, _) in wrong.items():
        texts[index] = text
    function = reward(limited_functions.leaking, isolation="call", timeout=3.0, grace=0.2)
    with Dispatcher(
        [function, reward(limited_functions.leaking, name="shared", timeout=3.0, grace=0.2)], workers=2
    ) as dispatcher:
        result = dispatcher.score(completions=texts, num_generations=4)
        pids = [pid for pid in result.extra["leaking/pid"] if pid is not None]
        assert len(set(pids)) == len(pids) == 57
        kept = [index for index in range(60) if index not in wrong]
        assert result.rewards.reshape(60, 2)[kept, 0].tolist() == [1.0] * 57
        assert {f.sample: f.status for f in result.failures() if f.function == "leaking"} == {
            index: status for index, (_, status) in wrong.items()
        }
        assert result.rewards.reshape(60, 2)[kept, 1].max() > 1

        def all_are_back() -> bool:
            if len(dispatcher.worker_pids()) < 2:  # they start as work comes
                dispatcher.score(completions=["fine"] * 60, num_generations=4)
            return len(dispatcher.worker_pids()) >= 2

        wait_for(all_are_back, "as many workers as before")


class Once(StatefulReward):
    """Counts its own setups and finishes groups."""

    def __init__(self) -> None:
        self.setups = 0

    def setup(self) -> None:
        self.setups += 1

    def score(self, completion: str, log_extra: object) -> float:
        log_extra("seen", [completion])  # type: ignore[operator]
        return float(self.setups)

    def finish_group(self, scores: list[float | None], **columns: object) -> list[float | None]:
        return [None if score is None else score * 10 + self.setups for score in scores]


def test_each_fork_is_set_up_and_its_records_arrive() -> None:
    with Dispatcher([reward(Once(), name="once", isolation="call")], workers=2) as dispatcher:
        result = dispatcher.score(completions=[str(index) for index in range(12)], num_generations=3)
    assert not result.failures()
    assert result.rewards.ravel().tolist() == [11.0] * 12
    assert result.extra["seen"] == [str(index) for index in range(12)]


def counting(completions: list[str], **columns: object) -> list[float]:
    limited_functions._seen.append("batch")
    return [float(len(limited_functions._seen))] * len(completions)


def test_a_pinned_function_keeps_its_state_beside_it() -> None:
    with Dispatcher([counting, reward(limited_functions.leaking, isolation="call")], workers=2) as dispatcher:
        for step in (1, 2, 3):
            result = dispatcher.score(prompts=["p"] * 8, completions=["fine"] * 8)
            assert result.rewards.reshape(8, 2).tolist() == [[float(step), 1.0]] * 8


def test_retries_get_a_fork_each() -> None:
    function = reward(limited_functions.leaking, isolation="call", retries=2, max_failure_rate=1.0)
    with Dispatcher([function], workers=2) as dispatcher:
        (failure,) = dispatcher.score(completions=["fine", "raise", "fine"]).failures()
    assert (failure.sample, failure.status, failure.attempts) == (1, Status.ERROR, 3)

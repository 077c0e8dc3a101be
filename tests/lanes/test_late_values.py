"""Values that an abandoned call was the last to hold are not let go on its thread: their `__del__`
may be the user's code."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any, ClassVar

import pytest

from guerdon import Dispatcher, Status, reward

ENOUGH = 60.0


class WatchedCall:
    """Tells on which thread it ended."""

    ended: ClassVar[list[str]] = []

    def __del__(self) -> None:
        WatchedCall.ended.append(threading.current_thread().name)


@pytest.mark.parametrize("next_batch", [False, True])
@pytest.mark.filterwarnings("default")
def test_the_last_values_of_a_late_call_end_elsewhere(next_batch: bool) -> None:
    go, names = threading.Event(), []

    def waits(completion: str, **row: Any) -> float:
        del row  # the engine alone holds the value
        names.append(threading.current_thread().name)
        assert go.wait(ENOUGH) or completion
        return 1.0

    WatchedCall.ended.clear()
    with Dispatcher([reward(waits, lane="thread", timeout=0.1, grace=0)], max_failure_rate=1) as dispatcher:
        result = dispatcher.score(completions=["a"], num_generations=1, watched=[WatchedCall()])
        assert result.status.tolist() == [[[Status.TIMEOUT]]]
        go.set()
        deadline = time.monotonic() + ENOUGH
        while not WatchedCall.ended and time.monotonic() < deadline:
            if next_batch:
                dispatcher.score(completions=["b"], num_generations=1, watched=[1])
            gc.collect()
            time.sleep(0.01)
    assert len(WatchedCall.ended) == 1
    assert WatchedCall.ended[0] not in names

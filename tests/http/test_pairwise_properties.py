"""Comparisons of random groups with judges that fail, dawdle and prefer a place: what is asked, and
what the scores say."""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guerdon import Status
from tests.http.comparisons import comparing
from tests.http.scoring import scored
from tests.http.server import chat_completion, question, serving

Pair = tuple[int, int, int]


class Judge:
    """Takes the first of two unless the second is better by more than `bias`; -`bias` the other way
    round. Some requests fail once, and some pairs always."""

    def __init__(self, seed: int, bias: int, breaks: float, refused: set[frozenset[int]]) -> None:
        self._random = random.Random(seed)
        self._bias, self._breaks, self._refused = bias, breaks, refused
        self._lock = threading.Lock()
        self.scored: Counter[Pair] = Counter()
        self.refusals: Counter[Pair] = Counter()
        self._broken: set[Pair] = set()

    def __call__(self, path: str, body: dict[str, Any]) -> Any:
        group, one, other = map(int, re.findall(r"\d+", question(body)))
        asked = group, one, other
        with self._lock:
            delay = self._random.random() * 0.003
            breaks = asked not in self._broken and self._random.random() < self._breaks
            if breaks:
                self._broken.add(asked)
            elif frozenset(asked[1:]) in self._refused:
                self.refusals[asked] += 1
            else:
                self.scored[asked] += 1
        time.sleep(delay)
        if breaks:
            return 500, {"error": "once"}
        if frozenset(asked[1:]) in self._refused:
            return 400, {"error": "never"}
        return chat_completion("[[A]]" if one + self._bias >= other else "[[B]]")


def pairs_of(schedule: str, size: int) -> int | None:
    """How many pairs a group has; None where it depends on the answers."""
    if schedule == "all":
        return size * (size - 1) // 2
    return None if schedule == "swiss" else size if size > 2 else size - 1


@pytest.mark.fault(
    "a judge of comparisons fails once in a while, refuses some pairs, and prefers the completion that it sees first",
    sees="no comparison is lost or made twice; samples with half of theirs have a score that never contradicts their true order",
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    size=st.integers(1, 6),
    groups=st.integers(1, 3),
    schedule=st.sampled_from(["circular", "all", "swiss"]),
    way=st.sampled_from(["bradley_terry", "win_rate"]),
    both_orders=st.booleans(),
    bias=st.integers(-15, 15),
    breaks=st.sampled_from([0.0, 0.3]),
    refused=st.integers(0, 3),
    seed=st.integers(0, 2**16),
)
def test_random_groups(
    size: int,
    groups: int,
    schedule: str,
    way: str,
    both_orders: bool,
    bias: int,
    breaks: float,
    refused: int,
    seed: int,
) -> None:
    rolls = random.Random(seed)
    qualities = [rolls.sample(range(60), size) for _ in range(groups)]
    possible = [frozenset(pair) for each in qualities for pair in combinations(each, 2)]
    never = set(rolls.sample(possible, min(refused, len(possible))))
    server_judge = Judge(seed, bias if both_orders else 0, breaks, never)
    with serving(server_judge) as server:
        result = scored(
            comparing(server, schedule=schedule, score=way, both_orders=both_orders, retries=3),
            [str(quality) for each in qualities for quality in each],
            prompts=[str(group) for group in range(groups) for _ in range(size)],
            num_generations=size,
        )
    if size == 1:
        assert (result.status == Status.ABSTAINED).all()
        assert not server.bodies
        return

    # No request that was answered is made again, in this order of the two or the other.
    assert set(server_judge.scored.values()) <= {1}
    assert all(count == 1 for count in server_judge.refusals.values())
    met = Counter((group, frozenset(pair)) for group, *pair in server_judge.scored)
    assert set(met.values()) <= {1 + both_orders}, "both orders, or the pair is refused"
    tried = Counter((group, frozenset(pair)) for group, *pair in server_judge.refusals)
    for group in range(groups):
        found = sum(one == group for one, _ in met) + sum(one == group for one, _ in tried)
        wanted = pairs_of(schedule, size)
        assert found == wanted if wanted is not None else 0 < found <= (size // 2) * (size.bit_length() + 2)

    counts = np.array(result.extra["pairwise/comparisons"]).reshape(groups, size)
    for group, each in enumerate(qualities):
        own = [sum(one == group and quality in pair for one, pair in met) for quality in each]
        assert counts[group].tolist() == own, "what counted is what was answered"
        asked = [n + sum(one == group and q in pair for one, pair in tried) for n, q in zip(own, each, strict=True)]
        enough = [count > 0 and 2 * count >= meant for count, meant in zip(own, asked, strict=True)]
        rewards, status = result.rewards[group, :, 0], result.status[group, :, 0]
        assert status.tolist() == [Status.OK if one else Status.ERROR for one in enough]
        assert np.isnan(rewards).tolist() == [not one for one in enough]
        assert ((rewards[enough] >= 0) & (rewards[enough] <= 1)).all()
        if schedule == "all" and not any(one == group for one, _ in tried):
            best_last = rewards[np.argsort(each)]
            assert (np.diff(best_last) >= -1e-6).all(), "never against the true order"

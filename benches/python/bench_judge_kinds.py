"""Cost of votes, panels and hedging in CPU of the trainer's process, compared with the plain judge.

    python -m pytest benches/python/bench_judge_kinds.py --benchmark-only

1024 samples, 256 requests in flight, two mock judges of 0.1 s without TLS, in separate processes;
every kind takes its turn in each of nine rounds, after one that makes the connections. Votes and
members agree, so that three of five votes decide. The bound is a plain judge's CPU a request.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from benches.python.mock_judge import mock_judge
from guerdon import Dispatcher, Limit, Server, judge, panel
from tests.http.server import chat_completion, question, serving

CALLS = 1024
AT_ONCE = 256
ROUNDS = 9
TITLE = f"{CALLS} samples, {AT_ONCE} requests of 0.1 s in flight: CPU of the trainer's process"

pytestmark = pytest.mark.timeout(600)


def asked(base_url: object, **options: Any) -> Any:
    prompt = "Rate this from 0 to 10: {completion}"
    made: Any = judge(
        base_url=base_url,  # type: ignore[arg-type]
        model="mock",
        prompt=prompt,
        limit=Limit(concurrency=AT_ONCE),
        pure=False,
        **options,
    )
    return made


# By name: what it is made of, with the addresses of two judges.
KINDS: dict[str, Callable[[str, str], Any]] = {
    "plain judge (the bound)": lambda one, two: asked(one),
    "two endpoints": lambda one, two: asked([one, two]),
    '`hedge_after="p95"`, two endpoints': lambda one, two: asked(None, server=Server([one, two], hedge_after="p95")),
    "`votes=5`": lambda one, two: asked(one, votes=5, temperature=0.7),
    "a panel of two": lambda one, two: panel([asked(one, name="one"), asked(two, name="two")]),
}


@contextmanager
def servers(in_short: bool) -> Iterator[tuple[str, str]]:
    """Two judges; in this process for a run that times nothing."""
    with ExitStack() as stack:

        def short() -> str:
            answer = lambda path, body: chat_completion(question(body).split("[[score ")[1].split("]")[0])  # noqa: E731
            return stack.enter_context(serving(answer)).url

        def real() -> str:
            return stack.enter_context(mock_judge("--latency", "fixed:0.1")).url

        one, two = (short() if in_short else real() for _ in range(2))
        yield f"{one}/v1", f"{two}/v1"


def test_cpu_of_votes_panels_and_hedging(benchmark: Any, tables: Any) -> None:
    calls, rounds = (16, 1) if benchmark.disabled else (CALLS, ROUNDS)
    texts = [f"[[score {index % 11}]] {index} " + "x" * 1000 for index in range(calls)]
    cpu: dict[str, list[float]] = {kind: [] for kind in KINDS}
    requests: dict[str, float] = {}
    with servers(benchmark.disabled) as (one, two), ExitStack() as stack:
        made = {kind: stack.enter_context(Dispatcher([make(one, two)])) for kind, make in KINDS.items()}

        def everything() -> None:
            for kind, dispatcher in made.items():
                start = time.process_time()
                result = dispatcher.score(completions=texts)
                cpu[kind].append((time.process_time() - start) * 1e6 / calls)
                (used,) = result.usage.values()
                requests[kind] = used["requests"] / calls
                assert result.rewards.ravel().tolist() == [float(index % 11) for index in range(calls)]

        everything()
        for times in cpu.values():
            times.clear()
        benchmark.pedantic(everything, rounds=rounds)
    if benchmark.disabled:
        return
    plain = min(cpu["plain judge (the bound)"])
    for kind, times in cpu.items():
        cells = {
            "requests a sample": requests[kind],
            "µs a sample, least": min(times),
            "µs a sample, median": statistics.median(times),
            "µs a request, least": min(times) / requests[kind],
            "÷ the bound": min(times) / requests[kind] / plain,
        }
        tables.add(TITLE, kind, cells)
        benchmark.extra_info[kind] = cells

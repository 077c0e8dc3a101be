"""Metrics for Prometheus: they say what results say, whatever comes to their port."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import guerdon
from guerdon import Dispatcher, Status, group_reward, reward
from guerdon._native import metric_families
from tests.http.server import serving
from tests.monitor import reading
from tests.monitor.reading import connection_to, scripted, value
from tests.processes import started_python

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


@reward(timeout=0.05)
async def awaited(text: str) -> float:
    if text == "slow":
        await asyncio.sleep(60)
    return 1.0


@group_reward(lane="thread")
def ranks(completions: list[str]) -> list[float]:
    return [float(place) for place in range(len(completions))]


@reward(lane="thread", run_if={"scripted": "> 2"}, name='odd "name" \\')
def gated(text: str) -> float:
    return 0.5


FUNCTIONS = [scripted, awaited, ranks, gated]
TEXTS = st.sampled_from(["a", "bcd", "none", "error", "slow"])


@pytest.fixture(scope="module")
def dispatcher() -> Iterator[Dispatcher]:
    """A dispatcher that has scored and serves its metrics."""
    with Dispatcher([scripted], metrics_port=0) as made:
        made.score(completions=["a"])
        yield made


def batches() -> st.SearchStrategy[list[tuple[int, list[str]]]]:
    """Batches: the size of groups, and the texts."""
    sizes = st.integers(1, 4)
    one = sizes.flatmap(lambda size: st.lists(TEXTS, min_size=size, max_size=12).map(lambda texts: (size, texts)))
    return st.lists(one.map(lambda pair: (pair[0], pair[1][: len(pair[1]) // pair[0] * pair[0]])), max_size=4)


@settings(max_examples=12)
@given(given_batches=batches())
def test_counts_are_those_of_the_results(given_batches: list[tuple[int, list[str]]]) -> None:
    with Dispatcher(FUNCTIONS, metrics_port=0, max_failure_rate=1.0) as dispatcher:
        results = [dispatcher.score(completions=["a"], num_generations=1)]  # starts it
        results += [dispatcher.score(completions=texts, num_generations=size) for size, texts in given_batches]
        body = reading.text(dispatcher)
    found = reading.series(reading.families(body))
    for index, name in enumerate(dispatcher.names):
        counted: Counter[str] = Counter()
        runs: list[float] = []
        groups = flat = 0
        for result in results:
            counted.update(Status(status).label for status in result.status[..., index].ravel())
            # A group's call counts once.
            calls = slice(None, 1) if name == "ranks" else slice(None)
            started = result.status[:, calls, index] != Status.SKIPPED
            runs += result.run_s[:, calls, index][started].tolist()
            for rewards in result.rewards[..., index]:
                numbers = [number for number in rewards.tolist() if number == number]
                groups += len(numbers) > 1
                flat += len(numbers) > 1 and len(set(numbers)) == 1
        for status in Status:
            assert value(found, "guerdon_calls_total", function=name, status=status.label) == counted[status.label]
        assert value(found, "guerdon_call_run_seconds_count", function=name) == len(runs)
        assert value(found, "guerdon_call_queue_seconds_count", function=name) == len(runs)
        within = value(found, "guerdon_call_run_seconds_bucket", function=name, le="0.02")
        assert within == sum(run <= 0.02 for run in runs)
        assert value(found, "guerdon_call_run_seconds_sum", function=name) == pytest.approx(sum(runs))
        assert value(found, "guerdon_groups_total", function=name) == groups
        assert value(found, "guerdon_groups_without_spread_total", function=name) == flat
        assert value(found, "guerdon_inflight", function=name) == 0


def test_both_formats_are_as_in_the_table_and_histograms_add_up() -> None:
    with Dispatcher(FUNCTIONS, metrics_port=0, max_failure_rate=1.0) as dispatcher:
        dispatcher.score(completions=["a", "none", "bcd", "error"], num_generations=2)
        families = reading.families(reading.text(dispatcher))
        openly = reading.text(dispatcher, Accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert openly.endswith("# EOF\n")
    found = reading.series(families)
    assert found == reading.series(reading.open_families(openly))
    known = {name: (text, set(labels)) for name, _, labels, text in metric_families()}
    for family in families:
        text, labels = known[family.name + "_total" * (family.type == "counter")]
        assert family.documentation == text
        assert all(set(sample.labels) - {"le", "rank"} == labels for sample in family.samples)
    for (name, its), number in found.items():
        if name.endswith("_bucket") and ("le", "+Inf") in its:
            rest = its - {("le", "+Inf")}
            assert number == found[name.removesuffix("_bucket") + "_count", rest]
            steps = [
                count
                for (other, its), count in sorted(found.items(), key=lambda item: float(dict(item[0][1]).get("le", 0)))
                if other == name and rest <= its
            ]
            assert steps == sorted(steps)


def test_every_metric_is_in_the_documents_table_and_none_else() -> None:
    rows = re.findall(r"^\| `(guerdon_\w+)` \| (\w+) \| ([^|]*) \| ([^|]+) \|$", DOCS.read_text("utf-8"), re.MULTILINE)
    written = [(name, kind, re.findall(r"`(\w+)`", labels), text.strip()) for name, kind, labels, text in rows]
    assert written == metric_families()


def test_a_judges_tokens_and_cost_and_no_zeros_for_what_is_no_judge() -> None:
    answer = {
        "choices": [{"message": {"content": "7"}}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}},
    }
    with serving(lambda path, body: answer) as server:
        judged = guerdon.judge(
            server=guerdon.Server(server.url, price={"input": 1e6, "cached": 1e6, "output": 2e6}),
            model="m",
            prompt="{completion}",
            name="judged",
        )
        with Dispatcher([scripted, judged], metrics_port=0) as dispatcher:
            dispatcher.score(completions=["a", "b"])
            found = reading.series(reading.families(reading.text(dispatcher)))
            shown = reading.state(dispatcher)
    assert value(found, "guerdon_judge_tokens_total", function="judged", kind="prompt") == 22
    assert value(found, "guerdon_judge_tokens_total", function="judged", kind="completion") == 6
    assert value(found, "guerdon_judge_cached_tokens_total", function="judged") == 8
    assert value(found, "guerdon_judge_cost_total", function="judged") == pytest.approx(22 + 12)
    assert value(found, "guerdon_judge_requests_total", function="judged") == 2
    assert value(found, "guerdon_endpoint_answered_total", function="judged", endpoint=server.url) == 2
    assert value(found, "guerdon_endpoint_breaker_state", function="judged", endpoint=server.url) == 0
    assert not any(name.startswith("guerdon_judge") and ("function", "scripted") in labels for name, labels in found)
    assert [one["usage"] is None for one in shown["functions"]] == [True, False]
    assert shown["functions"][1]["usage"]["cost"] == pytest.approx(34)
    assert [(one["function"], one["url"], one["answered"]) for one in shown["endpoints"]] == [("judged", server.url, 2)]


@pytest.mark.fault(
    "metrics are scraped while Python's lock is held and calls are in flight",
    sees="an answer all the same, made without Python",
)
def test_a_scrape_while_the_interpreter_is_held_and_calls_are_in_flight() -> None:
    hung, go = threading.Event(), threading.Event()
    client = (
        "import http.client, sys; connection = http.client.HTTPConnection(sys.argv[1], timeout=60);"
        "connection.request('GET', '/metrics'); print(connection.getresponse().status, flush=True)"
    )

    @reward(lane="thread", name="waits")
    def waits(text: str) -> float:
        hung.set()
        go.wait(250)
        return 1.0

    with Dispatcher([waits], metrics_port=0) as dispatcher:
        pending = dispatcher.submit(completions=["a"] * 4)
        assert hung.wait(60)
        found = reading.series(reading.families(reading.text(dispatcher)))
        # threads come one by one
        assert 1 <= value(found, "guerdon_inflight", function="waits") <= 4
        assert value(found, "guerdon_open_batches") == 1
        # A client in another process, while this one runs nothing but one call of C.
        with started_python(client, reading.address(dispatcher)) as asking:
            held = time.monotonic() + 1.5
            while time.monotonic() < held:
                sorted(range(1_000_000, 0, -1))
            assert asking.communicate(timeout=100)[0].strip() == "200"
        go.set()
        pending.result()


@pytest.mark.fault(
    "sixty clients of the metrics port send half a request and wait",
    sees="others are answered; the oldest of these connections are closed",
)
def test_slow_clients_do_not_keep_others_out(dispatcher: Dispatcher) -> None:
    with contextlib.ExitStack() as clients:
        slow = []
        for _ in range(60):
            slow.append(clients.enter_context(connection_to(reading.address(dispatcher))))
            slow[-1].sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        assert "guerdon_calls_total" in reading.text(dispatcher)
        # The oldest were closed; none may go on for ever.
        for one in slow[:40]:
            with contextlib.suppress(ConnectionResetError):
                assert one.recv(1) == b""


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X%d: a\r\n" % n for n in range(1000)) + b"\r\n",
        b"\x16\x03\x01 no http \r\n\r\n",
    ],
    ids=["long header", "many headers", "no HTTP"],
)
@pytest.mark.fault(
    "a client of the metrics port sends what is no HTTP, or headers without end",
    sees="4xx or a closed connection; the next client is answered",
)
def test_requests_beyond_all_bounds_are_refused(dispatcher: Dispatcher, request_bytes: bytes) -> None:
    answered = b""
    with connection_to(reading.address(dispatcher)) as client, contextlib.suppress(ConnectionError):
        client.sendall(request_bytes)
        answered = client.recv(100)
    assert not answered or answered.startswith(b"HTTP/1.1 4")
    assert "guerdon_calls_total" in reading.text(dispatcher)


def test_only_get_and_only_metrics(dispatcher: Dispatcher) -> None:
    for path, method, status in [
        ("/", "GET", 200),
        ("/state", "GET", 404),  # stacks are for this user alone
        ("/nothing", "GET", 404),
        ("/metrics", "POST", 405),
        ("/metrics", "HEAD", 200),
    ]:
        connection = http.client.HTTPConnection(reading.address(dispatcher), timeout=60)
        assert reading.get(connection, path, method=method)[0] == status, (method, path)


def test_dropped_entries_are_counted_by_sink(tmp_path: Path) -> None:
    name = "guerdon_dropped_rows_total"
    with Dispatcher(
        [scripted], metrics_port=0, trace=tmp_path / "run.pftrace", journal=tmp_path / "rows"
    ) as dispatcher:
        dispatcher.score(completions=["a"])
        dropped = [line for line in reading.text(dispatcher).splitlines() if line.startswith(name)]
        assert dispatcher.stats()["trace_dropped"] == 0
    assert dropped == [f'{name}{{sink="{sink}",rank="0"}} 0' for sink in ("journal", "trace")]

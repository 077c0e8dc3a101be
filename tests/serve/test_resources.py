"""Few descriptors, and big requests: the server goes on for the others."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from guerdon import DataError
from guerdon._serve import endpoint
from guerdon._serve.errors import RequestError
from guerdon._serve.json_body import MOST_VALUES, bytes_of_values
from guerdon._serve.offload import run_owned
from tests.serve.serving import RunningServer, answer_of, serving
from tests.serve.test_load import WAITS, Asked, ask_together

MEGABYTE = 1 << 20


def some_are_refused(asked: Asked) -> bool:
    return any(task.done() and task.exception() is None and task.result().status == 503 for task in asked)


@pytest.mark.fault(
    "more requests at once than a server has descriptors for",
    sees="those beyond wait, or get 503 with `Retry-After`; the others are scored",
)
def test_few_descriptors(tmp_path: Path) -> None:
    go, body = tmp_path / "go", {"texts": ["ab", "c"]}
    with serving(tmp_path, functions="", text=WAITS, ulimit="-n 512", GO=str(go)) as one:
        answers = ask_together(one, [body] * 400, go, some_are_refused)
        found = [(answer.status, answer.headers.get("retry-after")) for answer in answers]
        assert set(found) <= {(200, None), (503, "2")}
        assert found.count((200, None)) >= 20
        assert one.post("/score", {"text": "ab"}).json["reward"] == 2.0
        code, printed = one.end()
    assert code == 0
    assert len(printed) < 1000, printed


def test_the_soft_limit_of_descriptors_is_raised(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with serving(tmp_path, functions="", text=WAITS, ulimit="-Sn 128", GO=str(go)) as one:

        def all_are_in_flight(_: object) -> bool:
            return one.metric("guerdon_serve_samples_in_flight") == 200

        answers = ask_together(one, [{"text": "ab"}] * 200, go, all_are_in_flight)
        assert {(answer.status, answer.headers.get("retry-after")) for answer in answers} == {(200, None)}


@pytest.mark.fault("a body of millions of small values", sees="others are answered meanwhile, `/health` too")
def test_a_big_body_keeps_nobody_waiting(served: RunningServer) -> None:
    body = b'{"completion": "ab", "x": [' + b",".join([b"{}"] * (3 * MEGABYTE // 2)) + b"]}"
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(served.post, "/score?function=length", raw=body)
        answered = 0
        while not asked.done():
            assert served.ask("GET", "/health").status == 200
            answered += 1
    assert asked.result().json["reward"] == 2.0
    assert answered >= 10
    assert served.metric("guerdon_serve_body_bytes") == 0


@pytest.mark.parametrize(("size", "on_loop"), [(100, True), (1 << 19, False)], ids=["small", "big"])
def test_the_work_of_a_big_request_leaves_the_event_loop(
    size: int, on_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, bool] = {}

    def spy(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            seen[name] = threading.current_thread() is threading.main_thread()
            return call(*arguments, **named)

        return called

    def refuse(**_: object) -> Any:
        raise DataError("no more")

    for name in ("bytes_of_values", "read_json"):
        monkeypatch.setattr(endpoint, name, spy(name, getattr(endpoint, name)))
    submitted, scorer = spy("submit", refuse), SimpleNamespace(group_function=None)
    dispatcher: Any = SimpleNamespace(names=("one",), _submitter=scorer, submit=submitted, ascore=submitted)
    body = json.dumps({"completions": ["a" * size, "b"]}).encode()
    assert asyncio.run(answer_of(dispatcher, "/score", body))[0].status == 400
    assert seen == {"bytes_of_values": on_loop, "read_json": on_loop, "submit": on_loop}


def test_a_body_of_too_many_values_is_refused(served: RunningServer) -> None:
    body = b'{"completion": "ab", "x": [' + b",".join([b"0"] * (MOST_VALUES + 1)) + b"]}"
    answer = served.post("/score", raw=body)
    assert answer.status == 413
    assert "send fewer samples a request" in answer.json["error"]
    with pytest.raises(RequestError):
        bytes_of_values(body)
    assert bytes_of_values(b'{"a": [1, 2]}') == 3 * 64


def test_big_lists_are_scored_in_order(served: RunningServer) -> None:
    texts = ["x" * (index * 100) for index in range(100)]
    assert served.post("/score?function=length", {"completions": texts}).json["rewards"] == [
        float(len(text)) for text in texts
    ]


def test_results_are_dropped_after_their_caller_is_cancelled() -> None:
    async def cancel() -> str:
        begun, go_on = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        dropped: asyncio.Queue[str] = asyncio.Queue()

        def make() -> str:
            loop.call_soon_threadsafe(begun.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(20)
            return "made"

        caller = asyncio.ensure_future(
            run_owned(make, lambda made: loop.call_soon_threadsafe(dropped.put_nowait, made))
        )
        await begun.wait()
        caller.cancel()
        await asyncio.wait((caller,))
        go_on.set()
        return await dropped.get()

    assert asyncio.run(cancel()) == "made"

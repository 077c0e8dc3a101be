"""``tools([...])`` by itself."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import pickle
import time
from collections.abc import Callable
from typing import Any

import pytest

# Nothing is looked up or reported; read when the library is imported
os.environ.setdefault("HF_HUB_OFFLINE", "1")
pytest.importorskip("transformers")

from transformers.utils import get_json_schema

from guerdon import ClosedError, RegistrationError, SerializationError, Status, ToolError
from guerdon.integrations.trl import tools
from tests.integrations.trl.tool_calls import tool_functions


def shown(tool: Callable[..., Any]) -> dict[str, Any]:
    schema: dict[str, Any] = get_json_schema(tool)["function"]
    return schema


# --- the list looks like its functions


def test_a_trainer_reads_the_same_of_a_tool() -> None:
    pad = tool_functions.Pad()
    plain = [tool_functions.nap, tool_functions.doze, pad.write, pad.read]
    with tools(plain) as ours:
        assert isinstance(ours, list)
        for tool, function in zip(ours, plain, strict=True):
            assert shown(tool) == shown(function)
            assert (tool.__name__, tool.__doc__) == (function.__name__, function.__doc__)
            assert inspect.signature(tool) == inspect.signature(function)
            assert inspect.iscoroutinefunction(tool) == inspect.iscoroutinefunction(function)
            assert inspect.ismethod(tool)  # what schemas are made of


def test_a_partial_shows_what_is_left_to_say() -> None:
    with tools([functools.partial(tool_functions.nap, label="a")], lane="thread") as (nap,):
        assert list(shown(nap)["parameters"]["properties"]) == ["seconds"]
        assert nap.__name__ == "nap"
        assert nap(seconds=0.0) == f"a {os.getpid()}"


def test_a_callable_object_has_the_name_of_its_class() -> None:
    with tools([tool_functions.Pad()]) as (pad,):
        assert shown(pad)["name"] == "Pad"
        assert list(shown(pad)["parameters"]["properties"]) == ["line"]
        assert [pad(line="a"), pad("b")] == [1, 2]


# --- lanes


def test_stateful_functions_run_where_their_state_is() -> None:
    pad, seen = tool_functions.Pad(), []

    def note(word: str) -> int:
        seen.append(word)
        return len(seen)

    with tools([pad.write, note, pad.read]) as (write, take, read):
        assert write(line="a") == 1
        assert take(word="x") == 1
        assert (pad.lines, seen) == (["a"], ["x"])
        assert asyncio.run(read()) == "a"


def test_a_plain_function_runs_in_a_worker() -> None:
    with tools([tool_functions.nap, functools.partial(tool_functions.pieces)], workers=2) as ours:
        pid = int(ours[0](0.0).split()[-1])
        assert pid != os.getpid()
        assert pid in ours.worker_pids()
        assert ours[0].__self__.launch((0.0, "a"), {}).result().startswith("a ")  # type: ignore[attr-defined]
        assert ours[1]() == [{"type": "text", "text": "seen"}]


def test_async_tools_wait_together() -> None:
    async def both(doze: Callable[..., Any]) -> list[str]:
        return await asyncio.gather(*(doze(seconds=2.0, label=str(index)) for index in range(20)))

    with tools([tool_functions.doze]) as (doze,):
        started = time.monotonic()
        assert asyncio.run(both(doze)) == [str(index) for index in range(20)]
        assert time.monotonic() - started < 30  # one after the other they take forty


# --- failures and counts


def test_a_tool_raises_what_its_function_raised() -> None:
    with tools([tool_functions.fail, tool_functions.fail_oddly], workers=1) as (fail, oddly):
        with pytest.raises(ValueError, match=r"^no such page$"):
            fail(text="no such page")
        with pytest.raises(ToolError, match=r"^7: odd$") as caught:  # it can't be made again here
            oddly()
        assert caught.value.status == Status.ERROR
        with pytest.raises(TypeError, match="missing 1 required positional argument"):
            fail()


def test_a_tool_in_this_process_raises_what_its_function_raised() -> None:
    seen: list[str] = []

    async def look_up(page: str) -> None:
        raise ValueError(page)

    def note(page: str) -> None:
        seen.append(page)
        raise ValueError(page)

    with tools([look_up, note]) as (found, noted):
        for call in (lambda: asyncio.run(found(page="no such page")), lambda: noted(page="no such page")):
            with pytest.raises(ValueError, match=r"^no such page$"):
                call()
    assert seen == ["no such page"]


def test_a_worker_that_takes_too_long_is_ended() -> None:
    with tools([tool_functions.spin, tool_functions.nap], timeout=3.0, workers=1) as ours:
        started = time.monotonic()
        with pytest.raises(ToolError, match=r"spin took longer than 3 s") as caught:
            ours[0]()
        assert caught.value.status == Status.TIMEOUT
        assert time.monotonic() - started < 60
        assert ours[1](0.0)  # the next one has a worker
        counts = ours.stats()
        assert (counts["spin"].calls, counts["spin"].failed, counts["spin"].timeouts) == (1, 1, 1)
        assert counts["spin"].run_s >= 3.0
        assert (counts["nap"].calls, counts["nap"].failed) == (1, 0)


@pytest.mark.parametrize("lane", ["thread", "asyncio"])
def test_a_time_out_in_this_process(lane: str) -> None:
    function = tool_functions.nap if lane == "thread" else tool_functions.doze
    with tools([function], timeout=0.2, lane=lane) as (tool,), pytest.raises(ToolError, match=r"longer than 0\.2 s"):
        asyncio.run(tool(1.0)) if lane == "asyncio" else tool(1.0)


def test_tools_that_all_hang_run_once_and_time_out() -> None:
    """Timeouts in a row open the circuit breaker of an endpoint, which tries calls again."""

    async def all_of_them(doze: Callable[..., Any]) -> list[Any]:
        return await asyncio.gather(*(doze(60.0) for _ in range(10)), return_exceptions=True)

    with tools([tool_functions.doze], timeout=0.5) as ours:
        outcomes = asyncio.run(all_of_them(ours[0]))
        assert {str(one) for one in outcomes} == {"doze took longer than 0.5 s"}
        assert (ours.stats()["doze"].calls, ours.stats()["doze"].timeouts) == (10, 10)


def test_a_process_that_dies_is_reported() -> None:
    with tools([tool_functions.die], workers=1) as (die,):
        with pytest.raises(ToolError, match="die crashed its process") as caught:
            die()
        assert caught.value.status == Status.CRASHED


def test_unsendable_results_come_as_text() -> None:
    """A trainer would have shown its text to the model."""
    with tools([tool_functions.lock], workers=1) as (lock,):
        assert "lock object" in lock()


def test_a_coroutine_that_is_cancelled_cancels_its_call() -> None:
    async def give_up(doze: Callable[..., Any]) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(doze(60.0), 0.2)

    with tools([tool_functions.doze]) as ours:
        started = time.monotonic()
        asyncio.run(give_up(ours[0]))
        assert time.monotonic() - started < 50


def test_a_tool_that_uses_another_one_calls_it_directly() -> None:
    used: list[Any] = []

    def outer(text: str) -> str:
        return f"outer {used[0](text)}"

    def inner(text: str) -> str:
        return f"inner {text}"

    with tools([outer, inner]) as ours:
        used.append(ours[1])
        assert ours[0](text="a") == "outer inner a"
        assert set(ours.stats()) == {"outer"}


def test_nothing_runs_after_close() -> None:
    ours = tools([tool_functions.nap], lane="thread")
    ours.close()
    with pytest.raises(ClosedError):
        ours[0](0.0)


# --- pickling


def test_the_list_and_its_tools_can_be_pickled() -> None:
    with tools([tool_functions.nap, tool_functions.doze], timeout=5) as ours:
        again = pickle.loads(pickle.dumps(ours))
        nap, doze = pickle.loads(pickle.dumps(list(ours)))
    with again:
        assert again[0](0.0) != ""
    assert asyncio.run(doze(0.0, label="b")) == "b"
    nap.__self__.owner.close()
    assert nap.__self__.owner is doze.__self__.owner


# --- refusals


def test_invalid_tools_are_refused() -> None:
    with pytest.raises(RegistrationError, match="two tools are named 'nap'"):
        tools([tool_functions.nap, functools.partial(tool_functions.nap, label="a")])
    with pytest.raises(RegistrationError, match="a tool named '<lambda>'"):
        tools([lambda text: text])
    with pytest.raises(RegistrationError, match="can't be a tool"):
        tools([tool_functions.Pad])
    with pytest.raises(RegistrationError, match="takes a list"):
        tools(tool_functions.nap)  # type: ignore[arg-type]
    with pytest.raises(RegistrationError, match="'ask' is a generator"):
        tools([tool_functions.ask])
    for timeout in (0, None, float("nan")):
        with pytest.raises(RegistrationError, match="timeout"):
            tools([tool_functions.nap], timeout=timeout)  # type: ignore[arg-type]
    with pytest.raises(RegistrationError, match="lane='gpu'"):
        tools([tool_functions.nap], lane="gpu")
    with pytest.raises(RegistrationError, match="'doze' is async"):
        tools([tool_functions.doze], lane="process")
    with pytest.raises(RegistrationError, match="'nap' is not async"):
        tools([tool_functions.nap], lane="asyncio")


@pytest.mark.parametrize("lane", ["process", "thread"])
def test_a_sync_tool_that_gives_something_to_await_fails_and_says_so(lane: str) -> None:
    message = "returned a coroutine, which nobody awaits: define it with async def"
    with tools([tool_functions.forgetful], lane=lane, workers=1) as ours, pytest.raises(TypeError, match=message):
        ours[0](text="a")


def test_a_tool_that_no_worker_can_get_is_refused_with_the_reason() -> None:
    guard = tool_functions.lock()

    def guarded(text: str) -> str:
        with guard:
            return text

    with pytest.raises(SerializationError, match=r"^tool 'guarded'.*guard"):
        tools([guarded], lane="process")
    with tools([guarded]) as (tool,):  # a closure: by default in this process
        assert tool("a") == "a"

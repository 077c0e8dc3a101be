"""When a dispatcher's engine starts and ends, and what its copies are."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import re
import signal
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from guerdon import ClosedError, Dispatcher, RegistrationError, Status, _native, errors, http_reward
from guerdon._engine import handle
from guerdon._functions.spec import FunctionSpec
from guerdon._lanes import thread_supervisor
from tests.clock import eventually, one_of_three
from tests.processes import run_python
from tests.simple import judge, length, on_lane, rank


def test_nothing_starts_before_the_first_use() -> None:
    with Dispatcher([length], workers=1) as made:
        assert made.stats() == {}
        assert made.worker_pids() == []
        assert "not started" in repr(made)
        made.score(completions=["a"])
        assert "running" in repr(made)
    assert made.closed


def test_the_first_use_from_many_threads_starts_one_engine() -> None:
    with Dispatcher([length], workers=1) as made:
        with ThreadPoolExecutor(8) as pool:
            engines = list(pool.map(lambda _: made._engine.get(), range(8)))
        assert len(engines) == 8
        assert len(set(map(id, engines))) == 1


def test_a_dispatcher_that_is_given_up_while_it_starts_ends_after_that(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, given_up = threading.Event(), threading.Event()
    engines: list[Any] = []
    start = handle._start

    def starts(*given: Any, **named: Any) -> Any:
        begun.set()
        assert given_up.wait(60)
        gc.collect()  # as Python does it itself when it likes to: not within the lock of the start
        started = start(*given, **named)
        engines.append(started[0])
        return started

    async def gives_up() -> None:
        made: Any = Dispatcher([length])
        made.itself = made
        scoring = asyncio.ensure_future(made.ascore(completions=["a"]))
        await asyncio.to_thread(begun.wait, 60)
        scoring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await scoring
        del made, scoring
        given_up.set()

    monkeypatch.setattr(handle, "_start", starts)
    asyncio.run(gives_up())  # waits for the start
    gc.collect()
    assert engines[0].closed


@pytest.mark.parametrize("does", ["close", "score"])
def test_a_signal_handler_may_close_or_use_what_is_being_started(monkeypatch: pytest.MonkeyPatch, does: str) -> None:
    made = Dispatcher([length])
    engines: list[Any] = []
    start = handle._start

    def starts(*given: Any, **named: Any) -> Any:
        if not engines:
            engines.append(None)
            signal.raise_signal(signal.SIGUSR1)
        started = start(*given, **named)
        engines.append(started[0])
        return started

    def handler(*_: object) -> None:
        made.close() if does == "close" else made.score(completions=["ab"])

    monkeypatch.setattr(handle, "_start", starts)
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        if does == "close":
            with pytest.raises(ClosedError):
                made.score(completions=["abc"])
            assert engines[1].closed
        else:
            assert made.score(completions=["abc"]).rewards.item() == 3
            assert [engine.closed for engine in engines[1:]] == [False, True]
    finally:
        signal.signal(signal.SIGUSR1, before)
        made.close()


@pytest.mark.parametrize("lane", ["thread", "asyncio"])
def test_a_function_that_closes_its_own_dispatcher_does_not_wait_for_itself(lane: str) -> None:
    one_of_three(lambda: _closes_its_own_dispatcher(lane))


def _closes_its_own_dispatcher(lane: str) -> None:
    took: list[float] = []

    def closes(completion: str) -> float:
        started = time.monotonic()
        made.close()
        took.append(time.monotonic() - started)
        return 1.0

    others = set(threading.enumerate())
    made = Dispatcher([on_lane(closes, lane), length], workers=1)
    result = made.score(completions=["a"])
    # whether its value or its end was there first
    assert result.status[0, 0, 0] in {Status.CANCELLED, Status.OK}
    assert made.closed
    eventually(lambda: took and not set(threading.enumerate()) - others)
    assert took[0] < 4.5  # who waits for itself waits 5 s


@pytest.mark.parametrize("lane", ["thread", "asyncio", "process"])
def test_a_closed_dispatcher_is_collected_with_functions_that_refer_to_it(lane: Any) -> None:
    def closed() -> weakref.ref[Any]:
        def names(completion: str) -> float:
            return float(len(names.pending_batches))  # type: ignore[attr-defined]

        names.pending_batches = []  # type: ignore[attr-defined]
        with Dispatcher([on_lane(names, lane)], workers=1) as made:
            made.score(completions=["a"])
            if lane != "process":  # a pending batch is no value that a worker could be given
                names.pending_batches.append(made.submit(completions=["a"]))  # type: ignore[attr-defined]
                names.pending_batches[0].result()  # type: ignore[attr-defined]
        names.made = made  # type: ignore[attr-defined]
        return weakref.ref(names)

    gone = closed()
    # its thread may take a moment to leave the call
    eventually(lambda: gc.collect() is not None and gone() is None)


def test_a_pending_batch_keeps_its_dispatcher() -> None:
    pending = Dispatcher([length]).submit(completions=["a"])
    gc.collect()
    assert pending.result().rewards.tolist() == [[[1.0]]]


def test_it_pickles_as_its_configuration() -> None:
    with Dispatcher([length, judge], weights=[1, 2], workers=1, num_generations=2, incomplete="sum") as made:
        made.score(prompts=["p"] * 2, completions=["a", "b"])
        other, first, second = pickle.loads(pickle.dumps((made, made.reward_funcs[0], made.reward_funcs[1])))
    with other:
        assert other.reward_weights == [1.0, 2.0]
        assert other.workers == 1
        assert first is other.reward_funcs[0]
        assert second is other.reward_funcs[1]
        assert other.stats() == {}
        assert other.score(prompts=["p"] * 2, completions=["a", "bb"]).rewards[0, :, 0].tolist() == [1.0, 2.0]


class NamedDispatcher(Dispatcher):
    """A dispatcher with a signature and state of its own."""

    def __init__(self, title: str, **options: Any) -> None:
        self.title = [title]
        super().__init__([length], **options)


def test_a_subclass_is_copied_as_what_it_is() -> None:
    made = NamedDispatcher("judges", workers=1)
    for other in (
        copy.copy(made),
        copy.deepcopy(made),
        pickle.loads(pickle.dumps(made)),
        made.replace(batch_timeout=5),
    ):
        assert type(other) is NamedDispatcher
        assert other.title == ["judges"]
        assert other.workers == 1
        assert other.reward_funcs[0].dispatcher is other
    assert copy.copy(made).title is made.title
    assert copy.deepcopy(made).title is not made.title


def test_it_says_what_it_was_given() -> None:
    made = Dispatcher([length, "org/model", rank], workers=3)
    assert [spec.name for spec in made._specs] == ["length", "rank"]
    assert made._submitter.group_function == "rank"
    assert Dispatcher([length])._submitter.group_function is None
    assert made.options["workers"] == 3
    assert made.options["batch_timeout"] is None
    other = made.replace(batch_timeout=2.0)
    assert (other.options["batch_timeout"], other.options["workers"], other.reward_models) == (2.0, 3, ("org/model",))
    assert made.options["batch_timeout"] is None
    with pytest.raises(RegistrationError, match="batch_timeout=0"):
        made.replace(batch_timeout=0)
    assert made.options["worker_env"] is None
    secret = Dispatcher([length], worker_env={"JUDGE_API_KEY": "sk-very-secret", "HOME": None})
    assert secret.options["worker_env"] == ("JUDGE_API_KEY", "HOME")
    assert "sk-very-secret" not in repr(secret) + repr(secret.options) + str(secret.dump())


EXIT = """
import asyncio, os, sys, time, warnings
from guerdon import Dispatcher, reward
warnings.simplefilter("ignore")
{function}
dispatcher = Dispatcher([reward(function, lane={lane!r}, timeout=900)], workers=2)
pending = dispatcher.submit(completions=["a"] * 20)
time.sleep(0.5)
{end}
"""
CALLED = "def function(completion):\n    {busy}"
AWAITED = """
async def function(completion):
    asyncio.create_task(asyncio.sleep(600))
    {busy}
    return 1.0
"""
SLEEPS = "await asyncio.sleep(600)"


@pytest.mark.parametrize(
    ("lane", "busy", "end"),
    [
        ("process", "time.sleep(600)", "sys.exit(0)"),
        ("thread", "time.sleep(600)", "sys.exit(0)"),
        ("thread", "while True: pass", "sys.exit(0)"),
        ("asyncio", SLEEPS, "sys.exit(0)"),
        ("asyncio", "time.sleep(3)", "sys.exit(0)"),
        ("asyncio", "await asyncio.to_thread(time.sleep, 1)", "sys.exit(0)"),
        ("asyncio", SLEEPS, "dispatcher.close()"),
        ("asyncio", "time.sleep(3)", "del dispatcher, pending"),
        ("asyncio", SLEEPS, "os._exit(0)"),
    ],
)
def test_the_interpreter_exits_with_calls_under_way(lane: str, busy: str, end: str, tmp_path: Path) -> None:
    """Not an abort, not a hang, and no noise."""
    function = AWAITED if lane == "asyncio" else CALLED
    script = tmp_path / "script.py"
    script.write_text(EXIT.format(function=function.format(busy=busy), lane=lane, end=end))
    assert run_python(script, timeout=250).stderr == ""


def test_an_interpreter_that_keeps_the_gil_off_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    with pytest.raises(errors.GuerdonError, match="PYTHON_GIL=0"):
        Dispatcher([lambda completions, **_: [0.0] * len(completions)])


@pytest.mark.parametrize(
    ("change", "place", "why"),
    [
        ({"fleet": 1}, "fleet", "unknown field `fleet`"),
        ({"endpoints": [["http://localhost", "one"]]}, r"endpoints\[0\]\[1\]", "must be real number"),
        ({"headers": [["x", 1234567]]}, r"headers\[0\]\[1\]", "not shown"),
        ({"key": {"text": b"1234567"}}, "key.text", "not shown"),
        ({"response": "judge"}, "response", "judge|tuple"),
    ],
)
def test_a_configuration_of_another_form_is_refused_with_its_place(
    change: dict[str, object], place: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = http_reward(url="http://localhost:1/score", name="service")
    config = service.spec.config()
    config["http"] |= change
    with pytest.raises(RuntimeError, match=rf"^the engine refuses its configuration at {place}.*({why})") as refused:
        _native.check_http(config["http"])
    assert "1234567" not in str(refused.value)
    monkeypatch.setattr(FunctionSpec, "config", lambda *_, **__: config)
    with (
        Dispatcher([service]) as made,
        pytest.raises(RuntimeError, match=rf"^the engine refuses its configuration at functions\[0\]\.http\.{place}"),
    ):
        made.score(prompts=["a"], completions=["a"])


def test_each_fault_that_an_engine_reports_has_a_warning() -> None:
    stub = Path(thread_supervisor.__file__).parents[1].joinpath("_native.pyi").read_text()
    sources = re.search(r"class Trouble:.*?Literal\[(.*?)\]", stub, re.DOTALL)
    assert sources is not None
    assert set(re.findall(r'"(\w+)"', sources[1])) == set(thread_supervisor._TROUBLE)
    for text in thread_supervisor._TROUBLE.values():
        assert "the reason" in text.format(place="judge", why="the reason")

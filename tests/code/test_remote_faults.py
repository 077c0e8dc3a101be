"""Sandboxes on bad days: nobody's program is wrong because a sandbox was, and what a program did is
its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import Dispatcher, Limit, Status
from tests.code.programs import CASES, INCREMENT, block, call
from tests.code.sandbox_server import answered, remote, sandbox, scored
from tests.faults import fault
from tests.http.server import Handler, free_port


def broken_off(handler: Handler) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


def cut_short(handler: Handler) -> None:
    handler.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"status": "Succ')
    handler.wfile.flush()


def not_json(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n<html></html")


FAILED = {"status": "SandboxError", "message": "no room for another cgroup", "run_result": None}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        fault(
            "a sandbox answers 500, or `SandboxError`, or what is not in its protocol",
            sees="nothing: the case is run again; `error` and NaN with what it answered after `retries`, never 0",
            of=((500, {"detail": "oh"}), "500 Internal Server Error"),
        ),
        pytest.param((503, {}), "503", id="503"),
        pytest.param(FAILED, "SandboxError: no room for another cgroup", id="SandboxError"),
        fault(
            "a sandbox breaks the connection, or its answer off in the middle",
            sees="the same, with a `ConnectionError`",
            of=(broken_off, "ConnectionError"),
        ),
        pytest.param(cut_short, "ConnectionError", id="cut short"),
        fault(
            "a proxy answers for a sandbox, with a page",
            sees="`error` with the page's beginning, after `retries`",
            of=(not_json, "invalid JSON"),
        ),
        pytest.param([1], 'no run of a program in "[1]"', id="no object"),
        pytest.param({"status": "Success"}, "no run_result", id="no run"),
    ],
)
def test_limits_of_a_sandbox_are_not_the_programs_fault(answer: Any, reason: str) -> None:
    with sandbox(lambda number, _: answer if number == 0 else None) as server:
        result = scored(remote(server), [INCREMENT], cases=[CASES])
        assert result.rewards.item() == 1.0
        assert len(server.bodies) == 3
        assert result.timings["code"]["retries"] == 1
    with sandbox(lambda *_: answer) as server:
        result = scored(remote(server, retries=1), [INCREMENT, "print(0)"], cases=[CASES] * 2)
    assert np.isnan(result.rewards).all()
    assert (result.status == Status.ERROR).all()
    for failure in result.failures():
        assert failure.reason.startswith("case 0: ")
        assert reason in failure.reason
        assert "attempts)" in failure.reason
        assert answer is not not_json or "<html>" in failure.reason


def test_a_retry_repeats_the_request_that_failed_alone() -> None:
    cases = [{"stdin": str(number), "stdout": str(number + 1)} for number in range(4)]
    with sandbox(lambda number, body: FAILED if number in (2, 3) else incremented(body)) as server:
        result = scored(remote(server), [INCREMENT], cases=[cases])
        assert [body["stdin"] for body in server.bodies] == ["0", "1", "2", "2", "2", "3"]
    assert (result.rewards.item(), result.timings["code"]["retries"]) == (1.0, 2)


def test_attempts_of_a_program_begin_anew_with_each_request_that_succeeds() -> None:
    cases = [{"stdin": str(number), "stdout": str(number + 1)} for number in range(20)]
    with sandbox(lambda number, body: FAILED if number % 3 == 2 else incremented(body)) as server:
        result = scored(remote(server, retries=1), [INCREMENT], cases=[cases])
    assert (result.rewards.item(), result.timings["code"]["retries"]) == (1.0, 9)


def unavailable(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n")


def test_requests_that_are_answered_keep_the_circuit_breaker_closed_while_programs_run() -> None:
    cases = [{"stdin": str(number), "stdout": str(number + 1)} for number in range(30)]
    with (
        sandbox(lambda number, body: unavailable if number % 15 == 14 else incremented(body)) as server,
        Dispatcher([remote(server, limit=Limit(concurrency=8))], batch_timeout=30) as dispatcher,
    ):
        result = dispatcher.score(completions=[block(INCREMENT)] * 24, cases=[cases] * 24)
    assert result.rewards.ravel().tolist() == [1.0] * 24


def throttled(handler: Handler) -> None:
    handler.wfile.write(
        b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    )


@pytest.mark.fault("a sandbox throttles", sees="all scores, later: `Retry-After` is obeyed, and no retries are used up")
def test_a_sandbox_that_throttles_is_waited_for() -> None:
    with sandbox(lambda number, _: throttled if number < 6 else None) as server:
        started = time.monotonic()
        result = scored(remote(server, retries=0), [INCREMENT] * 4, cases=[CASES] * 4)
        assert time.monotonic() - started >= 0.9
    assert result.rewards.ravel().tolist() == [1.0] * 4
    assert result.timings["code"]["deferrals"] == 6


def test_a_throttled_program_goes_on_however_large_it_is() -> None:
    cases = [{"stdin": str(number) * 24_000_000, "stdout": "1"} for number in range(3)]
    ran = {"status": "Finished", "execution_time": 0.01, "return_code": 0, "stdout": "1", "stderr": ""}
    success = {"status": "Success", "message": "", "compile_result": None, "run_result": ran, "files": {}}
    answers = iter([success, throttled, success, throttled, success])
    with sandbox(lambda *_: next(answers)) as server:
        result = scored(remote(server, retries=0, timeout=20.0), ["print(1)"], cases=[cases])
    assert result.rewards.item() == 1.0
    assert result.timings["code"]["deferrals"] == 2


@pytest.mark.fault(
    "a sandbox takes a request and never answers", sees="`timeout` after the time of the case and `wait`, with retries"
)
def test_a_sandbox_that_never_answers() -> None:
    end = threading.Event()
    with sandbox(lambda _, body: (end.wait(60), (500, {}))[1] if "0" in body["code"] else incremented(body)) as server:
        result = scored(remote(server, retries=1, timeout=0.5, wait=0.5), ["print(0)", INCREMENT], cases=[CASES] * 2)
        end.set()
    assert result.status.ravel().tolist() == [Status.TIMEOUT, Status.OK]
    assert result.rewards.ravel()[1] == 1.0
    assert np.isnan(result.rewards.ravel()[0])
    assert "(after 2 attempts)" in result.failures()[0].reason


def incremented(body: dict[str, Any]) -> dict[str, Any]:
    """The answer for `INCREMENT`, without a program, whose start takes time on a busy machine."""
    ran = {"status": "Finished", "return_code": 0, "execution_time": 0.01, "stdout": str(int(body["stdin"]) + 1)}
    return {"status": "Success", "message": "", "run_result": ran}


def test_a_sandbox_that_is_slow_costs_a_program_nothing() -> None:
    def slow(number: int, body: dict[str, Any]) -> Any:
        time.sleep(0.5)
        return incremented(body)

    with sandbox(slow) as server:
        result = scored(remote(server, timeout=0.4), [INCREMENT], cases=[CASES])
    assert result.rewards.item() == 1.0, "its queue is not the program's time"


@pytest.mark.fault("a program floods a sandbox with output", sees="0.0, a reason; its neighbours are unharmed")
def test_output_floods_are_the_programs() -> None:
    many, more = f"print('x' * {9 << 20})", f"print('x' * {20 << 20})"
    with sandbox() as server:
        result = scored(remote(server, memory_limit="1GiB"), [many, more, INCREMENT], cases=[CASES] * 3)
    assert result.rewards.ravel().tolist() == [0.0, 0.0, 1.0]
    assert result.extra["code/reason"][:2] == [f"case 0: it printed more than {8 << 20} bytes"] * 2


SERVER = """
import sys, time
from tests.code.sandbox_server import sandbox
with sandbox(port=int(sys.argv[1])):
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.mark.fault(
    "a sandbox is killed and started again", sees="all scores: its circuit breaker opens, and closes again"
)
def test_a_sandbox_that_is_started_again() -> None:
    port = free_port()

    def started() -> subprocess.Popen[bytes]:
        root = Path(__file__).parents[2]
        server = subprocess.Popen([sys.executable, "-c", SERVER, str(port)], stdout=subprocess.PIPE, cwd=root)
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        return server

    def ended(server: subprocess.Popen[bytes]) -> None:
        with server:
            server.kill()

    server = started()
    try:
        with Dispatcher([remote(f"http://127.0.0.1:{port}", limit=Limit(concurrency=2))]) as dispatcher:
            columns: dict[str, Any] = {"completions": [block(INCREMENT)] * 12, "cases": [CASES] * 12}
            pending = dispatcher.submit(**columns)
            time.sleep(0.3)
            ended(server)
            server = started()
            assert pending.result(timeout=100).rewards.ravel().tolist() == [1.0] * 12
            (endpoint,) = dispatcher.endpoints("code")
            assert endpoint.answered >= 24
    finally:
        ended(server)


@pytest.mark.fault(
    "a sandbox's interpreter ends before it comes to the program",
    sees="NaN, `error` with its exit status; what the program ends is its own fault",
)
def test_an_end_before_the_program_is_not_its_fault() -> None:
    died = {"status": "Finished", "return_code": 1, "stdout": "", "stderr": "Fatal Python error: no codec"}
    answer = {"status": "Failed", "message": "", "run_result": died}
    with sandbox(lambda _, body: answer if "doomed" in body["code"] else None) as server:
        programs = ["def doomed(x): return x", "import os\nos._exit(1)", "def f(x): return x"]
        result = scored(remote(server), programs, cases=[[call("f", 3, expected=3)]] * 3)
    assert np.isnan(result.rewards.ravel()[0])
    assert result.rewards.ravel()[1:].tolist() == [0.0, 1.0]
    assert "did not come to the program: exit status 1: Fatal Python error" in result.failures()[0].reason
    assert result.extra["code/reason"][1] == "case 0: its process ended with exit status 1"


@pytest.mark.fault(
    "a program uses its time up, and its next case ends before an interpreter begins",
    sees="that case is not passed; where no case took that time it is the sandbox's fault, and NaN",
)
@pytest.mark.parametrize(
    ("options", "score"), [({}, 0.0), ({"score": "share", "case_timeout": 1.96}, 0.5)], ids=["all", "share"]
)
def test_no_program_runs_out_of_time_for_nan(options: dict[str, Any], score: float) -> None:
    def answer(number: int, body: dict[str, Any]) -> Any:
        if number == 0:
            nonce = body["stdin"].partition("\n")[0]
            ran = {"status": "Finished", "execution_time": 1.95, "return_code": 0, "stdout": answered(nonce, 1)}
            return {"status": "Success", "message": "", "run_result": ran}
        limits.append(body["run_timeout"])
        return {"status": "Failed", "message": "", "run_result": {"status": "TimeLimitExceeded", "stdout": ""}}

    limits: list[float] = []
    cases = [call("f", 1, expected=1), call("f", 2, expected=2)]
    with sandbox(answer) as server:
        result = scored(remote(server, timeout=2.0, **options), ["def f(x): return x"], cases=[cases])
        assert limits == [0.05]
        assert result.rewards.item() == score
        assert result.extra["code/reason"] == ["case 1: no answer within 0.05 s"]
        late = scored(remote(server, timeout=0.5, **options), ["def f(x): return x"], cases=[cases])
    assert np.isnan(late.rewards).all()
    assert "did not come to the program: its time was up" in late.failures()[0].reason


@pytest.mark.fault(
    "a program prints a byte that is no UTF-8, which takes all it printed", sees="0.0, a reason; never NaN"
)
def test_no_program_drops_its_output_for_nan() -> None:
    erasing = """
import os
for fd in range(3, 9):
    try: os.write(fd, b"\\xff")
    except OSError: pass
def f(x): return x
"""
    with sandbox() as server:
        result = scored(remote(server), [erasing, "def f(x): return x"], cases=[[call("f", 3, expected=3)]] * 2)
    assert result.rewards.ravel().tolist() == [0.0, 1.0]
    assert "[DecodeError]" in result.extra["code/reason"][0]

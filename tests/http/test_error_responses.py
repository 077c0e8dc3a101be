"""Servers that misbehave: statuses and reasons of the samples."""

from __future__ import annotations

import base64
import re
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import Dispatcher, Journal, Limit, Status, http_reward, parse, reward
from tests.clock import eventually
from tests.faults import fault
from tests.http.scoring import asked, judging, only, score
from tests.http.server import Handler, chat_completion, free_port, question, server_process, serving, silent

SECRET = "sk-very-secret"
BROKEN = "ConnectionError: 127.0.0.1:"
GOOD = chat_completion("Score: 7")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


def reset(handler: Handler) -> None:
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def half(handler: Handler) -> None:
    handler.wfile.write(HEAD % 1000 + b'{"choices": [')


def garbage(handler: Handler) -> None:
    handler.wfile.write(HEAD % 9 + b"<html>no<")


def no_http(handler: Handler) -> None:
    handler.wfile.write(b"\x00\x01\x02 hello\r\n\r\n")


def endless(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(40):
        handler.wfile.write(b" " * (1 << 20))


def too_long(handler: Handler) -> None:
    handler.wfile.write(HEAD % (1 << 40))
    silent(handler)


def drip(handler: Handler) -> None:
    handler.wfile.write(HEAD % 1000)
    for _ in range(1000):
        handler.wfile.write(b" ")
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("fate", "reason"),
    [
        fault(
            "a judge's server answers 500 to every attempt",
            sees="`error` after `retries`, with status and answer in the reason",
            of=((500, {"error": "oh"}), 'answered 500 Internal Server Error: "{\\"error\\": \\"oh\\"}"'),
        ),
        fault(
            "a judge's server resets the connection at every attempt",
            sees="`error` after `retries`: ConnectionError",
            of=(reset, BROKEN),
        ),
        fault(
            "a judge's server closes the connection in the middle of its answer",
            sees="`error` after `retries`: ConnectionError; half an answer is none",
            of=(half, BROKEN),
        ),
        fault(
            "a judge's server answers 200 with what is no JSON",
            sees="`error` after `retries`, with what came in the reason",
            of=(garbage, 'returned invalid JSON (expected value at line 1 column 1): "<html>no<"'),
        ),
        fault(
            "what listens there speaks no HTTP", sees="`error` after `retries`: ConnectionError", of=(no_http, BROKEN)
        ),
        fault(
            "a judge's server sends an answer without end",
            sees="`error` after `retries`: 16 MB are read of an answer, then the connection is closed",
            of=(endless, "returned more than 16777216 bytes, too long for a score"),
        ),
        fault(
            "a judge's server says that its answer has more than 16 MB",
            sees="`error` after `retries`: nothing of it is read",
            of=(too_long, "returned more than 16777216 bytes, too long for a score"),
        ),
    ],
)
def test_each_sample_fails_by_itself_with_what_happened(fate: Any, reason: str) -> None:
    with serving(lambda path, body: fate if "bad" in question(body) else GOOD) as server:
        result = score(server.url, ["fine", "bad", "fine"])
    assert result.rewards[[0, 2]].ravel().tolist() == [7.0, 7.0]
    (failure,) = result.failures()
    assert (failure.sample, failure.status, failure.attempts) == (1, Status.ERROR, 2)
    assert reason in failure.reason, failure.reason


# The question, and the words of the reason.
ENDLESS: list[Any] = [
    fault(
        "a judge's server takes the request and never answers (half-open)",
        sees="`timeout` after `timeout` seconds; the reason says that nothing came",
        of=(silent, "had not answered"),
    ),
    fault(
        "a judge's answer comes byte by byte, for longer than `timeout`",
        sees="`timeout` after `timeout` seconds; the reason says how many bytes came",
        of=(drip, " bytes of its answer"),
    ),
]


def test_endless_answers_are_timeouts_that_report_their_progress() -> None:
    fates = {fate.__name__: (fate, reason) for fate, reason in (row.values for row in ENDLESS)}
    with serving(lambda path, body: fates[question(body)][0]) as server:
        result = score(server.url, list(fates), timeout=4.0, retries=0)
    assert (result.status == Status.TIMEOUT).all()
    for failure, (_, reason) in zip(result.failures(), fates.values(), strict=True):
        assert failure.reason.startswith("no answer within the timeout of 4 s; "), failure.reason
        assert reason in failure.reason


@pytest.mark.fault(
    "a judge's server redirects", sees="`error`, not tried again: neither the request nor its key goes anywhere else"
)
def test_a_redirect_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_API_KEY", SECRET)
    with serving(lambda path, body: GOOD) as elsewhere:

        def away(handler: Handler) -> None:
            head = f"HTTP/1.1 307 Temporary Redirect\r\nLocation: {elsewhere.url}/\r\nContent-Length: 0\r\n\r\n"
            handler.wfile.write(head.encode())

        with serving(lambda path, body: away) as server:
            failure = only(score(server.url, api_key_env="JUDGE_API_KEY"))
            assert (failure.attempts, len(server.bodies)) == (1, 1)
        assert elsewhere.bodies == []
    assert "redirects are not followed" in failure.reason


def hangs(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 1000\r\n\r\nno such key")
    silent(handler)


@pytest.mark.parametrize(
    ("fate", "reasons"),
    [
        fault(
            "a judge's server answers 401 with a body that never ends",
            sees="`error` with the status, a second later; not a timeout",
            of=(hangs, ['answered 401 Unauthorized (check the API key): "no such key"']),
        ),
        fault(
            "a judge's account has no quota left",
            sees="`error` with the server's words at once; nothing waits for it",
            of=(
                (429, {"error": {"code": "insufficient_quota", "message": "You exceeded your current quota"}}),
                ["(the quota is used up)", "You exceeded your current quota"],
            ),
        ),
    ],
)
def test_hopeless_requests_are_made_once(fate: Any, reasons: list[str]) -> None:
    with serving(lambda path, body: fate) as server:
        failure = only(score(server.url, retries=3))
        assert len(server.bodies) == 1
    assert (failure.status, failure.attempts) == (Status.ERROR, 1)
    assert all(reason in failure.reason for reason in reasons), failure.reason


@pytest.mark.parametrize(
    "overloaded",
    [(529, {"error": {"type": "overloaded_error"}}), (503, "overloaded"), {"error": {"code": 429, "message": "slow"}}],
    ids=["529", "503", "200"],
)
@pytest.mark.fault(
    "a judge's server is overloaded: 529, 503 in such words, or 200 with the error 429 in its body",
    sees="its value: as with 429 the request is rescheduled and uses up no `retries`",
)
def test_an_overloaded_server_throttles(overloaded: Any) -> None:
    fates = [overloaded] * 3
    with serving(lambda path, body: fates.pop() if fates else GOOD) as server:
        result = score(server.url, retries=0)
        assert len(server.bodies) == 4
    assert result.rewards.item() == 7.0


@pytest.mark.parametrize("status", [429, 200])
@pytest.mark.fault(
    "Gemini is asked too often: the error is in a list, and says there when to come again (`retryDelay`)",
    sees="its value: the request is rescheduled to that time and uses up no `retries`",
)
def test_gemini_says_in_a_list_when_to_come_again(status: int) -> None:
    """https://ai.google.dev/gemini-api/docs/troubleshooting"""
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1.5s"}
    error = {"code": 429, "message": "You exceeded your quota", "status": "RESOURCE_EXHAUSTED", "details": [{}, retry]}
    came: list[float] = []

    def answer(path: str, body: Any) -> Any:
        came.append(time.monotonic())
        return GOOD if len(came) > 1 else (status, [{"error": error}])

    with serving(answer) as server:
        result = score(server.url, retries=0)
    assert result.rewards.item() == 7.0
    assert came[1] - came[0] >= 1.5


@pytest.mark.fault(
    "a reward service's answer without a length is cut off within a number",
    sees="`error`: half a number is none",
)
def test_a_number_that_ends_with_its_connection_is_an_error() -> None:
    def cut(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n0.9")

    result, _ = asked(lambda path, body: cut, make=http_reward, columns={"prompts": ["p"]})
    assert "it may be cut off" in only(result).reason


@pytest.mark.fault(
    "a judge's router answers 404 after it has answered",
    sees="its value: the endpoint has failed, not the sample",
)
def test_a_router_that_knows_nothing_for_a_moment_fails_no_sample() -> None:
    fates: list[Any] = [GOOD, (404, "404 page not found"), (401, {})]
    with serving(lambda path, body: fates.pop(0) if fates else GOOD) as server:
        result = score(server.url, ["x", "x", "x"], limit=Limit(concurrency=1), pure=False, retries=3)
    assert result.rewards.ravel().tolist() == [7.0] * 3


@pytest.mark.fault("nothing listens at a judge's address", sees="`error` after `retries`: can't connect")
def test_a_refused_connection() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and doesn't listen
        failure = only(score(f"http://127.0.0.1:{taken.getsockname()[1]}", ["x"]))
    assert failure.attempts == 2
    assert re.fullmatch(
        r"ConnectionError: can't connect to 127\.0\.0\.1:\d+: Connection refused \(.*\)", failure.reason
    )


@pytest.mark.fault("the name of a judge's server has no address", sees="`error` after `retries`: can't connect")
def test_a_name_without_address() -> None:
    failure = only(score("http://no-such-host.invalid", ["x"], retries=0))
    assert "can't connect to no-such-host.invalid" in failure.reason


@pytest.mark.fault(
    "a judge's server speaks no TLS where the address says https", sees="`error` after `retries`: can't connect"
)
def test_no_tls_where_it_is_asked_for() -> None:
    with serving(lambda path, body: GOOD) as server:
        failure = only(score(server.url.replace("http:", "https:"), ["x"], retries=0))
        assert server.bodies == []
    assert "can't connect to 127.0.0.1" in failure.reason


@pytest.mark.fault(
    "a judge's server is killed in the middle of a batch and started again",
    sees="all values: what was under way is tried again, what waits is held back until the server answers",
)
def test_a_server_that_is_killed_and_started_again() -> None:
    port = free_port()
    texts = ["x" * (index % 50) for index in range(400)]
    graded = judging(f"http://127.0.0.1:{port}", limit=Limit(concurrency=8), retries=50, timeout=20)
    with Dispatcher([graded]) as dispatcher, server_process(port) as server:
        pending = dispatcher.submit(completions=texts)
        next(iter(pending.groups()))
        server.kill()
        server.wait()
        with server_process(port):
            result = pending.result(timeout=100)
    np.testing.assert_array_equal(result.rewards.ravel(), [len(text) for text in texts])
    assert result.attempts.max() > 1


@pytest.mark.fault(
    "a judge's server says back a part of the key",
    sees="nothing of it in reasons, dumps and warnings: pieces of it are `…`",
)
def test_no_part_of_a_key_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_API_KEY", "sk-very-secret-0123456789wxyz")
    echo = "Incorrect API key provided: sk-very****wxyz, which begins with sk-very-secr and ends with 23456789wxyz"
    for answer in [(401, {"error": echo}), {"choices": echo}, {"choices": [{"message": {"content": echo}}]}]:
        with serving(lambda path, body, answer=answer: answer) as server:
            failure = only(score(server.url, api_key_env="JUDGE_API_KEY", parse=parse.tag("s"), retries=0))
        assert "Incorrect API key provided: …****…, which begins with … and ends with …" in failure.reason, (
            failure.reason
        )


def test_no_key_is_kept_that_a_server_echoes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither answers, the journal nor the cache keep it, and their folders are private."""
    monkeypatch.setenv("JUDGE_API_KEY", SECRET)
    encoded = base64.b64encode(f"user:{SECRET}".encode()).decode()
    reply = {**chat_completion(f"{SECRET} and {encoded}\n<s>7</s>"), "model": SECRET, "id": SECRET}
    journal, cache = tmp_path / "journal", tmp_path / "cache"
    with serving(lambda path, body: reply) as server:
        options = {"parse": parse.tag("s"), "keep_answers": True, "api_key_env": "JUDGE_API_KEY", "cache": cache}
        graded = judging(server.url, **options)
        with Dispatcher([graded], journal=Journal(journal, texts=True)) as dispatcher:
            result = dispatcher.score(completions=["x"])
    assert result.rewards.item() == 7.0
    files = [file for folder in (journal, cache) for file in folder.rglob("*") if file.is_file()]
    shown = repr(result.extra).encode() + b"".join(file.read_bytes() for file in files)
    assert b"judge/answer" in shown
    for form in (SECRET, encoded[8:-4]):
        assert form.encode() not in shown
    assert {file.stat().st_mode & 0o777 for file in (journal, cache)} == {0o700}


def test_a_key_is_in_no_process_and_no_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A key from a file is in the header of its requests and nowhere else: not in the environment
    or command of a worker either."""
    file = tmp_path / "key"
    file.write_text(SECRET)
    answering = threading.Event()

    def refused(path: str, body: dict[str, Any]) -> Any:
        answering.wait(60)
        return 401, {"error": f"wrong key {SECRET}"}

    def works(completion: str) -> float:
        Path(completion).touch()
        return 1.0

    with serving(refused) as server:
        graded = judging(server.url, api_key_file=str(file), name="graded")
        worked = tmp_path / "worked"
        with Dispatcher([graded, reward(works)], max_failure_rate=1.0, workers=1) as dispatcher:
            pending = dispatcher.submit(completions=[str(worked)])
            eventually(lambda: server.headers and worked.exists())
            shown = _of_descendants()
            answering.set()
            shown += repr(pending.result().failures())
            headers = [value for each in server.headers for value in each.values()]
    assert f"Bearer {SECRET}" in headers
    assert "GUERDON_POOL" in shown, "the workers' environments were read"
    assert SECRET not in shown
    assert SECRET not in "".join(capfd.readouterr())


def _of_descendants() -> str:
    """Environments and commands of all processes below this one."""
    found, waiting = "", [Path("/proc/self")]
    while waiting:
        process = waiting.pop()
        children = " ".join(_read(listing) for listing in process.glob("task/*/children"))
        for below in (Path("/proc") / child for child in children.split()):
            waiting.append(below)
            found += "".join(_read(below / name) for name in ("environ", "cmdline"))
    return found


def _read(path: Path) -> str:
    """Nothing, where the thread or process has ended meanwhile."""
    try:
        return path.read_bytes().decode("latin-1")
    except (FileNotFoundError, ProcessLookupError):
        return ""

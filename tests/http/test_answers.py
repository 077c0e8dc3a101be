"""What is kept of judges' answers, and what long ones take in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.http.scoring import asked
from tests.http.server import Handler, chat_completion, serving
from tests.processes import run_python

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("body", "header", "expected"),
    [
        ({"id": "chatcmpl-1"}, "x-request-id", "chatcmpl-1"),
        ({}, "X-Request-Id", "req_7"),
        ({"id": None}, "request-id", "req_7"),
        ({}, "x-other", None),
    ],
)
def test_a_request_is_called_what_the_header_says_where_the_body_does_not(
    body: dict[str, Any], header: str, expected: str | None
) -> None:
    text = json.dumps({**chat_completion("7"), **body})
    head = f"HTTP/1.1 200 OK\r\n{header}: req_7\r\nContent-Length: {len(text)}\r\n\r\n"
    result, _ = asked(lambda path, body: lambda handler: handler.wfile.write((head + text).encode()), keep_answers=True)
    assert result.extra["judge/request_id"] == [expected]


LONGEST = 16 << 20


@pytest.mark.fault(
    "a judge's answer is as long as any that is read, 16 MB",
    sees="it is scored; it takes a small multiple of its length in memory, and at most eight such answers are read at a time",
)
def test_the_longest_answer_takes_bounded_memory() -> None:
    """Its body and its text are there at once."""
    begin, end = b'{"choices": [{"message": {"content": "', b'. Score: 7"}}]}'
    words = (b"word " * (LONGEST // 5))[: LONGEST - 1 - len(begin) - len(end)]

    def answer(handler: Handler) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (LONGEST - 1)
        for piece in (head, begin, words, end):
            handler.wfile.write(piece)

    ask = """
    import sys
    from guerdon import Dispatcher, Limit
    from tests.http.scoring import judging
    from tests.processes import memory
    with Dispatcher([judging(sys.argv[1], timeout=100, retries=0, limit=Limit(concurrency=1))]) as dispatcher:
        dispatcher.endpoints("judge").set(sys.argv[1])  # starts the engine
        before = memory("VmHWM")
        result = dispatcher.score(completions=[f"x{index}" for index in range(2)])
        assert result.rewards.ravel().tolist() == [7.0] * 2, [one.reason for one in result.failures()][:1]
        print(memory("VmHWM") - before)
    """
    with serving(lambda path, body: answer) as server:
        grown = int(run_python(ask, server.url, cwd=ROOT).stdout)
    print(f"{grown / 2**20:.0f} MB")
    assert grown < 4 * LONGEST

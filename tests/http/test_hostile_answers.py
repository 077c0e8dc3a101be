"""Answers that no honest server gives: read right, or an error of their sample alone,
never a number that is not there."""

from __future__ import annotations

import json
import re
import socket
from typing import Any

import numpy as np
import pytest

from tests.http.scoring import judging, scored
from tests.http.wire import request_of, wired

SEVEN = [{"message": {"content": "7"}}]


def of(**answer: Any) -> bytes:
    return json.dumps(answer).encode()


def delta(text: str, index: int = 0) -> bytes:
    return of(choices=[{"index": index, "delta": {"content": text}, "finish_reason": None}])


END = b'{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}'
DONE = b"[DONE]"


def stream(*events: bytes, mark: bytes = b"") -> bytes:
    return mark + b"".join(b"data: " + event + b"\n\n" for event in events)


# Bodies of answers, and the score: None where it must be an error.
WHOLE: dict[str, tuple[bytes, float | None]] = {
    "other choices": (of(choices=[{"index": 1, "message": {"content": "3"}}, {"index": 0, **SEVEN[0]}]), 7),
    "error beside choices": (of(choices=SEVEN, error={"message": "overloaded"}), None),
    "no error beside choices": (of(choices=SEVEN, error=None), 7),
    "a filter": (of(choices=[{**SEVEN[0], "finish_reason": "content_filter"}]), None),
    "parts": (
        of(choices=[{"message": {"content": [{"type": "image", "text": "3"}, {"type": "text", "text": "7"}]}}]),
        7,
    ),
    "half a surrogate": (b'{"choices": [{"message": {"content": "\\ud83d 7"}}]}', None),
    "the same field twice": (b'{"choices": [{"message": {"content": "7", "content": "3"}}]}', None),
    "nested": (b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b', "choices": [{"message": {"content": "7"}}]}', 7),
    "beyond floats": (of(choices=[{"message": {"content": "1e999"}}]), None),
    "NaN": (b'{"choices": [{"message": {"content": NaN}}]}', None),
    "glued by nothing": (of(choices=[{"message": {"content": "7\u200b5"}}]), None),
    "too many tokens": (of(choices=SEVEN, usage={"prompt_tokens": 1e30, "completion_tokens": -1}), 7),
    "tokens in a list": (of(choices=SEVEN, usage=[10, 10, 10, 10, 10]), 7),
}
STREAMED: dict[str, tuple[bytes, float | None]] = {
    "other choices": (stream(delta("1"), delta("3", index=1), delta("0"), END, DONE), 10),
    "after the end": (stream(delta("7"), END, DONE, delta("3")), 7),
    "a byte order mark": (stream(delta("1"), delta("0"), END, DONE, mark=b"\xef\xbb\xbf"), 10),
    "an empty event": (stream(delta("1"), b"", delta("0"), END, DONE), 10),
    "half a surrogate": (stream(b'{"choices": [{"delta": {"content": "\\ud83d 1"}}]}', delta("0"), END, DONE), None),
    "no end": (stream(delta("7")), None),
    "an error": (stream(delta("7"), of(error={"message": "overloaded"}), DONE), None),
}


@pytest.mark.fault(
    "a judge's server answers with other choices, texts after the end, errors beside answers, counts of 1e30 tokens",
    sees="the score of the answer that was asked for, else `error`; no number joined from two texts",
)
@pytest.mark.parametrize("cases", [WHOLE, STREAMED], ids=["whole", "streamed"])
def test_hostile_answers(cases: dict[str, tuple[bytes, float | None]]) -> None:
    bodies = [body for body, _ in cases.values()]
    kind = b"text/event-stream" if cases is STREAMED else b"application/json"

    def hostile(connection: socket.socket) -> None:
        while True:
            found = re.search(rb"case (\d+)", request_of(connection))
            body = bodies[int(found[1])] if found else b""
            head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (kind, len(body))
            connection.sendall(head + body)

    with wired(hostile) as wire:
        price = {"input": 1.0, "output": 1.0}
        asked = judging(wire.url, price=price, stream=cases is STREAMED, retries=0)
        result = scored(asked, [f"case {place}" for place in range(len(cases))])
    found = dict(zip(cases, result.rewards.reshape(-1).tolist(), strict=True))
    wanted = {name: float("nan") if score is None else float(score) for name, (_, score) in cases.items()}
    np.testing.assert_equal(found, wanted)
    assert result.usage is not None
    assert result.usage["judge"]["prompt_tokens"] == 0

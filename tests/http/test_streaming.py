"""Answers that are streamed: read as they come, and no longer than needed."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

import pytest

from guerdon import Dispatcher, RegistrationError, parse
from tests.http.scoring import judging, only
from tests.http.wire import request_of, wired

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


def delta(text: str, **more: Any) -> dict[str, Any]:
    """An event of a chat completion."""
    return {"choices": [{"index": 0, "delta": {"content": text}, **more}]}


class Streamer:
    """A server that streams these events, and then the end, or waits for the client to hang up."""

    def __init__(self, events: list[Any], *, ends: bool = True) -> None:
        self.events, self.ends = events, ends
        self.bodies: list[dict[str, Any]] = []
        self.left = threading.Event()

    def __call__(self, connection: socket.socket) -> None:
        while True:
            self.bodies.append(json.loads(request_of(connection).partition(b"\r\n\r\n")[2]))
            connection.sendall(HEAD)
            for event in self.events:
                line = b"data: %s\n\n" % (event if isinstance(event, bytes) else json.dumps(event).encode())
                for piece in (line[:7], line[7:]):
                    connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
            if self.ends:
                connection.sendall(b"0\r\n\r\n")
                continue
            connection.settimeout(60)
            if connection.recv(1) == b"":
                self.left.set()
            return


def streamed(server: Streamer, **options: Any) -> Any:
    with wired(server) as wire:
        graded = judging(wire.url, **{"stream": True, "retries": 0, **options})
        with Dispatcher([graded], max_failure_rate=1.0) as dispatcher:
            result = dispatcher.score(completions=["x"])
            if not server.ends:
                assert server.left.wait(20), "the connection ends, and with it what the server writes"
    return result


def test_a_streamed_answer() -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}}
    server = Streamer([delta("Score: "), delta("7", finish_reason="stop"), usage, b"[DONE]"])
    result = streamed(server, keep_answers=True)
    assert result.rewards.item() == 7.0
    assert result.usage["judge"]["prompt_tokens"] == 9
    assert server.bodies[0]["stream"] is True
    assert server.bodies[0]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("way", "events", "score"),
    [
        (parse.number(which="first", reasoning="keep"), [delta("I say 7"), delta(" out of 10. Beca")], 7.0),
        (parse.tag("s", which="first", reasoning="keep"), [delta("Well.\n<s>"), delta("4</s>\n")], 4.0),
        (parse.yes_no(which="first", reasoning="keep"), [delta("No"), delta(", it is not.\n")], 0.0),
        (parse.json("s", which="first", reasoning="keep"), [delta('{"s": 3'), delta("} and")], 3.0),
        (
            parse.number(which="first"),
            [{"choices": [{"delta": {"reasoning_content": "9?"}}]}, delta("I say 2."), delta(" I th")],
            2.0,
        ),
        (
            parse.logprob("Yes"),
            [delta("Yes", logprobs={"content": [{"top_logprobs": [{"token": "Yes", "logprob": 0.0}]}]})],
            1.0,
        ),
    ],
)
def test_a_request_ends_when_its_score_is_certain(way: parse.Parse, events: list[Any], score: float) -> None:
    server = Streamer(events, ends=False)
    assert streamed(server, parse=way).rewards.item() == score


def test_tokens_of_a_request_that_ended_early_count_where_the_server_says() -> None:
    events = [
        {"type": "message_start", "message": {"id": "1", "usage": {"input_tokens": 9, "output_tokens": 1}}},
        {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "9?"}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "I say 2. As"}},
    ]
    server = Streamer(events, ends=False)
    result = streamed(server, api="anthropic", parse=parse.number(which="first"))
    assert result.rewards.item() == 2.0
    assert result.usage["judge"]["prompt_tokens"] == 9


def test_undecided_answers_are_read_to_their_end() -> None:
    server = Streamer([delta("Score: 4\n"), delta("Score: 8", finish_reason="stop"), b"[DONE]"])
    assert streamed(server, parse=parse.number(which="last")).rewards.item() == 8.0
    # The end of a reasoning makes a draft of what stood before.
    server = Streamer([delta("Say 4.\n"), delta("</think>\n8", finish_reason="stop"), b"[DONE]"])
    assert streamed(server, parse=parse.number(which="first")).rewards.item() == 8.0


@pytest.mark.fault(
    "a judge's stream breaks off, or holds an error", sees="`error` after `retries`, with what came; never half a score"
)
@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([delta("Score: 1")], 'a stream that breaks off after "Score: 1"'),
        ([delta("Score: 1"), {"error": {"message": "overloaded"}}], "overloaded"),
        ([delta("Score: 1", finish_reason="length"), b"[DONE]"], "may be cut off"),
        ([b"{oops"], "invalid JSON"),
    ],
)
def test_streams_without_a_score(events: list[Any], reason: str) -> None:
    assert reason in only(streamed(Streamer(events))).reason


def test_a_streamed_answer_without_a_score_is_kept_and_repaired() -> None:
    server = Streamer([delta("no idea", finish_reason="stop"), b"[DONE]"])
    result = streamed(server, keep_answers=True, retries=1)
    assert result.extra["judge/answer"] == ["no idea"]
    repaired = server.bodies[1]["messages"][1:]
    assert repaired[0] == {"role": "assistant", "content": "no idea"}
    assert "no number" in repaired[1]["content"]


def test_a_stream_that_ends_frees_its_connection() -> None:
    server = Streamer([delta("7", finish_reason="stop"), b"[DONE]"])
    with wired(server) as wire:
        with Dispatcher([judging(wire.url, stream=True, retries=0)]) as dispatcher:
            for _ in range(3):
                assert dispatcher.score(completions=["x"]).rewards.item() == 7.0
        assert wire.connections == 1


def test_streaming_is_for_judges_that_write() -> None:
    with pytest.raises(RegistrationError, match="neither temperature= nor stream="):
        judging("http://127.0.0.1:9", api="classify", stream=True)
    with pytest.raises(RegistrationError, match="stream="):
        judging("http://127.0.0.1:9", stream="yes")

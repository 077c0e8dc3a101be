"""API keys that are replaced while a judge is asked: in files, and by functions."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, Journal, Limit
from tests.http.scoring import judging, only, scored
from tests.http.server import Handler, chat_completion, serving


class Door:
    """Lets in who brings its key, and answers others with 401 and what they brought."""

    def __init__(self, key: str, header: str) -> None:
        self.key, self.header = key, header
        self.refused = 0
        self.echo: str | None = None
        self._lock = threading.Lock()

    def __call__(self, path: str, body: dict[str, Any]) -> Any:
        return self.answer

    def answer(self, handler: Handler) -> None:
        brought = handler.headers[self.header].removeprefix("Bearer ")
        if brought == self.key:
            handler.reply(200, chat_completion("Score: 7"))
            return
        with self._lock:
            self.refused += 1
        handler.reply(401, {"error": f"unknown key {self.echo or brought}"})


@pytest.mark.parametrize("headers", [None, {"api-key": "{key}"}], ids=["bearer", "own header"])
@pytest.mark.fault(
    "the key of a judge is replaced in its file while the judge is asked",
    sees="nothing: the file is read again after a 401, and the request is sent once more",
)
def test_a_key_that_was_replaced_in_its_file_is_read_again(tmp_path: Path, headers: dict[str, str] | None) -> None:
    file = tmp_path / "key"
    file.write_text("first-key-1234567\n")
    door = Door("first-key-1234567", "Authorization" if headers is None else "api-key")
    with serving(door) as server:
        addresses = [f"{server.url}/v1", f"{server.url}/other/v1"]
        asked = judging(addresses, api_key_file=str(file), headers=headers, retries=0, pure=False)
        with Dispatcher([asked], max_failure_rate=1.0) as dispatcher:
            assert dispatcher.score(completions=["a"] * 8).rewards.ravel().tolist() == [7.0] * 8
            door.key = "second-key-890123"
            file.write_text("\ufeffsecond-key-890123\n")
            result = dispatcher.score(completions=["b"] * 32)
            assert [failure.reason for failure in result.failures()] == []
            assert result.rewards.ravel().tolist() == [7.0] * 32
            assert door.refused <= 32
            assert (result.attempts == 1).all()
            door.refused, door.key = 0, "third-key-4567890"
            (failure,) = dispatcher.score(completions=["c"]).failures()
            file.write_text("third-key-4567890")
            assert dispatcher.score(completions=["d"]).rewards.item() == 7.0
            door.key, door.echo = "fourth-key", "second-key-890123"
            (late,) = dispatcher.score(completions=["e"]).failures()
    assert "unknown key" in late.reason
    assert "second-key" not in late.reason, "a server may echo an earlier key"
    assert "401 Unauthorized (check the API key)" in failure.reason
    assert "second-key" not in failure.reason, "the key that was read again is no more shown than the first"


@pytest.mark.parametrize("left", [None, "", "k" * 100_000], ids=["gone", "empty", "too long"])
def test_a_key_file_without_a_key_leaves_the_key_as_it_was(tmp_path: Path, left: str | None) -> None:
    file = tmp_path / "key"
    file.write_text("first-key-1234567")
    door = Door("first-key-1234567", "Authorization")
    with (
        serving(door) as server,
        Dispatcher([judging(server.url, api_key_file=str(file), retries=0)], max_failure_rate=1.0) as dispatcher,
    ):
        assert dispatcher.score(completions=["b"]).rewards.item() == 7.0
        file.unlink()
        if left is not None:
            file.write_text(left)
        door.key = "another-key"
        (failure,) = dispatcher.score(completions=["c"]).failures()
        assert "401 Unauthorized" in failure.reason
        assert door.refused == 1
        door.key = "first-key-1234567"
        assert dispatcher.score(completions=["d"]).rewards.item() == 7.0


class Tokens:
    """Tokens that a server takes a number of times each, and the function that fetches them."""

    def __init__(self, uses: int) -> None:
        self.left, self.uses = 0, uses
        self.fetched: list[str] = []
        self.threads: set[str] = set()
        self.refused = 0
        self._lock = threading.Lock()

    def __call__(self) -> str:
        self.threads.add(threading.current_thread().name)
        with self._lock:
            self.left = self.uses
            self.fetched.append(f"{len(self.fetched):04}-token-of-an-hour")
            return self.fetched[-1]

    def takes(self, token: str) -> bool:
        with self._lock:
            good = self.fetched[-1:] == [token] and self.left > 0
            self.left -= good
            self.refused += not good
        return good


@pytest.mark.fault(
    "the token of a judge expires, and a function gives the next one",
    sees="nothing: `api_key` is called again after a 401, and the request is sent once more",
)
def test_a_function_gives_the_next_token_after_a_401(tmp_path: Path) -> None:
    tokens = Tokens(uses=40)

    def answer(path: str, body: dict[str, Any]) -> Any:
        def reply(handler: Handler) -> None:
            brought = handler.headers["Authorization"].removeprefix("Bearer ")
            if tokens.takes(brought):
                handler.reply(200, chat_completion("Score: 7"))
            else:
                handler.reply(401, {"error": f"{brought} has expired"})

        return reply

    with serving(answer) as server:
        asked = judging(server.url, api_key=tokens, retries=0, pure=False, limit=Limit(concurrency=8))
        journal = Journal(tmp_path, texts=True)
        with Dispatcher([asked], max_failure_rate=1.0, journal=journal) as dispatcher:
            assert tokens.fetched == [], "no request needed one yet"
            result = dispatcher.score(completions=[str(number) for number in range(200)])
        assert not {thread.name for thread in threading.enumerate()} & tokens.threads, "it is gone with the dispatcher"
    assert [failure.reason for failure in result.failures()] == []
    assert result.rewards.ravel().tolist() == [7.0] * 200
    assert len(tokens.fetched) == 5
    assert tokens.threads == {"guerdon key of judge"}
    written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"token-of-an-hour" not in written


def _raises() -> str:
    raise ConnectionError("the login service is down")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (_raises, "no key from the function in api_key=: it raised ConnectionError: the login service is down"),
        (sys.exit, "it raised SystemExit"),
        (dict, "it returned a dict, not the key"),
        (lambda: " ", "it returned an empty string, not the key"),
        (lambda: "a\nb", "the API key contains characters that a header can't hold"),
        (lambda: "third-key-1234567", "401 Unauthorized (check the API key)"),
    ],
)
@pytest.mark.fault(
    "the function that gives a judge's key raises, or returns none",
    sees="an error with its words, after the usual `retries`",
)
def test_a_function_without_a_key_is_the_reason(function: Callable[[], Any], reason: str) -> None:
    with serving(Door("another-key", "Authorization")) as server:
        failure = only(scored(judging(server.url, api_key=function, retries=1)))
    assert reason in failure.reason
    assert "third-key" not in failure.reason

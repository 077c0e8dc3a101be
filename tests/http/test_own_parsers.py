"""``judge(parse=function)``: a parser of the user's, in a worker."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import Dispatcher, Limit, RegistrationError, Status, Votes, judge, panel, reward
from guerdon.parse import number
from tests.cluster.test_same_elsewhere import WHERE, dispatcher_on
from tests.http.scoring import scored
from tests.http.server import chat_completion, question, serving

ASK: dict[str, Any] = {"model": "m", "prompt": "{completion}", "timeout": 20, "retries": 1}
TEXTS = ["five", "né 语 🧑‍🚀", "x" * 300]


def length(answer: str) -> float | None:
    """The answer's length, by its words."""
    if answer.startswith("slow"):
        time.sleep(60)
    if answer.startswith("kill"):
        os._exit(3)
    if answer.startswith("none"):
        return None
    if answer.startswith("bad"):
        raise ValueError("no length in it")
    return answer if "number" in answer else float(len(answer))  # type: ignore[return-value]


@pytest.mark.filterwarnings("ignore:debug=True")
@pytest.mark.parametrize("where", [*WHERE, "debug"])
def test_a_function_reads_each_answer_in_a_worker(where: str) -> None:
    with serving(lambda path, body: chat_completion(f"<think>hm</think>{question(body)}")) as server:
        made = judge(base_url=server.url, parse=length, keep_answers=True, **ASK)
        copy = pickle.loads(pickle.dumps(made))
        with Dispatcher([copy], debug=True) if where == "debug" else dispatcher_on(where, [copy]) as dispatcher:
            result = dispatcher.score(completions=TEXTS)
    assert result.rewards.ravel().tolist() == [float(len(text)) for text in TEXTS]
    assert list(result.extra["judge/answer"]) == [f"<think>hm</think>{text}" for text in TEXTS]
    assert not {key for key in result.extra if "parse" in key}
    assert result.usage["judge"]["requests"] == 3
    assert repr(made) == f"<reward function 'judge': {server.url}/chat/completions, timeout 20 s>"


def test_the_time_of_a_call_is_that_of_the_request_and_the_parser() -> None:
    def slow(path: str, body: Any) -> Any:
        time.sleep(0.4)
        return chat_completion("five")

    with serving(slow) as server:
        result = scored(judge(base_url=server.url, parse=length, **ASK), ["a"])
    assert result.timings["judge"]["run_p50_s"] >= 0.4


@pytest.mark.fault(
    "a user's parser of a judge's answers raises, hangs, dies or returns no number",
    sees="an error of that sample that shows the answer; the worker is replaced, and the judge is not asked again",
)
def test_a_function_that_fails_is_an_error_of_its_sample() -> None:
    with serving(lambda path, body: chat_completion(question(body))) as server:
        made = judge(base_url=server.url, parse=reward(length, timeout=0.5), **ASK)
        result = scored(made, ["bad \n one", "slow", "kill", "no\nnumber", "none", "fine"])
    assert result.status.ravel().tolist() == [Status.ERROR] * 4 + [Status.ABSTAINED, Status.OK]
    assert result.rewards.ravel()[5] == 4.0
    reasons = [failure.reason for failure in result.failures()]
    words = {
        "bad \\n one": "ValueError: no length in it",
        "slow": "0.5 s",
        "kill": "exited with status 3",
        "no\\nnumber": "not a reward",
    }
    for reason, (shown, why) in zip(reasons, words.items(), strict=True):
        assert why in reason, reasons
        assert f'(parse= of the answer "{shown}")' in reason, reasons
    assert len(server.bodies) == 6


def test_votes_panels_and_fallbacks_have_parsers_too() -> None:
    with serving(lambda path, body: chat_completion(question(body))) as server:

        def made(name: str, **options: Any) -> Any:
            return judge(**{**ASK, "base_url": server.url, "name": name, "parse": length, **options})

        number = {"parse": None, "prompt": "Score: {prompt}"}
        functions = [
            made("votes", votes=Votes(3, by="majority"), temperature=1.0),
            panel([made("one"), made("two", **number)], reduce="max"),
            made("first", fallback=made("second", **number)),
        ]
        with Dispatcher(functions, max_failure_rate=1.0) as dispatcher:
            result = dispatcher.score(prompts=["7", "7"], completions=["x", "bad"])
            assert dispatcher.endpoints("panel", "one")[0].answered == 2
    assert np.nan_to_num(result.rewards[:, 0], nan=-1).tolist() == [[1.0, 7.0, 1.0], [-1.0, -1.0, 7.0]]
    assert list(result.extra["votes/votes"]) == [[1.0, 1.0], [None, None]]
    assert list(result.extra["panel/one"]) == [1.0, None]
    assert list(result.extra["first/by"]) == [None, "second"]
    assert all("no length in it" in failure.reason for failure in result.failures())


def test_a_cancelled_batch_gives_up_the_calls_of_its_parser() -> None:
    with serving(lambda path, body: chat_completion(question(body))) as server:
        made = judge(base_url=server.url, parse=length, limit=Limit(concurrency=64), pure=False, **ASK)
        with Dispatcher([made], max_failure_rate=1.0, workers=1) as dispatcher:
            texts = [f"answer {number}" for number in range(500)]
            assert dispatcher.score(completions=texts).rewards.ravel().tolist() == [float(len(text)) for text in texts]
            pending = dispatcher.submit(completions=["slow"] * 4)
            time.sleep(0.5)
            pending.cancel()
            assert (pending.result(timeout=20).status == Status.CANCELLED).all()
            assert dispatcher.score(completions=["four"]).rewards.item() == 4.0


def test_a_cache_knows_the_source_of_the_parser(tmp_path: Path) -> None:
    with serving(lambda path, body: chat_completion(question(body))) as server:
        for parse, expected in ((length, 4.0), (length, 4.0), (lambda answer: 9.0, 9.0)):
            made = judge(base_url=server.url, parse=parse, cache=tmp_path, **ASK)
            assert scored(made, ["four"]).rewards.item() == expected
        assert len(server.bodies) == 2


async def later(answer: str) -> float:
    return 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parse": later}, "it is async"),
        ({"parse": number}, r"such as parse.number\(\), and was not called"),
        ({"parse": reward(later)}, "runs in workers"),
        ({"parse": reward(length, lane="thread")}, "runs in workers"),
        ({"parse": lambda: 0.0}, "called with the answer alone"),
        ({"parse": length, "stream": True}, "stream=True with a parser of yours"),
        ({"parse": length, "api": "score"}, "answers with numbers"),
    ],
)
def test_a_function_that_can_not_read_answers_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RegistrationError, match=message):
        judge(**{**ASK, "base_url": "http://127.0.0.1:9/v1", **options})

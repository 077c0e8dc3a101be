"""``judge(fallback=…)``: a second judge where the first fails."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, Journal, RegistrationError, Server, Status, cascade, http_reward, judge, parse
from guerdon._insight.journal.parts import find_parts
from guerdon._insight.report.aggregates import aggregates
from guerdon._insight.report.findings import findings
from guerdon._insight.report.summary import summarise
from tests.http.scoring import only, scored
from tests.http.server import Server as Served
from tests.http.server import chat_completion, free_port, length, serving

ASK: dict[str, Any] = {"model": "m", "prompt": "{completion}", "timeout": 20, "retries": 1}


@pytest.fixture
def second() -> Iterator[Served]:
    """A judge that gives the length of what it is asked about."""
    with serving(length) as server:
        yield server


def graded(url: str, second: Served, **options: Any) -> Any:
    other = judge(base_url=second.url, name="large", **ASK)
    return judge(**{**ASK, "base_url": url, "name": "small", "fallback": other, **options})


@pytest.mark.fault(
    "a judge fails on some samples, and has a `fallback`",
    sees="the second judge's scores there, and the first one's reason in `extra`",
)
def test_samples_on_which_the_first_judge_fails_go_to_the_second(second: Served) -> None:
    def first(path: str, body: dict[str, Any]) -> Any:
        asked = body["messages"][0]["content"]
        return (500, {"error": "out of memory"}) if asked == "bad" else chat_completion("7")

    with serving(first) as server:
        function = graded(server.url, second, keep_answers=True)
        with Dispatcher([pickle.loads(pickle.dumps(function))], max_failure_rate=0.0) as dispatcher:
            result = dispatcher.score(completions=["good", "bad", "fine"])
    assert result.rewards.ravel().tolist() == [7.0, 3.0, 7.0]
    assert [len(second.bodies), len(server.bodies)] == [1, 4]
    assert list(result.extra["small/by"]) == [None, "large", None]
    (why,) = filter(None, result.extra["small/failed"])
    assert why.startswith("small: ")
    assert "500 Internal Server Error" in why
    assert "out of memory" in why
    assert list(result.extra["small/answer"]) == ["7", None, "7"], "the second judge keeps none"
    assert result.usage["small"]["requests"] == 5


def test_an_answer_that_can_not_be_read_goes_to_the_second(second: Served) -> None:
    with serving(lambda path, body: chat_completion("I would rather not say.")) as server:
        result = scored(graded(server.url, second), ["four"])
    assert result.rewards.item() == 4.0
    assert "I would rather not say" in str(result.extra["small/failed"])


@pytest.mark.fault(
    "a judge with a `fallback` is down",
    sees="the second judge's scores at once: nobody waits for the circuit breaker of the first",
)
def test_nobody_waits_for_a_judge_that_is_down(second: Served) -> None:
    begun = time.monotonic()
    with Dispatcher([graded(f"http://127.0.0.1:{free_port()}", second, retries=3)]) as dispatcher:
        result = dispatcher.score(completions=["x" * length for length in range(1, 65)])
    assert result.rewards.ravel().tolist() == list(range(1, 65))
    assert all("can't connect" in why or "circuit breaker open" in why for why in result.extra["small/failed"])
    assert time.monotonic() - begun < 60, "a breaker without a fallback makes calls wait for five minutes"


def test_batches_one_after_another_go_to_the_second_while_the_first_is_down(second: Served) -> None:
    with Dispatcher([graded(f"http://127.0.0.1:{free_port()}", second, retries=0)]) as dispatcher:
        for _ in range(4):
            result = dispatcher.submit(completions=["three"] * 40).result(timeout=60)
            assert result.rewards.ravel().tolist() == [5.0] * 40


def test_equal_requests_are_made_once_with_a_fallback_too(second: Served) -> None:
    with serving(lambda path, body: chat_completion("7")) as server:
        assert scored(graded(server.url, second, temperature=0.0), ["same"] * 6).rewards.ravel().tolist() == [7.0] * 6
        assert len(server.bodies) == 1


@pytest.mark.fault(
    "the `fallback` of a judge answers everything: the judge itself is down",
    sees="`guerdon/<name>/fallback_frac` in the trainer's log, and a warning of `guerdon report` with a reason",
)
def test_a_fallback_that_answers_everything_is_seen_in_log_and_report(second: Served, tmp_path: Path) -> None:
    logged: dict[str, list[float]] = {}
    function = graded(f"http://127.0.0.1:{free_port()}", second, retries=0)
    with Dispatcher([function], journal=Journal(tmp_path)) as dispatcher:
        dispatcher.reward_funcs[0](
            prompts=["p"] * 70,
            completions=["three"] * 69 + ["four"],
            log_extra=None,
            log_metric=lambda name, value: logged.setdefault(name, []).append(value),
        )
    assert logged["guerdon/small/fallback_frac"] == [1.0]
    every = findings(aggregates(summarise(find_parts(str(tmp_path)))))
    (found,) = (one for one in every if "fallback" in one["message"])
    assert found["severity"] == "warning"
    assert found["message"].startswith("small has 100 % of its scores from its fallback")
    assert "can't connect" in found["message"]


def test_both_reasons_are_told_where_both_fail() -> None:
    with serving(lambda path, body: (400, {"error": path})) as server:
        other = judge(**ASK, base_url=f"{server.url}/b", name="other")
        failure = only(scored(judge(**ASK, base_url=f"{server.url}/a", fallback=other)))
    assert failure.status is Status.ERROR
    for part in ("judge: ", "/a/chat/completions", "; other: ", "/b/chat/completions"):
        assert part in failure.reason


def test_a_fallback_of_several_functions_shows_which_one_scored(second: Served) -> None:
    with serving(lambda path, body: (400, {"error": body["model"]})) as server:
        down = {**ASK, "base_url": server.url}
        large = judge(base_url=second.url, name="large", **ASK)
        by_cascade = cascade([judge(**{**down, "model": "medium"}, name="medium"), large], name="rest")
        by_fallback = judge(**{**down, "model": "medium"}, name="rest", fallback=large)
        for fallback in (by_cascade, by_fallback):
            result = scored(judge(**down, name="small", fallback=fallback), ["four"])
            assert result.rewards.item() == 4.0
            extra = {name: value for name, (value,) in result.extra.items()}
            assert (extra["small/by"], extra["small/rest/by"]) == ("rest", "large")
            assert extra["small/failed"].startswith("small: ")
            assert "medium" not in extra["small/failed"]
            assert "medium" in extra["small/rest/failed"]


def test_a_reward_service_can_stand_in() -> None:
    with serving(lambda path, body: {"score": 0.5}) as service:
        other = http_reward(service.url, name="service")
        function = judge(**ASK, base_url=f"http://127.0.0.1:{free_port()}", fallback=other)
        assert scored(function, prompts=["p"]).rewards.item() == 0.5


URL = "http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fallback": "large"}, "expected what guerdon.judge, guerdon.http_reward or guerdon.reward makes"),
        ({"votes": 3}, "a judge with a fallback is asked once"),
        ({"pure": True}, "with pure=True"),
        ({"fallback": {"name": "judge"}}, "its fallback is called 'judge', too"),
        ({"fallback": {"total_timeout": 9}}, "has a total_timeout: give it to the judge"),
        ({"fallback": {"cache": "/tmp/x"}}, "has a cache=. Give it to the judge"),
        ({"fallback": {"on_failure": 0.0}}, "has a on_failure"),
    ],
)
def test_judges_that_can_not_stand_together_are_refused(options: dict[str, Any], message: str) -> None:
    given = options.get("fallback", {})
    other = judge(**{**ASK, "base_url": URL, "name": "large", **given}) if isinstance(given, dict) else given
    with pytest.raises(RegistrationError, match=message):
        judge(**{**ASK, "base_url": URL, **options, "fallback": other})


def test_a_judge_with_votes_stands_in(second: Served) -> None:
    other = judge(base_url=second.url, name="large", votes=3, temperature=1.0, **ASK)
    function = judge(**ASK, base_url=f"http://127.0.0.1:{free_port()}", fallback=other)
    result = scored(function, ["a", "bcd"])
    assert result.rewards.ravel().tolist() == [1.0, 3.0]
    assert list(result.extra["judge/votes"]) == [[1.0, 1.0], [3.0, 3.0]]
    assert list(result.extra["judge/by"]) == ["large"] * 2
    assert len(second.bodies) == 4


def test_each_of_both_has_its_own_prompt_and_parser(second: Served) -> None:
    way = parse.number(range=(0, 100))
    other = judge(server=Server(second.url), model="m", prompt="{prompt}", parse=way, name="large")
    with (
        serving(lambda path, body: (422, {})) as server,
        Dispatcher([judge(**ASK, base_url=server.url, fallback=other)]) as dispatcher,
    ):
        assert dispatcher.score(prompts=["seven!!"], completions=["x"]).rewards.item() == 7.0
        assert [one.failed for one in dispatcher.endpoints("judge", "judge")] == [1]
        assert [one.answered for one in dispatcher.endpoints("judge", "large")] == [1]

"""Outcomes on disk (``cache=``), on every lane: for later batches, runs and processes."""

from __future__ import annotations

import json
import os
import re
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from guerdon import (
    Cache,
    Dispatcher,
    GuerdonWarning,
    RegistrationError,
    Server,
    StatefulReward,
    Status,
    Votes,
    http_reward,
    judge,
    panel,
    reward,
    rubric,
)
from tests.clock import eventually
from tests.http.server import chat_completion, serving
from tests.processes import run_python, started_python
from tests.simple import streamed

fault = pytest.mark.fault


def counted(folder: Path, calls: list[str], **options: Any) -> Any:
    def graded(completion: str) -> Any:
        calls.append(completion)
        if completion == "fails":
            raise ValueError("no")
        return None if completion == "abstains" else float(len(completion))

    return reward(graded, lane="thread", cache=folder, cache_version="1", **options)


def test_a_later_run_finds_what_an_earlier_one_computed(tmp_path: Path) -> None:
    calls: list[str] = []
    completions = ["a", "bb", "a", "abstains", "fails"]
    for run in range(2):
        with Dispatcher([counted(tmp_path, calls)]) as dispatcher:
            result = dispatcher.score(completions=completions)
            stats = dispatcher.stats()
        assert result.rewards.ravel()[:3].tolist() == [1.0, 2.0, 1.0]
        assert result.status.ravel()[3:].tolist() == [Status.ABSTAINED, Status.ERROR]
        found = {"shared": 1, "hits": 3 * run, "misses": 4 - 3 * run}
        assert stats["cache"] == {"graded": found}
        assert result.attempts.ravel()[:2].tolist() == [1 - run, 1 - run]
        assert (result.timings["graded"]["cached"], result.timings["graded"]["shared"]) == (3 * run, 1)
        assert stats["cache_dropped"] == 0
    assert sorted(calls) == ["a", "abstains", "bb", "fails", "fails"], "failures are not kept"


def test_kept_records_are_recorded_again(tmp_path: Path) -> None:
    logged: list[Any] = []

    def metrics(name: str, value: float) -> None:
        logged.append((name, value))

    for _ in range(2):

        @reward(cache=tmp_path)
        def noted(completion: str, level: int, log_metric: Any) -> dict[str, Any]:
            log_metric("length", len(completion))
            return {"score": level, "seen": completion}

        with Dispatcher([noted], workers=1, log_metrics="all") as dispatcher:
            result = dispatcher.score(completions=["a", "bb"], level=[3, 4])
            # A call that comes before the first has left is shared with it, and not cached.
            dispatcher.score(completions=["a", "bb"], level=[3, 4])
            (column,) = dispatcher.reward_funcs
            logged.clear()
            column(prompts=["p"] * 2, completions=["a", "bb"], level=[3, 4], log_metric=metrics)
        assert result.rewards.ravel().tolist() == [3.0, 4.0]
        assert result.extra["noted/seen"] == ["a", "bb"]
        assert [value for name, value in logged if name == "length"] == [1, 2]
        assert dict(logged)["guerdon/noted/cached_frac"] == 1.0


def test_asyncio_and_streams_use_the_folder(tmp_path: Path) -> None:
    calls: list[str] = []

    @reward(cache=tmp_path, cache_version="1")
    async def asked(completion: str) -> float:
        calls.append(completion)
        return 1.0

    with Dispatcher([asked]) as dispatcher:
        dispatcher.score(completions=["a", "b"])
        assert dispatcher.score(completions=["b", "a"]).timings["asked"]["cached"] == 2
        assert dispatcher.stats()["cache"]["asked"] == {"shared": 0, "hits": 2, "misses": 2}
    assert len(calls) == 2
    with serving(lambda path, body: chat_completion("7")) as server:
        asks = judge(base_url=f"{server.url}/v1", model="m", prompt="{completion}", cache=tmp_path)
        for _ in range(2):
            with Dispatcher([asks]) as dispatcher:
                assert (streamed(dispatcher, {"completions": ["a", "b"]}).rewards == 7).all()
    assert len(server.bodies) == 2


def test_a_hit_of_a_judge_costs_nothing_and_has_its_answer(tmp_path: Path) -> None:
    with serving(
        lambda path, body: chat_completion("7") | {"usage": {"prompt_tokens": 10, "completion_tokens": 1}}
    ) as server:
        ask: dict[str, Any] = {
            "server": Server(f"{server.url}/v1", price={"input": 1.0, "output": 1.0}),
            "model": "m",
            "prompt": "{completion}",
            "cache": tmp_path,
            "keep_answers": True,
        }
        used = []
        for _ in range(2):
            with Dispatcher([judge(**ask)]) as dispatcher:
                result = dispatcher.score(completions=["a"])
            assert (result.rewards.item(), result.extra["judge/answer"]) == (7.0, ["7"])
            used.append(result.usage["judge"])
        assert (used[0]["requests"], used[0]["prompt_tokens"]) == (1, 10)
        assert set(used[1].values()) == {0.0}
        for changed in ({"prompt": "Grade {completion}"}, {"model": "n"}, {"max_tokens": 9}, {"cache_version": "2"}):
            with Dispatcher([judge(**{**ask, **changed})]) as dispatcher:
                assert dispatcher.score(completions=["a"]).timings["judge"]["cached"] == 0
    # Another server of the same model.
    with (
        serving(lambda path, body: chat_completion("1")) as other,
        Dispatcher([judge(**{**ask, "server": Server(f"{other.url}/v1"), "timeout": 5.0})]) as dispatcher,
    ):
        assert dispatcher.score(completions=["a"]).rewards.item() == 7
    assert (len(server.bodies), other.bodies) == (5, [])


def test_votes_and_panels_are_kept_whole(tmp_path: Path) -> None:
    with serving(lambda path, body: chat_completion("7")) as server:
        ask: dict[str, Any] = {"base_url": f"{server.url}/v1", "prompt": "{completion}"}
        sent = []
        for _ in range(2):
            votes = judge(**ask, model="m", votes=3, temperature=1, cache=tmp_path, name="votes")
            both = panel([judge(**ask, model="n", name="n"), judge(**ask, model="o", name="o")], cache=tmp_path)
            with Dispatcher([votes, both]) as dispatcher:
                result = dispatcher.score(completions=["a"])
            assert result.rewards.ravel().tolist() == [7.0, 7.0]
            assert result.extra["panel/n"] == [7.0]
            assert result.extra["votes/agreement"] == [1.0]
            sent.append(len(server.bodies))
        assert sent[1] == sent[0] >= 4
        fewer = judge(**ask, model="m", votes=5, temperature=1, cache=tmp_path, name="votes")
        with Dispatcher([fewer]) as dispatcher:
            assert dispatcher.score(completions=["a"]).timings["votes"]["cached"] == 0
    with pytest.raises(RegistrationError, match="Give it to the panel"):
        panel([judge(**ask, model="n", name="n", cache=tmp_path), judge(**ask, model="o", name="o")])


@fault("a member of a panel with a cache folder fails", sees="the others' score is not kept for later runs")
@pytest.mark.parametrize("votes", [False, True])
def test_a_score_without_all_members_is_not_kept(tmp_path: Path, votes: bool) -> None:
    is_down = True
    asked = 0

    def answer(path: str, body: dict[str, Any]) -> Any:
        nonlocal asked
        asked += 1
        if is_down and (asked == 1 if votes else body["model"] == "o"):
            raise ConnectionError
        return chat_completion("1" if body["model"] == "o" else "9")

    with serving(answer) as server:
        ask: dict[str, Any] = {"base_url": f"{server.url}/v1", "prompt": "{completion}", "retries": 0}
        for cached in (0, 0, 1):
            judges = [judge(**ask, model=name, name=name) for name in ("n", "o")]
            both = panel(judges, reduce="mean", min_members=1, cache=tmp_path, name="graded")
            one = judge(**ask, model="n", name="graded", votes=Votes(3, by="mean"), temperature=1, cache=tmp_path)
            with Dispatcher([one if votes else both]) as dispatcher:
                result = dispatcher.score(completions=["a"])
            assert result.timings["graded"]["cached"] == cached
            assert result.rewards.item() == (9 if votes or is_down else 5)
            is_down = False


def test_columns_in_another_order_are_other_values(tmp_path: Path) -> None:
    calls: list[Any] = []

    def named(completion: str, **row: Any) -> float:
        calls.append(row)
        return float(row.get("a", 0) * 100 + row.get("b", 0) * 10 + row.get("c", 0))

    with Dispatcher([reward(named, lane="thread", cache=tmp_path, cache_version="1")]) as dispatcher:

        def score(**columns: list[int]) -> float:
            return float(dispatcher.score(completions=["x"], **columns).rewards.item())

        assert score(a=[1], b=[2], c=[3]) == 123
        assert score(a=[1], c=[2], b=[3]) == 132
        assert score(a=[1], c=[3], b=[2]) == 123
        assert score(b=[1], a=[2], c=[3]) == 213
        assert score(a=[1]) == 100
        assert score(b=[1]) == 10
        assert score(c=[1]) == 1


GRADERS = """
from guerdon import reward

@reward(cache={folder!r})
def graded(completion: str) -> float:
    return 2.0 * len(completion)
"""
SCORES = """
import json, sys
from guerdon import Dispatcher
from graders import graded
with Dispatcher([graded], workers=1) as dispatcher:
    result = dispatcher.score(completions=sys.argv[1:])
print(json.dumps([result.rewards.ravel().tolist(), result.timings["graded"]["cached"]]))
"""


def in_a_process(folder: Path, *completions: str) -> Any:
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    environment = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    return json.loads(run_python(SCORES, *completions, flags=["-W", "error"], env=environment).stdout)


@fault("two processes fill one cache folder", sees="each finds what the other computed")
def test_processes_share_a_folder(tmp_path: Path) -> None:
    (tmp_path / "graders.py").write_text(GRADERS.format(folder=str(tmp_path / "kept")))
    assert in_a_process(tmp_path, "a", "bb") == [[2.0, 4.0], 0]
    assert in_a_process(tmp_path, "bb", "a", "ccc") == [[4.0, 2.0, 6.0], 2]


def test_functions_without_a_version_are_refused_unless_one_is_given(tmp_path: Path) -> None:
    import threading

    lock = threading.Lock()

    def locked(completion: str) -> float:
        with lock:
            return 1.0

    with pytest.raises(RegistrationError, match=r"the variable 'lock' of its closure.*cache_version="):
        Dispatcher([reward(locked, lane="thread", cache=tmp_path)])
    Dispatcher([reward(locked, lane="thread", cache=tmp_path, cache_version="1")]).close()


def test_wrong_options_are_refused(tmp_path: Path) -> None:
    def plain(completion: str) -> float:
        return 1.0

    class ShapedReward(StatefulReward):
        def score(self, completion: str) -> float:
            return 1.0

        def finish_group(self, scores: list[float | None], **columns: Any) -> list[float | None]:
            return scores

    for options, message in (
        ({"cache": 3}, "cache=3: expected the path of a folder"),
        ({"cache": tmp_path, "pure": False}, "Leave one of them out"),
        ({"cache": Cache(tmp_path, size="much")}, "size='much': expected a number of bytes"),
        ({"cache": Cache(tmp_path, size=10)}, "at least 1MiB"),
        ({"cache": tmp_path, "cache_version": ""}, "cache_version=''"),
        ({"cache_version": "2"}, "without cache="),
    ):
        with pytest.raises(RegistrationError, match=re.escape(message)):
            reward(plain, **options)  # type: ignore[call-overload]
    with pytest.raises(RegistrationError, match="depends on its group"):
        reward(ShapedReward(), cache=tmp_path)
    one, other = (
        reward(plain, name=name, cache=Cache(tmp_path, size=size)) for name, size in (("a", "2GB"), ("b", "1GB"))
    )
    with pytest.raises(RegistrationError, match=r"share the folder.*different sizes"):
        Dispatcher([one, other])
    with pytest.raises(RegistrationError, match=r"cache= is for guerdon\.judge"):
        rubric({"a": "b"}, base_url="http://localhost:1/v1", model="m", prompt="{completion}", cache=tmp_path)
    with pytest.raises(RegistrationError, match="Leave one of them out"):
        http_reward("http://localhost:1/", cache=tmp_path, pure=False)


def damage(file: Path) -> None:
    file.write_bytes(b"no database at all" * 1000)


def unwritable(file: Path) -> None:
    file.parent.rmdir()
    file.parent.symlink_to("/proc/nowhere")


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        pytest.param(
            damage,
            "is damaged",
            marks=fault("a cache folder's file is damaged", sees="one warning; calls are made as without one"),
        ),
        pytest.param(
            unwritable,
            "cache folder",
            marks=fault("a cache folder can't be written", sees="one warning; calls are made as without one"),
        ),
    ],
)
def test_a_folder_that_can_not_be_used_is_warned_of(tmp_path: Path, harm: Any, message: str) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    harm(folder / "outcomes.sqlite")
    calls: list[str] = []
    with warnings.catch_warnings(record=True) as warned, Dispatcher([counted(folder, calls)]) as dispatcher:
        warnings.simplefilter("always")
        for _ in range(2):
            assert dispatcher.score(completions=["a", "bb"]).rewards.ravel().tolist() == [1.0, 2.0]
        eventually(lambda: any(one.category is GuerdonWarning for one in warned))
    # Python's own may be among them, of what other tests left.
    (one,) = (one for one in warned if one.category is GuerdonWarning)
    assert message in str(one.message)
    assert len(calls) == 2, "in memory outcomes are still found"


FULL = """
import json, resource, signal, sys, warnings
from guerdon import Dispatcher, reward

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

@reward(lane="thread", cache=sys.argv[1], cache_version="1")
def graded(completion: str, number: int) -> dict:
    return {"score": number, "said": completion * 100}

with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    with Dispatcher([graded]) as dispatcher:
        for _ in range(2):
            result = dispatcher.score(completions=[f"{n:06}" for n in range(2000)], number=list(range(2000)))
        right = result.rewards.ravel().tolist() == list(range(2000))
        dispatcher.close()
print(json.dumps([right, [str(one.message) for one in warned]]))
"""


@fault("the disk of a cache folder is full", sees="one warning; what does not fit is computed again")
def test_a_full_disk(tmp_path: Path) -> None:
    # No file may grow beyond 200 KB, as on a full disk.
    right, warned = json.loads(run_python(FULL, tmp_path).stdout)
    assert right
    assert len(warned) == 1, warned
    assert "cache folder" in warned[0]


WRITER = """
import sys
from guerdon import Dispatcher, reward

@reward(lane="thread", cache=sys.argv[1], cache_version="1")
def graded(completion: str) -> float:
    return float(completion)

with Dispatcher([graded]) as dispatcher:
    for first in range(0, 10**9, 64):
        dispatcher.score(completions=[str(n) for n in range(first, first + 64)])
        print(first, flush=True)
"""


@fault(
    "a process is killed while it writes to a cache folder",
    sees="others find its outcomes, but for those of the last milliseconds",
)
def test_a_killed_process_leaves_right_outcomes(tmp_path: Path) -> None:
    for _ in range(3):
        with started_python(WRITER, tmp_path) as writer:
            assert writer.stdout is not None
            start, batches = time.monotonic(), 0
            while batches < 30 or time.monotonic() - start < 0.5:
                assert writer.stdout.readline()
                batches += 1
    calls: list[str] = []

    @reward(lane="thread", cache=tmp_path, cache_version="1")
    def graded(completion: str) -> float:
        calls.append(completion)
        return float(completion)

    with Dispatcher([graded]) as dispatcher:
        result = dispatcher.score(completions=[str(number) for number in range(256)])
    assert result.rewards.ravel().tolist() == list(range(256))
    assert result.timings["graded"]["cached"] == 256 - len(calls) > 0

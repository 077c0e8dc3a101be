"""Limits of functions whose ranks share an engine: one for all ranks of the host."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, GuerdonWarning, Limit, http_reward, judge, panel, reward
from guerdon._functions.build import spec_of
from guerdon._functions.spec import FunctionSpec
from guerdon._lanes.remote.shared_engine.shared_limits import share_limits
from guerdon.limits import SharedLimit
from tests.cluster.shared_engine.rank_processes import launch_in
from tests.http.server import serving


def test_a_rate_without_a_key_holds_for_all_ranks(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    own = {"GUERDON_LIMITS_DIR": str(tmp_path / "limits")}
    asked: list[float] = []

    def answer(path: str, body: dict[str, Any]) -> dict[str, float]:
        asked.append(time.monotonic())
        return {"reward": 1.0}

    with serving(answer) as server, launch_in(tmp_path_factory.mktemp("r"), 2) as launch:
        ranks = [launch.start(number, own, judge=server.url) for number in range(2)]
        for rank in ranks:
            rank.score(["x"] * 20, 0.0)
        for rank in ranks:
            answer = rank.answer()
            assert (answer["rewards"], answer["warnings"]) == ([1.0] * 20, [])
    assert len(asked) == 40
    # Twenty a second: two seconds, where two limits take one.
    assert asked[-1] - asked[0] > 1.7


async def asks(text: str) -> float:
    return 1.0


def threaded(text: str) -> float:
    return 1.0


def made(limit: Limit | None, **more: Any) -> FunctionSpec:
    given: dict[str, Any] = {"columns": ["text"], "name": "judged", "limit": limit, **more}
    return spec_of(http_reward(given.pop("url", "http://127.0.0.1:1/score"), **given))


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GUERDON_LIMITS_DIR", str(tmp_path / "limits"))


def identity(spec: FunctionSpec) -> str | None:
    (shared,) = share_limits([spec])
    limit = shared.policy.limit
    return limit.identity if isinstance(limit, SharedLimit) else None


def test_names_and_numbers_tell_limits_apart() -> None:
    first = identity(made(Limit(rpm=60)))
    assert first is not None
    assert first == identity(made(Limit(rpm=60)))
    others = [made(Limit(rpm=61)), made(Limit(rpm=60), url="http://127.0.0.1:2/score"), made(Limit(rpm=60), name="x")]
    assert first not in [identity(other) for other in others]
    models = [
        judge(prompt="Rate {completion}", base_url="http://127.0.0.1:1/v1", model=model, limit=Limit(tpm=60))
        for model in ("a", "a", "b")
    ]
    of_models = [identity(spec_of(model)) for model in models]
    assert of_models[0] == of_models[1] != of_models[2]


def test_only_functions_that_take_permits_share_limits() -> None:
    assert identity(spec_of(reward(asks, limit=Limit(concurrency=2)))) is not None
    assert identity(spec_of(reward(threaded, lane="thread", limit=Limit(rpm=60)))) is not None
    assert identity(spec_of(reward(threaded, lane="thread", limit=Limit(concurrency=2)))) is None
    assert identity(spec_of(reward(threaded, limit=Limit(concurrency=2)))) is None, "its engine is one already"
    assert identity(spec_of(reward(asks, limit=Limit(rpm=60, key="endpoint")))) is None
    assert identity(spec_of(reward(asks))) is None
    assert identity(made(None)) is None


def test_members_of_a_panel_share_theirs() -> None:
    judges = [
        judge(prompt="{completion}", base_url="http://127.0.0.1:1/v1", model="m", name=name, limit=Limit(rpm=60))
        for name in ("first", "second")
    ]
    (shared,) = share_limits([spec_of(panel(judges, name="both"))])
    limits: list[Any] = [member.policy.limit for member in shared.called]
    assert [limit.identity for limit in limits] == [identity(spec_of(one)) for one in judges]


def test_without_a_folder_each_rank_has_its_own_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GUERDON_LIMITS_DIR", str(tmp_path / "file" / "limits"))
    limited = reward(asks, limit=Limit(rpm=6000))
    with pytest.warns(GuerdonWarning, match="can't share limits, and each has its own") as warned:
        dispatcher = Dispatcher([limited], cluster="host")
    # Python's own may be among them, of what other tests left.
    assert len([one for one in warned if one.category is GuerdonWarning]) == 1
    with dispatcher:
        assert dispatcher.score(completions=["a"]).rewards.tolist() == [[[1.0]]]

"""The environment of workers: the trainer's, without its secrets, each function with its own
part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from guerdon import Dispatcher, RegistrationError, RewardBatch, reward
from tests.stress import limited_functions

KEY = "STRESS_API_KEY"
NAMES = f"{KEY} STRESS_PLAIN OMP_NUM_THREADS OPENBLAS_NUM_THREADS"


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "sk-1234")
    monkeypatch.setenv("STRESS_PLAIN", "plain")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)


@pytest.mark.fault(
    "a function looks for the trainer's API keys, in `os.environ`, `/proc/self/environ` or a child",
    sees="it finds none, unless it named them (`env=`); the rest of the trainer's environment is there",
)
@pytest.mark.parametrize("isolation", ["worker", "call"])
def test_a_function_finds_the_secrets_that_it_names_and_no_others(isolation: str) -> None:
    expected = {KEY: None, "STRESS_PLAIN": "plain", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    plain = reward(limited_functions.look, name="plain", isolation=isolation)

    def assert_hidden(result: RewardBatch, count: int) -> None:
        assert not result.failures()
        assert result.extra["plain/found"] == [expected] * count
        seen = result.extra["plain/child"] + result.extra["plain/started"]
        assert all(not child[KEY] and child["STRESS_PLAIN"] for child in seen)

    with Dispatcher([plain], workers=1) as dispatcher:  # nobody names any
        assert_hidden(dispatcher.score(completions=[NAMES] * 3), 3)
    functions = [
        reward(limited_functions.look, name="asks", env=[KEY, "STRESS_NOT_THERE"], isolation=isolation),
        plain,
        reward(limited_functions.Looking(), name="sets_up", env={KEY}, isolation=isolation),
    ]
    with Dispatcher(functions, workers=1) as dispatcher:
        for _ in range(3):  # turn and turn about in one worker
            result = dispatcher.score(completions=[NAMES] * 20, num_generations=4)
            assert_hidden(result, 20)
            assert [found[KEY] for found in result.extra["asks/found"]] == ["sk-1234"] * 20
            assert [child[KEY] for child in result.extra["asks/child"]] == [True] * 20
            assert [started[KEY] for started in result.extra["asks/started"]] == [False] * 20
            assert result.extra["sets_up/found"] == ["sk-1234"] * 20


@pytest.mark.fault(
    "a function needs a variable that is hidden from workers and did not name it",
    sees="`error`: KeyError, with the two ways to give it the variable",
)
def test_a_missing_variable_is_explained() -> None:
    with Dispatcher([reward(limited_functions.demand, max_failure_rate=1.0)], workers=1) as dispatcher:
        (failure,) = dispatcher.score(completions=["a"]).failures()
    assert failure.reason.startswith(f"KeyError: '{KEY}' (this variable is hidden from workers")
    assert f"reward(env=['{KEY}'])" in failure.reason
    assert "worker_env=" in failure.reason
    assert "sk-1234" not in failure.reason


def _found(names: str, env: Sequence[str] = (), **given: str | None) -> dict[str, str | None]:
    """The variables that a function finds with this `env` and `worker_env`."""
    with Dispatcher([reward(limited_functions.look, env=env)], workers=1, worker_env=given) as dispatcher:
        result = dispatcher.score(completions=[names])
    assert not result.failures()
    found: dict[str, str | None] = result.extra["look/found"][0]
    return found


def test_worker_env_sets_and_hides_for_all() -> None:
    given = {"STRESS_PLAIN": None, KEY: "another", "OMP_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": None}
    assert _found(NAMES, **given) == given


def test_the_trainers_own_values_arrive_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("STRESS_TOKEN", "a=b=c\n\udcff"), ("STRESS_EMPTY", ""), ("OMP_NUM_THREADS", "2")):
        monkeypatch.setenv(name, value)
    found = _found("STRESS_TOKEN STRESS_EMPTY OMP_NUM_THREADS OPENBLAS_NUM_THREADS", env=["STRESS_TOKEN"])
    assert found.pop("STRESS_TOKEN") in ("a=b=c\n\udcff", "a=b=c\n\\udcff")
    assert found == {"STRESS_EMPTY": "", "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "1"}


@pytest.mark.parametrize(
    "given",
    [
        *({name: "sk-1234"} for name in ("A=B", "", 3, "\0", "\ud800")),
        *({"A": text} for text in (b"sk-1234", "sk-1234\0", "sk-1234\ud800", 3)),
        "A=sk-1234",
        [("A", "sk-1234")],
    ],
    ids=ascii,
)
def test_a_wrong_worker_env_is_refused_without_its_values(given: Any) -> None:
    with pytest.raises(RegistrationError, match="worker_env") as caught:
        Dispatcher([reward(limited_functions.look)], worker_env=given)
    assert "sk-1234" not in str(caught.value)

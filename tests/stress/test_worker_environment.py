"""The environment of workers: the trainer's, without its secrets, each function with its own
part."""

from __future__ import annotations

from typing import Any

import pytest

from guerdon import Dispatcher, RegistrationError, reward
from tests.stress import limited_functions

KEY = "STRESS_API_KEY"
NAMES = f"{KEY} STRESS_PLAIN OMP_NUM_THREADS OPENBLAS_NUM_THREADS"


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "sk-1234")
    monkeypatch.setenv("STRESS_PLAIN", "plain")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)


def _look(dispatcher: Dispatcher, function: str, names: str = NAMES) -> dict[str, Any]:
    with dispatcher:
        result = dispatcher.score(completions=[names] * 3)
    assert not result.failures()
    return {what: result.extra[f"{function}/{what}"] for what in ("found", "child", "started")}


@pytest.mark.fault(
    "a function looks for the trainer's API keys, in `os.environ`, `/proc/self/environ` or a child",
    sees="it finds none; the rest of the trainer's environment is there",
)
@pytest.mark.parametrize("isolation", ["worker", "call"])
def test_secrets_stay_with_the_trainer(isolation: str) -> None:
    seen = _look(Dispatcher([reward(limited_functions.look, isolation=isolation)], workers=1), "look")
    expected = {KEY: None, "STRESS_PLAIN": "plain", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    assert seen["found"] == [expected] * 3
    assert all(not child[KEY] and child["STRESS_PLAIN"] for child in seen["child"] + seen["started"])


@pytest.mark.parametrize("isolation", ["worker", "call"])
def test_a_function_that_names_a_variable_finds_it_and_others_do_not(isolation: str) -> None:
    functions = [
        reward(limited_functions.look, name="asks", env=[KEY, "STRESS_NOT_THERE"], isolation=isolation),
        reward(limited_functions.look, name="plain", isolation=isolation),
        reward(limited_functions.Looking(), name="sets_up", env={KEY}, isolation=isolation),
    ]
    with Dispatcher(functions, workers=1) as dispatcher:
        for _ in range(3):  # turn and turn about in one worker
            result = dispatcher.score(completions=[NAMES] * 20, num_generations=4)
            assert not result.failures()
            assert [found[KEY] for found in result.extra["asks/found"]] == ["sk-1234"] * 20
            assert [child[KEY] for child in result.extra["asks/child"]] == [True] * 20
            assert [started[KEY] for started in result.extra["asks/started"]] == [False] * 20
            assert [found[KEY] for found in result.extra["plain/found"]] == [None] * 20
            assert [child[KEY] for child in result.extra["plain/child"]] == [False] * 20
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


def test_worker_env_sets_and_hides_for_all() -> None:
    given = {"STRESS_PLAIN": None, KEY: "another", "OMP_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": None}
    seen = _look(Dispatcher([reward(limited_functions.look)], workers=1, worker_env=given), "look")
    assert seen["found"][0] == {
        KEY: "another",
        "STRESS_PLAIN": None,
        "OMP_NUM_THREADS": "3",
        "OPENBLAS_NUM_THREADS": None,
    }


def test_the_trainers_own_number_of_threads_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    seen = _look(Dispatcher([reward(limited_functions.look)], workers=1), "look")
    assert seen["found"][0]["OMP_NUM_THREADS"] == "2"
    assert seen["found"][0]["OPENBLAS_NUM_THREADS"] == "1"


def test_odd_values_arrive_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("STRESS_TOKEN", "a=b=c\n\udcff"), ("STRESS_EMPTY", "")):
        monkeypatch.setenv(name, value)
    made = Dispatcher([reward(limited_functions.look, env=["STRESS_TOKEN"])], workers=1)
    (found, *_) = _look(made, "look", "STRESS_TOKEN STRESS_EMPTY")["found"]
    assert found["STRESS_EMPTY"] == ""
    assert found["STRESS_TOKEN"] in ("a=b=c\n\udcff", "a=b=c\n\\udcff")


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

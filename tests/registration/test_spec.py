"""What registration settles: lanes, loops, timeouts, names."""

from __future__ import annotations

import ast
import asyncio
import functools
import importlib.util
import json
import math
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import Dispatcher, Limit, StatefulReward, group_reward, reward
from guerdon._functions.build import UNDECORATED_LOOP, spec_of
from guerdon._functions.callables import is_reward_model, name_of
from guerdon._functions.function_list import refuse_repeated_names
from guerdon._functions.options import LANES
from guerdon._functions.spec import FunctionSpec
from guerdon.errors import RegistrationError


def trl_style(prompts: list[str], completions: list[str], **kwargs: Any) -> list[float]:
    return [1.0] * len(completions)


async def trl_async(completions: list[str], **kwargs: Any) -> list[float]:
    return [1.0] * len(completions)


def length(completion: str) -> float:
    return float(len(completion))


async def judge(prompt: str, completion: str) -> float:
    return 1.0


class Scorer:
    def __call__(self, completion: str) -> float:
        return 1.0

    def method(self, completion: str) -> float:
        return 1.0

    def lists(self, completions: list[str], **kwargs: Any) -> list[float]:
        return [1.0]


class Plain(StatefulReward):
    def score(self, completion: str) -> float:
        return 1.0


class Finishing(StatefulReward):
    async def score(self, completion: str) -> float:
        return 1.0

    def finish_group(self, scores: list[float | None], **columns: object) -> list[float | None]:
        return scores


def test_a_sync_per_sample_function_runs_in_a_worker() -> None:
    spec = spec_of(reward(length))
    assert (spec.name, spec.lane, spec.shape) == ("length", "process", "sample")
    assert spec.target is length
    assert (spec.pinned, spec.is_async, spec.stateful, spec.decorated) == (False, False, False, True)
    assert spec.loop is None


def test_an_async_function_runs_on_a_loop_of_its_own() -> None:
    one, other = spec_of(reward(judge)), spec_of(reward(judge, name="other"))
    assert one.lane == other.lane == "asyncio"
    assert one.loop is not None
    assert one.loop != other.loop
    assert UNDECORATED_LOOP not in (one.loop, other.loop)
    shared = [spec_of(reward(judge, name=name, loop="judges")).loop for name in "ab"]
    assert shared == ["judges", "judges"]


def test_an_undecorated_function_obeys_trls_contract() -> None:
    sync, awaits = spec_of(trl_style), spec_of(trl_async)
    assert (sync.lane, sync.shape, sync.pinned, sync.decorated) == ("process", "batch", True, False)
    assert sync.wants.everything
    assert (awaits.lane, awaits.shape, awaits.pinned) == ("asyncio", "batch", False)
    assert awaits.loop == spec_of(trl_async).loop == UNDECORATED_LOOP


def test_decorated_function_of_completions_is_called_once_per_batch() -> None:
    spec = spec_of(reward(trl_style, timeout=5, retries=2))
    assert (spec.shape, spec.pinned, spec.decorated, spec.policy.timeout) == ("batch", True, True, 5.0)
    assert spec.wants.everything
    assert spec_of(reward(trl_style)).policy.timeout == 600.0
    assert spec_of(reward(trl_async, timeout=5)).loop == UNDECORATED_LOOP
    assert not spec_of(reward(trl_style, isolation="call")).pinned
    with pytest.raises(RegistrationError, match=r"pure=True.*once for the whole batch.*rowwise=True"):
        reward(trl_style, pure=True)


@pytest.mark.parametrize("lane", LANES)
def test_a_timeout_of_none_is_no_timeout(lane: str) -> None:
    endless = reward(length, lane=lane, timeout=None)
    assert "no timeout" in repr(endless)
    with Dispatcher([endless], workers=1) as dispatcher:
        assert dispatcher.score(completions=["ab"]).rewards.item() == 2.0
    with pytest.raises(RegistrationError, match="timeout='none': expected a number of seconds"):
        reward(length, timeout="none")


def test_decorated_function_of_keywords_alone_is_called_per_sample() -> None:
    spec = spec_of(reward(lambda **row: 1.0, name="f", timeout=5))
    assert (spec.shape, spec.wants.everything) == ("sample", False)


def test_live_environments_keep_a_function_in_this_process() -> None:
    def batch(completions: list[str], environments: list[object], **kwargs: Any) -> list[float]:
        return [1.0]

    def one(completion: str, environment: object) -> float:
        return 1.0

    assert spec_of(batch).lane == "thread"
    assert not spec_of(batch).pinned
    assert spec_of(reward(one)).lane == "thread"
    assert spec_of(reward(batch, rowwise=True)).lane == "thread"
    assert spec_of(group_reward(lambda environments: [1.0])).lane == "thread"
    with pytest.raises(RegistrationError, match=r"'one' takes live environments.*lane='thread'"):
        reward(one, lane="process")


def test_a_group_function_and_a_rowwise_one() -> None:
    group = spec_of(group_reward(lambda completions, **columns: [1.0], name="g"))
    assert (group.shape, group.lane, group.policy.timeout) == ("group", "process", 600.0)
    row = spec_of(reward(trl_style, rowwise=True, timeout=5))
    assert (row.shape, row.rowwise, row.pinned, row.policy.timeout) == ("sample", True, False, 5.0)
    assert row.wants.everything


@pytest.mark.parametrize(
    ("item", "timeout"),
    [(reward(length), 30.0), (reward(trl_style, rowwise=True), 30.0), (Plain(), 30.0), (trl_style, 600.0)],
)
def test_default_timeouts(item: object, timeout: float) -> None:
    assert spec_of(item).policy.timeout == timeout


def test_a_stateful_reward() -> None:
    plain, finishing = Plain(), Finishing()
    spec = spec_of(plain)
    assert (spec.name, spec.lane, spec.shape, spec.stateful, spec.finish) == ("Plain", "process", "sample", True, None)
    assert spec.target is plain
    spec = spec_of(reward(finishing, name="judge", timeout=3))
    assert (spec.name, spec.lane, spec.policy.timeout, spec.stateful) == ("judge", "asyncio", 3.0, True)
    assert spec.finish is not None
    assert spec.finish.row
    assert reward(plain)("x") == 1.0


def test_a_reward_without_score_is_refused() -> None:
    class Empty(StatefulReward):
        pass

    with pytest.raises(RegistrationError, match=r"'Empty': .*Empty has no score method"):
        spec_of(Empty())


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (length, "length"),
        (functools.partial(functools.partial(length)), "length"),
        (Scorer(), "Scorer"),
        (functools.partial(Scorer()), "Scorer"),
        (Scorer().method, "method"),
        (lambda completion: 1.0, "<lambda>"),
        (Plain(), "Plain"),
        (len, "len"),
    ],
)
def test_names_are_those_that_trl_logs(function: Callable[..., Any], name: str) -> None:
    assert name_of(function) == name


def test_names_agree_with_the_installed_trl() -> None:
    """Its function runs alone: the import of TRL takes 14 s of processor time."""
    trl = importlib.util.find_spec("trl")
    if trl is None or not trl.submodule_search_locations:
        pytest.skip("trl is not installed")
    utils = Path(trl.submodule_search_locations[0], "trainer", "utils.py")
    tree = ast.parse(utils.read_text(encoding="utf-8"))
    tree.body = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == "get_callable_name"]
    scope: dict[str, Any] = {"functools": functools, "Callable": Callable}
    exec(compile(tree, str(utils), "exec"), scope)
    for function in (length, functools.partial(length), Scorer(), Scorer().method, lambda completion: 1.0):
        assert name_of(function) == scope["get_callable_name"](function)


def test_async_is_recognised_behind_wrappers() -> None:
    @functools.wraps(judge)
    def passes_on(*args: Any, **kwargs: Any) -> Any:
        return judge(*args, **kwargs)

    @functools.wraps(judge)
    def runs(*args: Any, **kwargs: Any) -> float:
        return asyncio.run(judge(*args, **kwargs))

    assert spec_of(reward(passes_on)).lane == "asyncio"
    assert spec_of(reward(runs)).lane == "process"


def test_lane_overrides_the_kind() -> None:
    assert spec_of(reward(length, lane="thread")).lane == "thread"
    assert spec_of(reward(judge, lane="process")).lane == "process"
    assert spec_of(reward(lambda completion: judge("", completion), lane="asyncio")).loop is not None


def test_each_registration_has_its_own_spec() -> None:
    decorated = reward(length)
    assert spec_of(decorated) is not spec_of(decorated)
    assert spec_of(decorated).item is decorated


def test_a_recipe_is_plain_data() -> None:
    def noisy(completion: str, log_metric: Any) -> float:
        return 1.0

    recipe = spec_of(reward(noisy)).recipe()
    assert json.loads(json.dumps(recipe)) == recipe
    assert recipe == {
        "name": "noisy",
        "shape": "sample",
        "rowwise": False,
        "records": ["log_metric"],
        "stateful": False,
        "memory_limit": None,
        "max_output": None,
    }


def test_a_config_says_all_to_the_engine() -> None:
    options = {"loop": "judges", "limit": Limit(concurrency=4), "retries": 2, "total_timeout": 9, "grace": 0}
    assert spec_of(reward(judge, on_failure=-1, **options)).config() == {
        "lane": "asyncio",
        "loop": "judges",
        "anywhere": False,
        "resource_limits": {"memory_limit": None, "max_output": None, "environment": []},
        "function": {
            "name": "judge",
            "shape": "sample",
            "gather": None,
            "finish": False,
            "pinned": False,
            "isolated": False,
            "run_if": None,
            "pure": False,
            "member_of": None,
            "has_fallback": False,
            "parsing": None,
            "reduces": False,
            "second_columns": (),
            "policy": {
                "timeout": 30.0,
                "grace": 0.0,
                "setup_timeout": 300.0,
                "total_timeout": 9.0,
                "retries": 2,
                "concurrency": 4,
                "limit": {"rules": {"rpm": None, "tpm": None, "concurrency": 4}, "key": None, "tokens": None},
                "on_failure": {"value": -1.0},
            },
        },
    }


WRONG_OPTIONS: list[tuple[dict[str, Any], str]] = [
    *(
        ({option: value}, f"{option}=")
        for option in ("timeout", "total_timeout", "setup_timeout", "grace")
        for value in (-1, math.nan, math.inf, True, "5", 1e12, 10**400)
    ),
    *(
        ({option: 0}, f"{option}=0: expected a number of seconds")
        for option in ("timeout", "total_timeout", "setup_timeout")
    ),
    *(({"retries": value}, "retries=") for value in (-1, 1.5, True, "3", 10**6)),
    *(({"lane": value}, f"lane={value!r}: expected one of 'process', 'thread', 'asyncio'") for value in ("ray", "", 3)),
    *(({"isolation": value}, "'worker' .* or 'call'") for value in ("fork", None)),
    *(
        ({"on_failure": value}, "'nan', 'abstain', 'raise' or a finite number")
        for value in ("zero", None, True, math.nan, math.inf, 1e39, 10**400)
    ),
    *(({"max_failure_rate": value}, "a number from 0 to 1") for value in (-0.1, 1.5, math.nan, "half", True, 10**400)),
    *(({"limit": value}, "a Limit") for value in (64, "64")),
    *(({"name": value}, "printable string") for value in ("", " judge", "a\nb", 3)),
    *(({"rowwise": value}, "True or False") for value in (1, None)),
    *(({"memory_limit": value}, "a number of bytes, or a text") for value in ("much", "2 XB", 1.5, True, 0, 999, -1)),
    *(({"max_output": value}, "a number of bytes, or a text") for value in ("much", 0, True, -5, 2**63)),
    *(
        ({"env": value}, "names of environment variables")
        for value in ("HF_TOKEN", [3], [""], ["A=B"], ["\ud800"], ["A\0"], None)
    ),
    *(
        (({option: value, "lane": lane}), f"{option}= .* it runs on the {lane} lane")
        for option, value in (("memory_limit", "1GB"), ("max_output", 10), ("env", ["A"]))
        for lane in ("thread", "asyncio")
    ),
    ({"loop": "judges"}, r"loop='judges' names an event loop, but it runs on the process lane"),
    ({"loop": "<undecorated>", "lane": "asyncio"}, "angle brackets"),
    ({"isolation": "call", "lane": "thread"}, "isolation='call' forks a worker"),
]


@pytest.mark.parametrize(("options", "message"), WRONG_OPTIONS, ids=lambda value: str(value)[:40])
def test_a_wrong_option_is_refused_with_the_function_and_the_value(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RegistrationError, match=message) as caught:
        reward(length, **options)
    assert "reward function 'length'" in str(caught.value)


def test_an_env_with_values_is_refused_without_them() -> None:
    with pytest.raises(RegistrationError, match="'length': env is a dict: expected names") as caught:
        reward(length, env={"JUDGE_API_KEY": "sk-1234"})
    assert "sk-1234" not in str(caught.value)


def test_limits_are_converted_to_bytes() -> None:
    policy = spec_of(reward(length, memory_limit="1.5 GiB", max_output="64kB", env={"B", "A"})).policy
    assert (policy.memory_limit, policy.max_output, policy.env) == (3 << 29, 64_000, ("A", "B"))
    assert spec_of(reward(length, memory_limit=np.int64(2_000_000))).policy.memory_limit == 2_000_000


def test_numbers_of_numpy_are_numbers() -> None:
    policy = spec_of(reward(length, timeout=np.float32(2), on_failure=np.float64(-1), max_failure_rate=np.int64(1)))
    assert (policy.policy.timeout, policy.policy.on_failure) == (2.0, -1.0)
    assert policy.policy.max_failure_rate == 1.0
    assert spec_of(reward(length, grace=0)).policy.grace == 0.0


def generator(completion: str) -> Iterator[float]:
    yield 1.0


async def async_generator(completion: str) -> AsyncIterator[float]:
    yield 1.0


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (Scorer, r"Scorer is a class.*an instance, Scorer\(…\)\?"),
        (Plain, "Plain is a class"),
        (3.0, "3.0 can't be called"),
        (None, "None can't be called"),
        ("math_ok", "'math_ok' is a reward model.*If a function is meant, pass it itself, not its name"),
        ([length], "can't be called"),
        ("Qwen/reward-model", "is a reward model"),
        (Scorer.lists, "'lists' is an unbound method: Scorer.lists takes 'self'"),
        (max, r"reward function 'max': its signature can't be read .* Wrap it in a def"),
    ],
)
def test_other_objects_than_reward_functions_are_refused(item: object, message: str) -> None:
    with pytest.raises(RegistrationError, match=message):
        spec_of(item)


class Yields(StatefulReward):
    async def score(self, completion: str) -> AsyncIterator[float]:
        yield 1.0


class YieldsToo:
    async def __call__(self, completion: str) -> AsyncIterator[float]:
        yield 1.0


@pytest.mark.parametrize(
    "function", [generator, async_generator, functools.partial(async_generator), Yields(), YieldsToo()]
)
def test_generators_are_refused(function: Any) -> None:
    with pytest.raises(RegistrationError, match=r"is a generator \(it yields\)"):
        reward(function)


def test_a_reward_model_is_known_without_torch() -> None:
    torch_like = type("Module", (), {"__module__": "torch.nn.modules.module"})
    assert is_reward_model("Qwen/reward-model")
    assert is_reward_model(type("Model", (torch_like,), {})())
    assert not is_reward_model(length)
    with pytest.raises(RegistrationError, match="is a reward model: put it into the dispatcher's list as it is"):
        reward(type("Model", (torch_like,), {"__call__": lambda self, completion: 1.0})())


def test_a_reward_that_is_also_a_module_is_a_reward() -> None:
    torch = pytest.importorskip("torch")

    class Both(StatefulReward, torch.nn.Module):  # type: ignore[misc, name-defined]
        def score(self, completion: str) -> float:
            return 1.0

    assert spec_of(Both()).stateful


def test_repeated_names_are_refused() -> None:
    specs: list[FunctionSpec] = [spec_of(item) for item in (reward(length), Plain(), reward(length))]
    with pytest.raises(RegistrationError, match=r"two reward functions are called 'length' \(items 0 and 2"):
        refuse_repeated_names(specs)
    refuse_repeated_names([spec_of(reward(length)), spec_of(reward(length, name="again"))])

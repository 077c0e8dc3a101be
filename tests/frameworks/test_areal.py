"""AReaL's own `AsyncRewardWrapper`, which calls in a process pool, with our reward function.

Its package imports a whole training stack: only the module of the wrapper is loaded here, as it is.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

if importlib.util.find_spec("areal") is None:
    pytest.skip("AReaL is not installed: make test-frameworks", allow_module_level=True)

from guerdon.errors import RewardFailureError
from guerdon.integrations.areal import reward_function
from tests.integrations.frameworks.rewards import dispatcher


@pytest.fixture
def wrapper() -> Iterator[Any]:
    """The class; its pools end with the test."""
    spec = importlib.util.find_spec("areal")
    assert spec is not None
    package = types.ModuleType("areal")
    package.__path__ = list(spec.submodule_search_locations or ())
    before = {name for name in sys.modules if name == "areal" or name.startswith("areal.")}
    assert not before
    sys.modules["areal"] = package
    try:
        module = importlib.import_module("areal.api.reward_api")
        yield module.AsyncRewardWrapper
        module.AsyncRewardWrapper._atexit_shutdown_all()
    finally:
        for name in [name for name in sys.modules if name == "areal" or name.startswith("areal.")]:
            del sys.modules[name]


def ask(wrapped: Any, texts: list[str]) -> list[Any]:
    """Awaits it as a workflow does: positional arguments, and the data by name."""

    async def gather() -> list[Any]:
        calls = (wrapped("2 + 2", f"{text}</s>", [1], [2], label="4", messages=[]) for text in texts)
        return await asyncio.gather(*calls, return_exceptions=True)

    return asyncio.run(gather())


# The pool's processes are forked with this filter; each warns of its first failure.
@pytest.mark.filterwarnings("ignore:a sample of AReaL")
def test_rewards_and_a_trajectory_without_one(wrapper: Any) -> None:
    """It raises what the function raised, and AReaL's executor rejects the trajectory."""
    wrapped = wrapper(reward_function(dispatcher(), eos_token="</s>"), max_workers=2, max_retries=1)
    right, wrong, failed, again = ask(wrapped, ["4", "5", "bad", "4"])
    assert (right, wrong, again) == (1.0, 0.0, 1.0)
    assert isinstance(failed, RewardFailureError)
    assert "no reward" in str(failed)


@pytest.mark.filterwarnings("ignore:a sample of AReaL")
def test_a_chosen_value(wrapper: Any) -> None:
    wrapped = wrapper(reward_function(dispatcher(), failure_value=-1, eos_token="</s>"), max_workers=1)
    assert ask(wrapped, ["bad", "4"]) == [-1.0, 1.0]

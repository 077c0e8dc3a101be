"""OpenRLHF's ``reward_func``, called as `SingleTurnAgentExecutor` does.

tests/frameworks/test_openrlhf.py has the same with OpenRLHF installed.
"""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, reward
from guerdon.errors import DataError, GuerdonWarning
from guerdon.integrations import openrlhf
from tests.integrations.frameworks.rewards import dispatcher

torch = pytest.importorskip("torch")


def ask(function: Any, texts: list[str], labels: list[str]) -> list[float]:
    """One sample a call, each on a thread, all awaited together."""

    async def gather() -> list[Any]:
        calls = (
            asyncio.to_thread(function, [f"<s>2 + 2 = {text}</s>"], ["2 + 2 = "], [label])
            for text, label in zip(texts, labels, strict=True)
        )
        return await asyncio.gather(*calls)

    answers = asyncio.run(gather())
    assert all(answer["scores"].shape == answer["rewards"].shape == (1,) for answer in answers)
    return [answer["rewards"].item() for answer in answers]


def test_rewards_of_single_samples() -> None:
    function = openrlhf.reward_function(dispatcher(), failure_value=-1.0, eos_token="</s>")
    with pytest.warns(GuerdonWarning, match="OpenRLHF has no reward .* its reward becomes -1"):
        assert ask(function, ["4", "5", "bad", "4"], ["4"] * 4) == [1.0, 0.0, -1.0, 1.0]


def test_functions_get_the_columns_they_name_if_a_prompt_was_cut_off() -> None:
    seen = []

    def look(prompt: str, completion: str, query: str, label: str) -> float:
        seen.append((prompt, completion, query, label))
        return 1.0

    function = openrlhf.reward_function(Dispatcher([reward(look, lane="thread")]), failure_value=0.0)
    function(["<s>2 + 2 = 4"], ["2 + 2 = "], ["4"])
    assert seen.pop() == ("2 + 2 = ", "4", "<s>2 + 2 = 4", "4")
    with pytest.warns(GuerdonWarning, match="does not contain its prompt"):
        function(["+ 2 = 4"], ["2 + 2 = "], ["4"])
    assert seen.pop() == ("2 + 2 = ", "+ 2 = 4", "+ 2 = 4", "4")


def test_a_dataset_without_labels_and_lists_that_do_not_belong_together() -> None:
    function = openrlhf.reward_function(
        Dispatcher([reward(lambda label: float(label is None), name="none", lane="thread")]), failure_value=0.0
    )
    assert function(["2 + 2 = 4"], ["2 + 2 = "], None)["rewards"].tolist() == [1.0]
    assert function(["4"], None, None)["rewards"].tolist() == [1.0]
    with pytest.raises(DataError, match="queries 2, prompts 1, labels 2"):
        function(["a", "b"], ["a"], ["", ""])


def test_a_file_that_is_loaded_by_its_path(tmp_path: Path) -> None:
    """OpenRLHF loads it so, under a name that no worker could import."""
    file = tmp_path / "my_rewards.py"
    file.write_text(
        "import guerdon\n"
        "from guerdon.integrations.openrlhf import reward_function\n"
        "OFFSET = 2.0\n"
        "@guerdon.reward(timeout=20)\n"
        "def length(text: str) -> float:\n"
        "    return len(text) + OFFSET\n"
        "dispatcher = guerdon.Dispatcher([length], workers=1)\n"
        "reward_func = reward_function(dispatcher, failure_value=0.0)\n"
    )
    spec = importlib.util.spec_from_file_location("reward_func", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.reward_func(["ab"], [""], [""])["rewards"].tolist() == [4.0]
    module.dispatcher.close()

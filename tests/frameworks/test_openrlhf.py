"""OpenRLHF's own executor and what makes training data of its answers, with our reward function.

Only the inference server is faked, and the packages that need a GPU: Ray's actors and vLLM.
"""

from __future__ import annotations

import asyncio
import sys
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("openrlhf", reason="OpenRLHF is not installed: make test-frameworks")

import torch
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.utils.agent import SingleTurnAgentExecutor

from guerdon.integrations import openrlhf
from tests.serve.serving import serving

REWARDS = """
from guerdon.integrations.openrlhf import reward_function
from tests.integrations.frameworks.rewards import dispatcher

made = dispatcher()
reward_func = reward_function(made, failure_value=-1.0, eos_token="</s>")
"""


class Tokenizer:
    """A token a character, the end of a text included."""

    def __call__(self, text: str, **options: Any) -> dict[str, Any]:
        return {"input_ids": torch.tensor([[ord(letter) for letter in text]])}

    def decode(self, tokens: list[int], skip_special_tokens: bool) -> str:
        assert not skip_special_tokens
        return "".join(chr(token) for token in tokens) + "</s>"


class Server:
    def __init__(self, text: str) -> None:
        self.text = text

    async def generate(self, *arguments: Any, **options: Any) -> Any:
        tokens = [ord(letter) for letter in self.text]
        output = SimpleNamespace(token_ids=tokens, finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[output])


def roll_out(remote_url: str, texts: list[str]) -> list[Any]:
    """The results of OpenRLHF's executor, one a response."""
    executor = SingleTurnAgentExecutor(remote_url)
    parameters = SimpleNamespace(max_tokens=8, logprobs=None)

    async def gather() -> list[Any]:
        calls = (executor.execute("2 + 2 = ", "4", parameters, 64, Tokenizer(), Server(text)) for text in texts)
        return await asyncio.gather(*calls)

    return asyncio.run(gather())


def experiences(responses: list[Any], monkeypatch: pytest.MonkeyPatch) -> list[Experience]:
    """Makes them by `SamplesGenerator`, whose module imports vLLM without need here."""
    engine = types.ModuleType("openrlhf.trainer.ray.vllm_engine")
    engine.batch_vllm_engine_call = None  # type: ignore[attr-defined]
    vllm = types.ModuleType("vllm")
    vllm.SamplingParams = None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setitem(sys.modules, "openrlhf.trainer.ray.vllm_engine", engine)
    from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator

    generator = SamplesGenerator.__new__(SamplesGenerator)
    return [generator._process_response_into_experience(response, max_len=64) for response in responses]


@pytest.mark.filterwarnings("ignore:a sample of OpenRLHF")
def test_a_file_with_a_reward_func(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "my_rewards.py"
    file.write_text(REWARDS)
    made = experiences(roll_out(str(file), ["4", "5", "bad", "4"]), monkeypatch)
    assert [one.rewards.tolist() for one in made] == [[1.0], [0.0], [-1.0], [1.0]]
    assert [one.scores[0].item() for one in made] == [1.0, 0.0, -1.0, 1.0]
    together = Experience.concat_experiences(made, pad_token_id=0)
    assert together.rewards.tolist() == [1.0, 0.0, -1.0, 1.0]


def test_why_a_value_has_to_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception is logged, and the sample then has no reward, with which no batch can be
    made."""
    file = tmp_path / "raises.py"
    file.write_text("def reward_func(queries, prompts, labels):\n    raise ValueError('no score')\n")
    (without,) = experiences(roll_out(str(file), ["4"]), monkeypatch)
    assert without.rewards is None
    assert openrlhf.reward_function.__kwdefaults__ == {"eos_token": None}


def test_guerdon_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token is in the path. A failure has no reward, rather than a number that nobody gave."""
    token = tmp_path / "token"
    token.write_text("a-token-of-a-test-0123456789")
    with serving(tmp_path, "--token-file", token) as one:
        url = f"{one.url}/t/{token.read_text()}/openrlhf?function=correct&eos_token=</s>"
        made = experiences(roll_out(url, ["4", "5", "raise"]), monkeypatch)
    assert [None if one.rewards is None else one.rewards.flatten().tolist() for one in made] == [[1.0], [0.0], None]
    together = Experience.concat_experiences(made[:2], pad_token_id=0)
    assert together.rewards.flatten().tolist() == [1.0, 0.0]

"""The frameworks' clients, written after their sources: what they send, when they try again, and
what they make of the answers.

OpenRLHF at 3c3be623 (`openrlhf/utils/agent.py`, `_fetch_rewards_via_http`; the real one runs in
tests/frameworks), THUDM/slime at 624b824a and radixark/miles (`rollout/rm_hub/__init__.py`,
`remote_rm`), NVIDIA-NeMo/Gym at 07d6b0d0 (`nemo_gym/base_resources_server.py`,
`responses_api_agents/simple_agent/app.py`) and NVIDIA-NeMo/RL (`nemo_rl/experience/rollouts.py`,
`_extract_mask_sample_flags`). NeMo-Gym's real one runs in tests/frameworks, too; slime, miles and
NeMo-RL are installed from a checkout only, or need a GPU.
"""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from tests.serve.serving import RunningServer


async def openrlhf_scores(url: str, queries: list[str], prompts: list[str], labels: list[str]) -> Any:
    """A new session for each request, five tries."""
    timeout = aiohttp.ClientTimeout(total=180)
    payload = {"query": queries, "prompts": prompts, "labels": labels}
    problem: Exception | None = None
    for _ in range(5):
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session, session.post(url, json=payload) as response:
                response.raise_for_status()
                return await response.json()
        except aiohttp.ClientError as error:
            problem = error
        await asyncio.sleep(0.01)
    raise RuntimeError("no reward after 5 tries") from problem


async def slime_rewards(url: str, samples: list[dict[str, Any]], tries: int = 10) -> list[Any]:
    """One request a sample, 64 connections; slime tries ten times, miles once."""
    connector = aiohttp.TCPConnector(limit=64, enable_cleanup_closed=True)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120)) as session:

        async def reward(sample: dict[str, Any], left: int) -> Any:
            try:
                async with session.post(url, json=sample) as response:
                    response.raise_for_status()
                    return await response.json()
            except aiohttp.ClientError:
                if left == 1:
                    raise
            return await reward(sample, left - 1)

        return await asyncio.gather(*(reward(sample, tries) for sample in samples))


async def gym_run(url: str, row: dict[str, Any], answer: list[dict[str, Any]]) -> dict[str, Any]:
    """A rollout of NeMo-Gym's simple agent: the row with the model's response is sent to be
    verified, and the answer has to be the same with a number as its reward."""
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{url}/seed_session", json=row) as seeded:
            seeded.raise_for_status()
        response = {"id": "resp_1", "object": "response", "output": answer, "tools": [], "parallel_tool_calls": True}
        async with session.post(f"{url}/verify", json={**row, "response": response}) as verified:
            verified.raise_for_status()
            found: dict[str, Any] = await verified.json()
    assert isinstance(found["reward"], float)
    assert found["response"] == response
    assert all(found[name] == value for name, value in row.items() if name != "instance_config")
    return found


def is_masked(result: dict[str, Any]) -> bool:
    """What NeMo-RL asks of a rollout."""
    return bool((result.get("instance_config") or {}).get("mask_sample", False))


def message(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content}


def test_openrlhf(served: RunningServer) -> None:
    url = served.url + "/openrlhf?function=correct&eos_token=</s>"
    queries = ["<s>2 + 2 = 4</s>", "<s>2 + 3 = 6</s>", "no prompt"]
    found = asyncio.run(openrlhf_scores(url, queries, ["2 + 2 = ", "2 + 3 = ", ""], ["4", "5", "no prompt"]))
    assert found == {"rewards": [1.0, 0.0, 1.0], "scores": [1.0, 0.0, 1.0], "extra_logs": {}}
    one = asyncio.run(openrlhf_scores(url, ["2 + 2 = 4</s>"], ["2 + 2 = "], ["4"]))
    assert one["rewards"] == [1.0]


@pytest.mark.parametrize(
    ("query", "prompt", "completion"),
    [
        ("<s> What is 2+2? 4", "What is  2+2?", " 4"),
        ("What is\n2+2? 4\n5 ", " What is 2+2?\n", "4\n5 "),
        ("a b", "a  b", ""),
        ("a b", "a  b ", ""),
        ("x y", " ", "y"),
        ("x", "\n\n", "x"),
    ],
)
def test_openrlhf_finds_a_prompt_whose_blanks_were_changed(
    served: RunningServer, query: str, prompt: str, completion: str
) -> None:
    body = {"query": [query], "prompts": [prompt], "labels": [completion]}
    assert served.post("/openrlhf?function=correct", body).json["rewards"] == [1.0]


@pytest.mark.fault(
    "OpenRLHF's tokenizer decodes a prompt to another text, so that it is not in its query",
    sees="400 with the sample and both texts; `?prompt=ignore` scores whole queries",
)
def test_openrlhf_is_refused_where_a_prompt_is_not_in_its_query(served: RunningServer) -> None:
    queries = ["2 + 2 = 4", "2 \uff0b 3 = 5"]
    body = {"query": queries, "prompts": ["2 + 2 = ", "2 + 3 = "], "labels": queries}
    answer = served.post("/openrlhf?function=correct", body)
    assert answer.status == 400
    for part in ("sample 1", "'2 + 3 = '", "'2 \\uff0b 3 = 5'", "?prompt=ignore"):
        assert part in answer.json["error"]
    assert served.post("/openrlhf?function=correct&prompt=ignore", body).json["rewards"] == [1.0, 1.0]
    assert served.post("/openrlhf?prompt=maybe", body).status == 400


def test_openrlhf_gets_no_number_for_a_failure(served: RunningServer) -> None:
    url = served.url + "/openrlhf?function=correct"
    with pytest.raises(RuntimeError) as caught:
        asyncio.run(openrlhf_scores(url, ["a: raise"], ["a: "], ["4"]))
    assert isinstance(caught.value.__cause__, aiohttp.ClientResponseError)
    assert caught.value.__cause__.status == 422
    body = {"query": ["a: 4", "a: raise"], "prompts": ["a: ", "a: "], "labels": ["4", "4"]}
    answer = served.post("/openrlhf", body)
    assert answer.status == 422
    assert answer.json["error"].startswith("sample 1 has no reward: error: correct: ValueError: odd text")


def test_slime_and_miles(served: RunningServer) -> None:
    url = served.url + "/slime?function=correct"
    samples = [{"prompt": "2 + 2", "response": str(index % 7), "label": "4"} for index in range(200)]
    talk = {"prompt": [{"role": "user", "content": "2 + 2"}], "response": "4", "label": "4"}
    found = asyncio.run(slime_rewards(url, [*samples, talk]))
    assert found == [float(index % 7 == 4) for index in range(200)] + [1.0]


@pytest.mark.parametrize("tries", [10, 1], ids=["slime", "miles"])
@pytest.mark.parametrize("response", ["raise", "none"])
def test_slime_gets_no_number_for_a_failure(served: RunningServer, response: str, tries: int) -> None:
    sample = {"prompt": "p", "response": response, "label": "4"}
    with pytest.raises(aiohttp.ClientResponseError) as caught:
        asyncio.run(slime_rewards(served.url + "/slime?function=correct", [sample], tries))
    assert caught.value.status == 422
    answer = served.post("/slime?function=correct", sample)
    assert {"raise": "error: ValueError", "none": "abstained"}[response] in answer.json["error"]


def test_nemo_gym(served: RunningServer) -> None:
    row = {
        "responses_create_params": {"input": [{"role": "user", "content": "2 + 2?"}], "temperature": 1.0},
        "label": "4",
        "verifier_metadata": {"difficulty": 3},
    }
    assert asyncio.run(gym_run(served.url, row, [message("4")]))["reward"] == 2.0
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    call = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"}
    given = {"type": "function_call_output", "call_id": "c1", "output": "4"}
    found = asyncio.run(gym_run(served.url, row, [thought, call, given, message("4")]))
    assert (found["reward"], found["mask_sample"], found["failure_reason"]) == (2.0, False, None)
    assert not is_masked(found)
    text = {**row, "responses_create_params": {"input": "2 + 2?"}}
    assert asyncio.run(gym_run(served.url, text, [message("5")]))["reward"] == 1.0


@pytest.mark.parametrize(
    ("text", "reason"), [("raise", "error: correct: ValueError: odd text"), ("hang", "timeout: correct: no answer")]
)
def test_nemo_gym_gets_a_mask_for_a_failure(served: RunningServer, text: str, reason: str) -> None:
    row = {**ASKED, "label": "4", "instance_config": {"seed": 3}}
    found = asyncio.run(gym_run(served.url, row, [message(text)]))
    assert found["mask_sample"] is True
    assert is_masked(found)
    assert found["instance_config"] == {"seed": 3, "mask_sample": True}
    assert found["failure_reason"].startswith(reason)


ASKED = {"responses_create_params": {"input": "p"}}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/openrlhf", {"prompts": ["a"], "labels": ["b"]}),
        ("/openrlhf", {"query": "a"}),
        ("/openrlhf", {"query": [1]}),
        ("/openrlhf", {"query": []}),
        ("/openrlhf", {"query": ["a", "b"], "labels": ["c"]}),
        ("/openrlhf", {"query": ["a"], "prompts": ["b", "c"]}),
        ("/slime", {}),
        ("/slime", {"response": 4}),
        ("/slime", {"response": "a", "prompt": 4}),
        ("/slime", {"response": "a", "num_generations": 2}),
        ("/slime", {"response": "a", "completion": "b"}),
        ("/verify", {}),
        ("/verify", ASKED),
        ("/verify", {"responses_create_params": {}, "response": {"output": []}}),
        ("/verify", {"responses_create_params": {"input": [{"content": {}}]}, "response": {"output": []}}),
        ("/verify", {**ASKED, "response": {"output": "text"}}),
        ("/verify", {**ASKED, "response": {"output": [4]}}),
        ("/verify", {**ASKED, "response": {"output": []}, "instance_config": 4}),
        ("/verify", {**ASKED, "response": {"output": [{"content": 4}]}}),
        ("/verify", {**ASKED, "response": {"output": [{"content": ["a"]}]}}),
        ("/verify", {**ASKED, "response": {"output": [{"content": [{"text": 4}]}]}}),
        ("/verify", {**ASKED, "response": {"output": [{"content": "a", "role": {}}]}}),
        ("/verify", {**ASKED, "response": {"output": [{"content": "a", "type": 4}]}}),
    ],
)
def test_wrong_fields_are_refused(served: RunningServer, path: str, body: dict[str, Any]) -> None:
    assert served.post(path, body).status == 400


@pytest.mark.fault(
    "a request to /slime or /verify has a column called `completions`, or `prompts`",
    sees="400, whatever its size: it is never scored in place of the response",
)
@pytest.mark.parametrize("size", [10, 300_000], ids=["small", "big"])
@pytest.mark.parametrize("name", ["completions", "prompts"])
def test_a_column_never_stands_for_the_completion(served: RunningServer, name: str, size: int) -> None:
    text = "x" * size
    row = {**ASKED, "response": {"output": [message(text)]}}
    for path, body in (("/slime", {"prompt": "p", "response": text}), ("/verify", row)):
        assert served.post(path + "?function=length", body).status == 200
        answer = served.post(path + "?function=length", {**body, name: "y"})
        assert (answer.status, answer.json) == (400, {"error": f"{name!r} can't be a column of a request."})

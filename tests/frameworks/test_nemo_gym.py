"""NeMo-Gym's own agent and client against ``guerdon serve``; only the model is faked.

NeMo-Gym wants Python 3.13; what runs here is its code as it is on PyPI, in an environment of its
own, since it pins what others have newer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nemo_gym", reason="NeMo-Gym is not installed: make test-frameworks")

from aiohttp import web
from nemo_gym import server_utils
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.server_utils import GlobalAIOHTTPAsyncClientConfig, ServerClient
from omegaconf import OmegaConf
from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentConfig, SimpleAgentRunRequest

from tests.serve.serving import RunningServer, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with serving(tmp_path_factory.mktemp("served"), functions=":correct") as one:
        yield one


def response_of(text: str) -> dict[str, Any]:
    """The answer of a model server."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1.0,
        "model": "m",
        "output": [message],
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
    }


async def rollouts(port: int, rows: list[tuple[dict[str, Any], str]]) -> list[Any]:
    """One run of the agent for each row, with what the model says to it."""

    async def respond(request: web.Request) -> web.Response:
        asked = await request.json()
        return web.json_response(response_of(asked["input"][-1]["content"]))

    app = web.Application()
    app.router.add_post("/v1/responses", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    model = site._server.sockets[0].getsockname()[1]
    servers = {
        "rewards": {"resources_servers": {"guerdon": {"host": "127.0.0.1", "port": port}}},
        "agent": {"responses_api_agents": {"simple_agent": {"host": "127.0.0.1", "port": model}}},
    }
    session = server_utils.set_global_aiohttp_client(GlobalAIOHTTPAsyncClientConfig())
    try:
        head = BaseServerConfig(host="127.0.0.1", port=1)
        client = ServerClient(head_server_config=head, global_config_dict=OmegaConf.create(servers))
        config = SimpleAgentConfig(
            name="agent",
            host="127.0.0.1",
            port=model,
            entrypoint="app.py",
            resources_server={"type": "resources_servers", "name": "rewards"},
            model_server={"type": "responses_api_models", "name": "agent"},
        )
        agent = SimpleAgent(config=config, server_client=client)
        request: Any = SimpleNamespace(cookies={})
        made = []
        for row, text in rows:
            asked = {"input": [{"role": "user", "content": "2 + 2?"}, {"role": "user", "content": text}]}
            body = SimpleAgentRunRequest.model_validate({"responses_create_params": asked, **row})
            made.append(agent.run(request, body))
        return await asyncio.gather(*made)
    finally:
        await session.close()
        server_utils._GLOBAL_AIOHTTP_CLIENT = None
        await runner.cleanup()


def test_rollouts_of_the_simple_agent(served: RunningServer) -> None:
    """Each comes back as NeMo-Gym's own answer of a verifier, with what the row had."""
    rows = [({"label": "4", "verifier_metadata": {"number": index}}, "4" if index % 3 else "5") for index in range(24)]
    found = asyncio.run(rollouts(served.port, rows))
    assert [one.reward for one in found] == [float(index % 3 > 0) for index in range(24)]
    assert not any(one.mask_sample or one.failure_reason for one in found)
    assert [one.verifier_metadata["number"] for one in found] == list(range(24))
    assert found[1].response.output[0].content[0].text == "4"


def test_a_failure_is_masked(served: RunningServer) -> None:
    """Its number means nothing to whoever aggregates rewards."""
    found = asyncio.run(rollouts(served.port, [({"label": "4"}, "raise"), ({"label": "4"}, "4")]))
    assert [one.mask_sample for one in found] == [True, False]
    assert [one.failure_kind for one in found] == ["guerdon:error", None]
    assert "odd text" in found[0].failure_reason
    assert found[1].reward == 1.0

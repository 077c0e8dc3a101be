"""OpenEnv's client against the echo server of its template, in our trainer as in TRL's: `make
test-trl-versions` runs this in an environment with OpenEnv and the newest TRL of our trainers."""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("openenv") is None:
    pytest.skip("OpenEnv is not installed", allow_module_level=True)

import openenv
import trl
import uvicorn

from guerdon.integrations import trl as ours
from tests.integrations.trl.line_game import call, played, rows
from tests.integrations.trl.tiny_trainer import end_loops, rewards_of

pytestmark = pytest.mark.filterwarnings("default")  # what other packages warn of

NAMES = {"__ENV_NAME__": "echo", "__ENV_CLASS_NAME__": "Echo", "__ENV_TITLE_NAME__": "Echo"}
TURNS = [call("say", message="hi"), call("say", message="hello"), call("say", message="good day")]


def filled(text: str) -> str:
    for name, value in NAMES.items():
        text = text.replace(name, value)
    return text


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, str]]:
    """The package that OpenEnv's template makes, and the address of its server."""
    folder = tmp_path_factory.mktemp("openenv")
    template = Path(openenv.__file__).parent / "cli" / "templates" / "openenv_env"
    for source in template.rglob("*.py"):
        target = folder / "echo_env" / filled(str(source.relative_to(template)))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(filled(source.read_text()))
    sys.path.insert(0, str(folder))
    import echo_env
    from echo_env.server import EchoEnvironment
    from openenv.core.env_server.http_server import create_app

    app = create_app(
        EchoEnvironment, echo_env.EchoAction, echo_env.EchoObservation, env_name="echo", max_concurrent_envs=64
    )
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield echo_env, f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(30)
    sys.path.remove(str(folder))


def test_an_environment_behind_openenvs_client_is_trained_as_in_trl(echo: tuple[Any, str], tmp_path: Path) -> None:
    package, address = echo
    clients = []

    class Echo:
        """As TRL's examples hold a client, whose loop and connection are its own."""

        def __init__(self) -> None:
            self.client = package.EchoEnv(base_url=address).sync()
            clients.append(self.client)
            self.answers: list[str] = []

        def reset(self, **row: Any) -> str:
            self.reward = 0.0
            self.answers = []
            return str(self.client.reset().observation.echoed_message)

        def say(self, message: str) -> str:
            """Says something.

            Args:
                message: What.
            """
            result = self.client.step(package.EchoAction(message=message))
            self.reward += result.reward
            self.answers.append(result.observation.echoed_message)
            return self.answers[-1]

    def loud(completions: list[Any], environments: list[Any], **columns: Any) -> list[float]:
        for completion, environment in zip(completions, environments, strict=True):
            said = [message["content"] for message in completion if message["role"] == "tool"]
            assert said == environment.answers[: len(said)]
        return [environment.reward for environment in environments]

    options: dict[str, Any] = {"calls": TURNS, "learning_rate": 0.0, "max_steps": 2, "data": rows(8)}
    plain = played(trl.GRPOTrainer, [loud], tmp_path / "plain", Echo, **options)
    theirs = [entry["reward"] for entry in plain.state.log_history if "reward" in entry]
    assert max(theirs) > 0
    for pipeline in ("off", "one_step"):
        mine = played(partial(ours.GRPOTrainer, pipeline=pipeline), [loud], tmp_path / pipeline, Echo, **options)
        assert rewards_of(mine) == rewards_of(plain)
        assert [entry["reward"] for entry in mine.state.log_history if "reward" in entry] == theirs
    for client in clients:
        client.close()
    end_loops()

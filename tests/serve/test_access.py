"""Who may ask: tokens and addresses; and what the server shows of itself."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from guerdon import Dispatcher, Server, http_reward
from guerdon.errors import RegistrationError
from tests.serve.serving import REWARDS, RunningServer, serving

TOKEN = "not-a-real-token-0123456789"
OTHER = "another-one.of-them_0123456789"


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("token") / "token"
    path.write_text(f"{TOKEN}\n{OTHER}\n")
    return path


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, token_file: Path) -> Iterator[RunningServer]:
    with serving(tmp_path_factory.mktemp("guarded"), "--token-file", token_file) as one:
        yield one


@pytest.mark.parametrize("token", [TOKEN, OTHER])
def test_a_token_lets_in_by_header_or_path(guarded: RunningServer, token: str) -> None:
    body = {"completion": "4", "label": "4"}
    assert guarded.post("/score", body, Authorization=f"Bearer {token}").json["reward"] == 2.0
    assert guarded.post("/score", body, Authorization=f"bearer  {token}").status == 200
    assert guarded.post(f"/t/{token}/score?function=correct", body).json["reward"] == 1.0
    assert guarded.post(f"/t/{token}/slime", {"prompt": "p", "response": "4", "label": "4"}).json == 2.0


@pytest.mark.parametrize(
    "wrong", ["", "Bearer", "Bearer ", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer \xff"]
)
def test_without_the_token_nothing_is_answered(guarded: RunningServer, wrong: str) -> None:
    for path in ("/score", "/openrlhf", "/slime", "/verify", "/seed_session", "/nowhere", "/t/", "/t/x/score"):
        answer = guarded.post(path, {"completion": "4"}, Authorization=wrong)
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json["error"].isascii()
    assert guarded.ask("GET", "/metrics", Authorization=wrong).status == 401


@pytest.mark.fault(
    "a web page in a browser of the machine asks a server without a token, under a name of its own",
    sees="403: such a server answers to names of its own machine alone, and to no page of another site",
)
@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("Host", "evil.example", 403),
        ("Host", "localhost.evil.example:8000", 403),
        ("Host", "[::2]:8000", 403),
        ("Host", "localhost:8000", 200),
        ("Host", "127.0.0.2", 200),
        ("Host", "[::1]:8000", 200),
        ("Origin", "http://evil.example", 403),
        ("Origin", "null", 403),
        ("Origin", "http://127.0.0.1:3000", 200),
    ],
)
def test_without_tokens_only_this_machine_is_answered(
    served: RunningServer, header: str, value: str, status: int
) -> None:
    answer = served.post("/score", {"completion": "4", "label": "4"}, **{header: value})
    assert answer.status == status
    assert served.ask("GET", "/metrics", **{header: value}).status == status
    assert served.ask("GET", "/health", **{header: value}).status == 200


def test_probes_need_no_token_and_show_the_functions_to_those_with_one(guarded: RunningServer) -> None:
    assert guarded.ask("GET", "/health").status == 200
    for given in ({}, {"Authorization": "Bearer wrong-token-0123456789"}):
        ready = guarded.ask("GET", "/ready", **given)
        assert (ready.status, ready.json) == (200, {"status": "ready"})
    shown = guarded.ask("GET", "/ready", Authorization=f"Bearer {TOKEN}").json
    assert shown == {"status": "ready", "functions": ["correct", "length"]}


@pytest.mark.fault("somebody tries tokens", sees='401, counted by `guerdon_serve_requests_total{path="other"}`')
def test_refused_requests_are_counted(guarded: RunningServer) -> None:
    def counted(status: int) -> float:
        name = f'guerdon_serve_requests_total{{path="other",status="{status}"}}'
        return guarded.metric(name, Authorization=f"Bearer {TOKEN}")

    before = {status: counted(status) for status in (401, 404, 405)}
    guarded.post("/score", {"completion": "4"}, Authorization="Bearer wrong-token-0123456789")
    guarded.post(f"/t/{TOKEN}/nowhere")
    answer = guarded.post(f"/t/{TOKEN}/health")
    assert answer.json["error"].endswith("use GET.")
    assert guarded.ask("GET", f"/t/{TOKEN}/score").json["error"].endswith("use POST.")
    assert {status: counted(status) - was for status, was in before.items()} == {401: 1, 404: 1, 405: 2}


def test_a_token_in_an_address_of_http_reward_is_refused() -> None:
    with pytest.raises(RegistrationError, match="api_key_env=") as caught:
        http_reward(f"http://127.0.0.1:8000/t/{TOKEN}/score", name="served")
    assert TOKEN not in str(caught.value)


def test_a_token_in_the_path_stays_secret(tmp_path: Path, token_file: Path) -> None:
    with serving(tmp_path, "--token-file", token_file) as one:
        for path in (f"/t/{TOKEN}/score", f"/t/{TOKEN}/nowhere", f"/t/{TOKEN}x/score", f"/t/{TOKEN}/score?function=x"):
            assert TOKEN not in one.post(path, {"completion": "raise"}).text
        assert TOKEN not in one.ask("GET", "/metrics", Authorization=f"Bearer {TOKEN}").text
        command = Path(f"/proc/{one.process.pid}/cmdline").read_bytes()
        code, printed = one.end()
    assert code == 0
    assert TOKEN not in printed
    assert TOKEN.encode() not in command


def test_http_reward_brings_the_token(guarded: RunningServer, tmp_path: Path) -> None:
    single = tmp_path / "one"
    single.write_text(TOKEN)
    guard = Server(guarded.url + "/score", api_key_file=str(single))
    served = http_reward(server=guard, columns=["completion", "label"], name="served")
    with Dispatcher([served]) as dispatcher:
        assert dispatcher.score(completions=["4", "55"], label=["4", "4"]).rewards.ravel().tolist() == [2.0, 2.0]


def refused(tmp_path: Path, *options: str, **environment: str) -> str:
    """Why the server does not start."""
    file = tmp_path / "refused_rewards.py"
    file.write_text(REWARDS)
    ended = subprocess.run(
        [sys.executable, "-m", "guerdon", "serve", f"{file}:correct", "--port", "0", *options],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    return ended.stderr


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_no_open_port_without_a_token(tmp_path: Path, host: str) -> None:
    assert "no token is set" in refused(tmp_path, "--host", host)


def test_unstartable_commands_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "short").write_text("secret")
    (tmp_path / "long").write_text("0123456789abcdef\n" * 4000)
    assert "longer than 64 KB" in refused(tmp_path, "--token-file", str(tmp_path / "long"))
    assert "can't be read" in refused(tmp_path, "--token-file", str(tmp_path / "none"))
    assert "is empty" in refused(tmp_path, "--token-file", str(tmp_path / "empty"))
    shown = refused(tmp_path, "--token-file", str(tmp_path / "short"))
    assert "token 1 can't be used" in shown
    assert "secret" not in shown
    assert "GUERDON_SERVE_TOKEN: token 1" in refused(tmp_path, GUERDON_SERVE_TOKEN="a b")
    assert "--host" in refused(tmp_path, "--host", "no.such.host.invalid")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "Choose another --port" in refused(tmp_path, "--port", str(taken.getsockname()[1]))


def test_an_open_port_with_a_token(tmp_path: Path) -> None:
    with serving(tmp_path, "--host", "0.0.0.0", GUERDON_SERVE_TOKEN=TOKEN) as one:
        assert one.post("/score", {"completion": "4"}).status == 401
        assert one.post("/score", {"completion": "4"}, Authorization=f"Bearer {TOKEN}").status == 200


def test_metrics_are_those_of_the_engine_and_of_the_server(tmp_path: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    with serving(tmp_path) as one:
        one.ask("GET", "/metrics")  # counted from the first look on
        one.post("/score", {"completions": ["a", "raise"], "label": ["a", "a"]})
        one.post("/score", raw=b"{")
        text = one.ask("GET", "/metrics").text
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    function = ("function", "correct")
    assert samples["guerdon_calls_total", function, ("rank", "0"), ("status", "error")] == 1
    assert samples["guerdon_serve_requests_total", ("path", "/score"), ("status", "200")] == 1
    assert samples["guerdon_serve_requests_total", ("path", "/score"), ("status", "400")] == 1
    assert samples[("guerdon_serve_samples_in_flight",)] == 0
    assert logging.getLogger("uvicorn.error").handlers == []

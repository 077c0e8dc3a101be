"""The engine's own log: there where it is asked for, with what matters, without texts and keys."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.processes import run_python

# One function a lane, a retry, a timeout, one with a cache; secrets wherever there may be one.
TRAINER = """
    import os, sys, time
    os.environ["SECRET_KEY"] = "sk-s3cr3t-key"
    from guerdon import Dispatcher, Limit, judge, reward
    from tests.http.server import chat_completion, serving

    SECRET = "s3cr3t-text"
    tries = []

    @reward(timeout=0.5, grace=0.2)
    def killed(completion: str, row: int) -> float:
        if row == 0:
            while True:
                try:
                    time.sleep(9)
                except BaseException:
                    pass
        return 1.0

    @reward(lane="thread", retries=1)
    def retried(completion: str) -> float:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError(SECRET)
        return 1.0

    @reward(cache=sys.argv[1])
    async def cached(completion: str) -> float:
        return 1.0

    with serving(lambda path, body: chat_completion("0.5 " + SECRET)) as server:
        helpful = judge(
            base_url=f"{server.url}/v1", model="m", prompt="{completion}", name="helpful",
            api_key_env="SECRET_KEY", limit=Limit(concurrency=1),
        )
        with Dispatcher([killed, retried, cached, helpful], workers=1, max_failure_rate=1.0) as dispatcher:
            dispatcher.score(prompts=[SECRET] * 4, completions=[SECRET + str(i) for i in range(4)], row=list(range(4)))
    print("done")
"""
SEEN = (
    "batch submitted",
    "batch ended",
    "frame handed out",
    "worker forked",
    "timeout signal",
    "worker ends",
    "attempt failed, tried again",
    "cache looked up",
    "engine closes",
)


def run(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    ended = run_python(TRAINER, tmp_path / "cache", env=environment, timeout=120, cwd=Path(__file__).parents[1])
    assert ended.stdout == "done\n", ended.stderr
    return ended


def test_it_has_the_seams_and_no_text_of_the_users(tmp_path: Path) -> None:
    ended = run(tmp_path, GUERDON_LOG="trace")
    for event in SEEN:
        assert event in ended.stderr
    assert "s3cr3t" not in ended.stderr
    assert "api_key" not in ended.stderr
    logged = [line for line in ended.stderr.splitlines() if " guerdon" in line]
    assert all("guerdon_" in line for line in logged)
    assert "hyper" not in ended.stderr


def test_a_filter_and_a_file_with_the_process_id(tmp_path: Path) -> None:
    ended = run(tmp_path, GUERDON_LOG="guerdon_core=debug", GUERDON_LOG_FILE=str(tmp_path / "engine-%p.log"))
    assert "batch submitted" not in ended.stderr
    (log,) = tmp_path.glob("engine-*.log")
    assert log.name != "engine-%p.log"
    text = log.read_text()
    assert "batch submitted" in text
    assert "frame handed out" not in text  # that is trace
    assert "worker forked" not in text  # of guerdon_process


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({}, ""),
        ({"GUERDON_LOG": "loud=loud="}, "GUERDON_LOG"),
        ({"GUERDON_LOG": "h2=trace"}, "GUERDON_LOG"),
        ({"GUERDON_LOG": "debug", "GUERDON_LOG_FILE": "absent/log"}, "GUERDON_LOG_FILE"),
    ],
)
def test_without_a_right_filter_and_file_nothing_is_logged(
    tmp_path: Path, environment: dict[str, str], says: str
) -> None:
    if "GUERDON_LOG_FILE" in environment:
        environment = {**environment, "GUERDON_LOG_FILE": str(tmp_path / environment["GUERDON_LOG_FILE"])}
    ended = run(tmp_path, **environment)
    assert says in ended.stderr
    if "GUERDON_LOG_FILE" not in environment:
        assert "batch submitted" not in ended.stderr

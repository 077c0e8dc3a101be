"""Judges on one server or four replicas, with and without faults: the http lane side by side with
litellm's Router and openai's AsyncOpenAI, in one run.

    make bench-peers            all of it, a few minutes
    python -m benches.peers --only healthy hint

Replicas are mock judges in separate processes. Each client runs in a separate process, one after
the other; CPU is that process's, from the first call to the last answer. Lost are samples without a
score that a judge would have scored: poison samples, which always fail, don't count.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benches.peers.clients import CLIENTS
from benches.python.mock_judge import mock_judge

RETRIES = 3
MOST_S = 120
"""After this time a client is stopped, and all samples that it has not reported are lost."""


@dataclass(frozen=True)
class Scenario:
    """Behaviour of the replicas.

    Attributes:
        replicas: Arguments of each mock judge; None for an address without a server.
        calls: Samples.
        at_once: In flight.
        timeout: Seconds of one attempt.
        poison: The first so many samples always get a 500.
    """

    replicas: tuple[tuple[str, ...] | None, ...]
    calls: int
    at_once: int = 128
    timeout: float = 5.0
    poison: int = 0

    def texts(self) -> list[str]:
        bad = "[[status 500]] "
        return [f"{bad if n < self.poison else ''}[[score {n % 11}]] {n}" + "x" * 400 for n in range(self.calls)]


STEADY = ("--latency", "fixed:0.05")
SCENARIOS = {
    "one, healthy": Scenario((STEADY,), 1024),
    "one, 8 poison samples": Scenario((STEADY,), 512, poison=8),
    "one, 2 % random 500s": Scenario(((*STEADY, "--failing", "0.02"),), 512),
    "one, 40 requests a second, 429 without a hint": Scenario(
        ((*STEADY, "--window", "40/1", "--no-hint"),), 240, at_once=64
    ),
    "four, one hangs": Scenario((STEADY, STEADY, STEADY, ("--latency", "fixed:3600")), 512, timeout=2.0),
    "four, one is dead": Scenario((STEADY, STEADY, STEADY, None), 512),
}


@contextmanager
def replicas(scenario: Scenario) -> Iterator[list[str]]:
    with ExitStack() as stack:
        yield [
            "http://127.0.0.1:9" if arguments is None else stack.enter_context(mock_judge(*arguments)).url
            for arguments in scenario.replicas
        ]


def measure(name: str, scenario: Scenario) -> tuple[float, float, int]:
    """Seconds, microseconds of CPU a call, and lost samples of one client."""
    with replicas(scenario) as urls:
        command = [sys.executable, "-m", "benches.peers", "--client", name, json.dumps(urls), scenario_name(scenario)]
        environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=MOST_S)
        except subprocess.TimeoutExpired:
            return math.inf, math.nan, scenario.calls - scenario.poison
    if done.returncode != 0:
        raise SystemExit(f"{name} broke down:\n{done.stderr[-2000:]}")
    scores, wall, cpu = json.loads(done.stdout.splitlines()[-1])
    right = [n for n, score in enumerate(scores) if n >= scenario.poison and score == n % 11]
    return wall, cpu * 1e6 / scenario.calls, scenario.calls - scenario.poison - len(right)


def scenario_name(scenario: Scenario) -> str:
    return next(name for name, one in SCENARIOS.items() if one is scenario)


def run_client(name: str, urls: Sequence[str], scenario: Scenario) -> None:
    client, texts = CLIENTS[name], scenario.texts()
    client(urls[:1], ["[[score 1]]"], 1, 5.0, RETRIES)  # imports are not counted
    start = time.process_time()
    scores, wall = client(urls, texts, scenario.at_once, scenario.timeout, RETRIES)
    print(json.dumps([[None if score != score else score for score in scores], wall, time.process_time() - start]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="parts of the scenarios' names")
    parser.add_argument("--client", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.client:
        name, urls, scenario = given.client
        run_client(name, json.loads(urls), SCENARIOS[scenario])
        return
    print(
        "| replicas | client | wall | calls a second | CPU a call | lost |\n| --- | --- | ---: | ---: | ---: | ---: |"
    )
    for title, scenario in SCENARIOS.items():
        if given.only and not any(part in title for part in given.only):
            continue
        for name in CLIENTS:
            wall, cpu, lost = measure(name, scenario)
            speed = (
                f"{wall:.2f} s | {scenario.calls / wall:,.0f} | {cpu:,.0f} µs"
                if wall < math.inf
                else f"> {MOST_S} s | | "
            )
            print(f"| {title} | {name} | {speed} | {lost} of {scenario.calls - scenario.poison} |", flush=True)


if __name__ == "__main__":
    main()

"""File descriptors for connections: the soft limit is raised as far as they need, and what is
missing is said.

Each trainer is a process of its own, under a real limit on descriptors.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.http.server import Server, length, serving
from tests.processes import run_python

ROOT = Path(__file__).parents[2]
IN_FLIGHT = 64
# What a trainer needs beside its connections and what it has open: the engine's files, and 64 that
# stay free.
OTHERS = 64 + 24
TRAINER = """
import json, os, resource, sys, warnings
from guerdon import Dispatcher, GuerdonError, Limit, QuietRewardWarning
from tests.http.scoring import judging

first, *others = sys.argv[4:]
opened = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (opened + int(sys.argv[1]), opened + int(sys.argv[2])))
found = {"refused": None, "limits": [], "warnings": [], "scores": []}
warnings.showwarning = lambda message, *_: found["warnings"].append(str(message))
warnings.simplefilter("ignore", QuietRewardWarning)  # this judge always says the same
asked = judging(first, limit=Limit(concurrency=int(sys.argv[3])), pure=False)

def score():
    found["scores"] += dispatcher.score(completions=["abc"] * 256, num_generations=4).rewards.ravel().tolist()
    found["limits"].append(resource.getrlimit(resource.RLIMIT_NOFILE)[0] - opened)

with Dispatcher([asked]) as dispatcher:
    try:
        score()
        for some in (others, [first, *others], []):
            if some:
                dispatcher.endpoints("judge").set(some)
            score()
    except GuerdonError as error:
        found["refused"] = str(error)
print(json.dumps(found))
"""


def trainer(servers: list[Server], soft: int, hard: int, in_flight: int = IN_FLIGHT) -> dict[str, Any]:
    """What a trainer saw that begins with the first server and goes on with the others, then with
    all of them. Limits don't count what it has open as it begins."""
    addresses = [f"{server.url}/v1" for server in servers]
    done = run_python(TRAINER, soft, hard, in_flight, *addresses, cwd=ROOT)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture
def servers() -> Any:
    with serving(length) as one, serving(length) as two, serving(length) as three:
        yield [one, two, three]


def test_the_soft_limit_is_raised_for_endpoints_that_come_at_run_time(servers: list[Server]) -> None:
    enough = IN_FLIGHT + OTHERS
    found = trainer(servers, enough, 4096)
    assert (found["refused"], found["warnings"]) == (None, [])
    assert found["scores"] == [3.0] * 4 * 256
    start, _, all_of_them, last = found["limits"]
    assert start == enough
    assert enough < all_of_them == last <= enough + IN_FLIGHT


@pytest.mark.fault(
    "endpoints are added at run time for whose connections there are too few descriptors (RLIMIT_NOFILE)",
    sees="its value; one warning with what to raise",
)
def test_too_few_descriptors_for_more_endpoints_are_warned_of_once(servers: list[Server]) -> None:
    enough = IN_FLIGHT + OTHERS
    found = trainer(servers, enough, enough)
    assert (found["refused"], found["limits"]) == (None, [enough] * 4)
    assert found["scores"] == [3.0] * 4 * 256
    (warning,) = found["warnings"]
    assert "128 connections may be open at a time, but this process can open only" in warning
    assert "ulimit -n" in warning


def test_the_soft_limit_is_raised_at_the_start(servers: list[Server]) -> None:
    found = trainer(servers, OTHERS, 4096, 1000)
    assert (found["refused"], found["warnings"]) == (None, [])
    assert 1000 < found["limits"][0] <= 1000 + OTHERS


def test_more_connections_than_descriptors_are_refused_at_the_start(servers: list[Server]) -> None:
    found = trainer(servers, OTHERS, 1000, 1000)
    assert "1000 connections may be open at a time" in found["refused"]
    assert "ulimit -n" in found["refused"]
    assert found["scores"] == []
    assert not any(server.bodies for server in servers)

"""`guerdon serve` beside a FastAPI server that calls the function in its thread pool.

    python -m pytest benches/python/bench_serve.py --benchmark-only

Both run in separate processes on the same uvicorn, with the same client, `http_reward`, and 256
requests in flight, one sample each. Each server gets all samples once before the measurement. The
load test has 2000 requests of 1 s in flight, and loses none.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, Limit, http_reward
from tests.serve.serving import serving

FUNCTIONS = """
import time

def trivial(text: str) -> float:
    return float(len(text))

def computes(text: str) -> float:
    end = time.thread_time() + 0.002
    while time.thread_time() < end:
        pass
    return float(len(text))

def waits(text: str) -> float:
    time.sleep(0.02)
    return float(len(text))
"""

OURS = (
    FUNCTIONS
    + """
import guerdon

trivial, computes = guerdon.reward(timeout=30)(trivial), guerdon.reward(timeout=30)(computes)
waits = guerdon.reward(timeout=30, lane="thread", limit=guerdon.Limit(concurrency=40))(waits)
"""
)

THEIRS = (
    FUNCTIONS
    + """
import socket, sys, uvicorn
from fastapi import Body, FastAPI

app = FastAPI()

@app.post("/score")
def score(function: str, text: str = Body(embed=True)):
    return {"reward": globals()[function](text)}

listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
print(f"at {listener.getsockname()[1]}", file=sys.stderr, flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False)).run([listener])
"""
)

# Number of samples by function.
SAMPLES = {"trivial": 8192, "computes": 2048, "waits": 4096}
FLIGHT = 256
LOAD = 2000

pytestmark = pytest.mark.timeout(600)


@contextmanager
def fastapi(folder: Path, function: str) -> Iterator[str]:
    pytest.importorskip("fastapi")
    file = folder / "fastapi_server.py"
    file.write_text(THEIRS)
    process = subprocess.Popen([sys.executable, str(file)], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    with process.stderr:
        try:
            found = re.fullmatch(r"at (\d+)\n", process.stderr.readline())
            assert found is not None
            yield f"http://127.0.0.1:{found[1]}/score?function={function}"
        finally:
            process.terminate()
            process.wait()


@contextmanager
def ours(folder: Path, function: str) -> Iterator[str]:
    with serving(folder, functions=f":{function}", text=OURS) as one:
        yield f"{one.url}/score"


def asked(url: str, concurrency: int = FLIGHT) -> Dispatcher:
    reward = http_reward(
        url, columns=["text"], name="served", timeout=120, retries=0, limit=Limit(concurrency=concurrency)
    )
    return Dispatcher([reward])


@pytest.mark.parametrize("function", SAMPLES)
@pytest.mark.parametrize("server", [ours, fastapi], ids=["guerdon serve", "FastAPI, thread pool"])
def test_requests_a_second(
    benchmark: Any, tables: Any, tmp_path: Path, server: Any, function: str, request: pytest.FixtureRequest
) -> None:
    texts = ["x" * (index % 64 + 64) for index in range(32 if benchmark.disabled else SAMPLES[function])]
    with server(tmp_path, function) as url, asked(url) as dispatcher:
        expected = [float(len(text)) for text in texts]
        dispatcher.score(completions=texts)
        result = benchmark.pedantic(lambda: dispatcher.score(completions=texts), rounds=1)
        assert result.rewards.ravel().tolist() == expected
    timings = result.timings["served"]
    cells = {
        "requests/s": len(texts) / result.elapsed_s,
        "p50 ms": timings["run_p50_s"] * 1000,
        "p99 ms": timings["run_p99_s"] * 1000,
    }
    tables.add(f"`{function}`, {FLIGHT} requests in flight", request.node.callspec.id.rsplit("-", 1)[0], cells)


WAITS = """
import asyncio
import guerdon

@guerdon.reward(timeout=60, limit=guerdon.Limit(concurrency=4000))
async def wait(text: str) -> float:
    await asyncio.sleep(1.0)
    return float(len(text))
"""


def test_2000_requests_in_flight(benchmark: Any, tables: Any, tmp_path: Path) -> None:
    texts = ["x" * (index % 97) for index in range(50 if benchmark.disabled else LOAD)]
    with serving(tmp_path, functions="", text=WAITS) as one, asked(one.url + "/score", LOAD) as dispatcher:
        result = benchmark.pedantic(lambda: dispatcher.score(completions=texts), rounds=1)
        lost = len(result.failures())
        assert result.rewards.ravel().tolist() == [float(len(text)) for text in texts]
        assert one.metric('guerdon_serve_requests_total{path="/score",status="200"}') == len(texts)
    tables.add(
        f"{len(texts)} requests of 1 s at once, a connection each",
        "guerdon serve",
        {"wall s": result.elapsed_s, "lost": lost},
        "none lost",
    )

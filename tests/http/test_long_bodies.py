"""Long prompts in flight take no memory beside the texts that Python has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from guerdon import Dispatcher, Limit, parse
from tests.http.scoring import judging
from tests.processes import started_python

CALLS = 192
LENGTH = 512 << 10
# Takes all requests before it answers the first, with the length of the text that came.
SERVER = f"""
import asyncio, json

async def main():
    over, came = asyncio.Event(), []

    async def serve(reader, writer):
        head = await reader.readuntil(b"\\r\\n\\r\\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\\r\\n")[0])
        body = json.loads(await reader.readexactly(length))
        text = body["messages"][-1]["content"]
        answer = json.dumps({{"choices": [{{"message": {{"content": f"Score: {{len(text)}}"}}}}]}}).encode()
        del body, text
        came.append(length)
        if len(came) == {CALLS}:
            over.set()
        await over.wait()
        writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(answer) + answer)
        await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


@contextmanager
def patient_server() -> Iterator[str]:
    with started_python(SERVER) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"


def memory(what: str) -> int:
    """``VmRSS``, now, or ``VmHWM``, the most since the last reset; in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what)) * 1024


def test_long_prompts_in_flight_are_no_copies() -> None:
    texts = [str(index % 10).ljust(LENGTH - index, "é" if index % 2 else "x") for index in range(CALLS)]
    with patient_server() as url:
        way, limit = parse.number(range=(0, 1e9)), Limit(concurrency=CALLS)
        graded = judging(url, parse=way, retries=0, timeout=60, limit=limit)
        with Dispatcher([graded]) as dispatcher:
            before = memory("VmRSS")
            Path("/proc/self/clear_refs").write_text("5")
            result = dispatcher.score(completions=texts)
            grown = memory("VmHWM") - before
    np.testing.assert_array_equal(result.rewards.ravel(), [len(text) for text in texts])
    assert grown < CALLS * LENGTH / 2, f"{grown / 1e6:.0f} MB for {CALLS * LENGTH / 1e6:.0f} MB of prompts"

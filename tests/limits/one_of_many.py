"""One of several processes that share a limit; started by the tests and the bench."""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from guerdon import Dispatcher, Limit, RetryAfter, reward


def by_urllib(completion: str, url: str) -> float:
    """Its errors are understood as they are."""
    with urllib.request.urlopen(url, timeout=60):
        return 1.0


async def by_hand(completion: str, url: str) -> float:
    """Says itself when to come back."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        head = (await reader.read()).decode()
    finally:
        writer.close()
    if " 429 " in head.splitlines()[0]:
        later = [line.split(":")[1] for line in head.splitlines() if line.lower().startswith("retry-after")]
        raise RetryAfter(float(later[0]), "the judge is busy")
    return 1.0


def hold(completion: str) -> float:
    """Keeps what it has."""
    print("held", flush=True)
    time.sleep(600)
    return 1.0


def work(places: int, seconds: float) -> None:
    """Has more to do than it is given time for; tells when it asked and when its calls began."""
    begun: list[float] = []

    async def one(completion: str) -> float:
        begun.append(time.monotonic())
        await asyncio.sleep(seconds)
        return 1.0

    with Dispatcher([reward(one, limit=Limit(concurrency=places, key="workers"))]) as made:
        print("ready", flush=True)
        sys.stdin.readline()
        asked = time.monotonic()
        pending = made.submit(completions=["c"] * 10_000)
        print("working", flush=True)
        sys.stdin.readline()
        pending.cancel()
    print(json.dumps({"asked": asked, "begun": begun}), flush=True)


def alone(url: str, calls: int) -> list[int]:
    """Attempts of each call, without a limit: as many at a time as one would set, each waiting for
    itself."""

    async def call(places: asyncio.Semaphore) -> int:
        attempts = 0
        while True:
            attempts += 1
            try:
                async with places:
                    await by_hand("", url)
            except RetryAfter as later:
                await asyncio.sleep(later.retry_after)
            else:
                return attempts

    async def every() -> list[int]:
        places = asyncio.Semaphore(16)
        return await asyncio.gather(*(call(places) for _ in range(calls)))

    return asyncio.run(every())


def judges(limit: Limit) -> list[Any]:
    return [reward(by_urllib, lane="thread", limit=limit), reward(by_hand, limit=limit)]


def main(what: str, url: str, calls: int, rpm: float) -> None:
    if what == "hold":
        with Dispatcher([reward(hold, lane="thread", timeout=600, limit=Limit(concurrency=2, key="holders"))]) as made:
            made.score(completions=["c"] * 2)
        return
    if what == "work":
        work(calls, rpm)
        return
    if what == "alone":
        print("ready", flush=True)
        sys.stdin.readline()
        attempts = alone(url, calls)
        print(json.dumps({"ok": len(attempts), "attempts": sum(attempts)}), flush=True)
        return
    function = judges(Limit(rpm=rpm, key="judge"))[what == "asyncio"]
    with Dispatcher([function]) as made:
        print("ready", flush=True)
        sys.stdin.readline()
        result = made.score(completions=["c"] * calls, url=[url] * calls)
    statuses = result.status.ravel().tolist()
    print(json.dumps({"ok": statuses.count(0), "attempts": int(result.attempts.sum())}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))

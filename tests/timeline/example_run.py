"""A run with something of everything: lanes, a limit, failures, retries, a hang and a crash.

`python -m tests.timeline.example_run docs/images` makes the pictures of the docs again.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from guerdon import Dispatcher, Limit, Trace, reward

SAMPLES, GENERATIONS, STEPS = 48, 8, 3


def drawn_from(name: str, completion: str) -> float:
    return random.Random(f"{name} {completion}").random()


def math_verify(completion: str) -> float:
    time.sleep(0.004 + 0.02 * drawn_from("math", completion))
    if completion.endswith(" 13"):
        raise ValueError(f"no number in the last line of {completion!r}")
    return 1.0


def unit_tests(completion: str) -> float:
    step, sample = map(int, completion.split())
    if (step, sample) == (2, 7):
        while True:
            try:
                time.sleep(60)
            except BaseException:
                continue
    if (step, sample) == (1, 21):
        os._exit(3)
    time.sleep(0.03 + 0.25 * drawn_from("tests", completion) ** 3)
    return 1.0


def record(path: Path, steps: int = STEPS, samples: int = SAMPLES, pause_s: float = 0.2) -> None:
    """Scores some batches and leaves their timeline at `path`."""
    asked: set[str] = set()

    async def judge(completion: str) -> float:
        again = completion in asked
        asked.add(completion)
        await asyncio.sleep(0.05 + 0.4 * drawn_from("judge", completion) ** 2)
        if not again and drawn_from("busy", completion) < 0.12:
            raise ConnectionError("503 Service Unavailable from judge-2:8000")
        return 1.0

    functions = [
        reward(math_verify, lane="thread"),
        reward(unit_tests, lane="process", timeout=0.8, grace=0.1),
        reward(judge, retries=2, timeout=5.0, limit=Limit(concurrency=12)),
    ]
    options = {"max_failure_rate": 1.0, "workers": 4}
    with Dispatcher(functions, trace=Trace(path, shortest=0.0), **options) as dispatcher:  # type: ignore[arg-type]
        for step in range(steps):
            completions = [f"{step} {sample}" for sample in range(samples)]
            state = {"global_step": 40 + step}
            dispatcher.score(completions=completions, num_generations=GENERATIONS, trainer_state=state)
            time.sleep(pause_s)


def make_pictures(folder: Path) -> None:
    """The last step of a run, one call of it chosen, in both schemes."""
    from playwright.sync_api import sync_playwright

    from tests.browser import chromium

    with tempfile.TemporaryDirectory() as work, sync_playwright() as running:
        trace, page = Path(work, "run.pftrace"), Path(work, "timeline.html")
        record(trace)
        command = [sys.executable, "-m", "guerdon", "trace", trace, "--html", page]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        browser = running.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        for scheme, name in (("light", "timeline.png"), ("dark", "timeline-dark.png")):
            opened = browser.new_page(viewport={"width": 1240, "height": 960}, color_scheme=scheme)
            opened.goto(page.as_uri())
            opened.select_option("#batch", index=STEPS)
            opened.evaluate(
                "(() => { const late = troubles.find((one) => one.row && one.from > view.from"
                " && STATUS[one.row.levels[one.depth].status[one.at]] === 'timeout');"
                " choose(bar(late.row, late.depth, late.at)); port.scrollTop = 0; scrollTo(0, 0); })()"
            )
            opened.wait_for_timeout(500)
            opened.screenshot(path=folder / name)
        browser.close()


if __name__ == "__main__":
    make_pictures(Path(sys.argv[1]))

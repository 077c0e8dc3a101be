"""A headless Chromium for the pages that commands write, and what it says of a page."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome")

OpenPage = Callable[..., Any]


def chromium() -> str | None:
    """The program, if there is one."""
    return os.environ.get("GUERDON_CHROMIUM") or next(filter(None, map(shutil.which, CHROMIUM)), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium; skips where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = chromium()
    if found is None:
        pytest.skip("there is no Chromium (Debian: apt-get install chromium)")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:
    """Opens a file; at the end no page may have logged, failed or asked for anything else."""
    contexts, wrong = [], []

    def open_file(path: Path, *, width: int = 1280, scheme: str = "light") -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce"
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("request", lambda request: wrong.append(request.url) if request.url != path.as_uri() else None)
        page.goto(path.as_uri())
        return page

    yield open_file
    for context in contexts:
        context.close()
    assert wrong == []


def contrast(page: Any, selector: str) -> float:
    """The contrast of an element's text with the ground below it, as WCAG defines it."""
    colours = page.evaluate(
        """(selector) => {
            const element = document.querySelector(selector);
            let ground = element;
            while (getComputedStyle(ground).backgroundColor === "rgba(0, 0, 0, 0)") ground = ground.parentElement;
            return [getComputedStyle(element).color, getComputedStyle(ground).backgroundColor];
        }""",
        selector,
    )
    bright = sorted(_luminance([int(part) for part in re.findall(r"\d+", colour)[:3]]) for colour in colours)
    return (bright[1] + 0.05) / (bright[0] + 0.05)


def _luminance(rgb: list[int]) -> float:
    parts = [part / 255 for part in rgb]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue

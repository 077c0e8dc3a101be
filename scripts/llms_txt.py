"""A hook of MkDocs: writes llms.txt, a list of all pages with their first sentences, for programs
that read the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.pages import Page

_ABOUT: dict[str, str] = {}


def on_page_markdown(markdown: str, page: Page, **_: Any) -> None:
    """Keeps the first sentence below the title."""
    text = re.sub(r"<!--.*?-->", "", markdown.partition("\n\n")[2], flags=re.DOTALL)
    first = next((part for part in text.split("\n\n") if re.match(r"(?!```)[\w`*\"]", part)), "")
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(first.split()))
    _ABOUT[page.url] = re.split(r"(?<=[.:?])\s", plain)[0].rstrip(":")


def on_post_build(config: Any, **_: Any) -> None:
    """Writes the list in the order of the navigation."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for part in config.nav:
        for title, pages in part.items():
            lines += [f"## {title}", ""]
            for entry in pages:
                for name, path in entry.items():
                    url = path.removesuffix(".md") + ".html"
                    lines.append(f"- [{name}]({config.site_url or ''}{url}): {_ABOUT[url]}")
            lines.append("")
    Path(config.site_dir, "llms.txt").write_text("\n".join(lines), encoding="utf-8")

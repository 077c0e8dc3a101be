"""The frame of a page: one file with its styles, script and data in it, which loads nothing.

Its Content-Security-Policy allows the one script and the one style sheet by their hashes, and no
request at all: what a text of a model may hold can neither run nor load anything.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Final

__all__ = ["fill", "render_page"]

_PACKAGE: Final = "guerdon._insight.html_frame"


def render_page(
    package: str,
    *,
    title: str,
    heading: str,
    subtitle: str,
    skip: str,
    body: str,
    data: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    version: str,
) -> str:
    """A page as HTML.

    Args:
        package: The package whose folder ``assets`` has the styles and scripts.
        title: Of the tab; escaped here, as are `heading` and `skip`, the link past the navigation.
        subtitle: HTML, as is `body`.
        data: JSON of `safe_text.as_json`, which the scripts have as `data`.
    """
    style = _asset(_PACKAGE, "frame.css") + "".join(_asset(package, name) for name in styles)
    script = _asset(_PACKAGE, "frame.js") + "".join(f"\n{_asset(package, name)}" for name in scripts)
    return Template(_asset(_PACKAGE, "frame.html")).substitute(
        title=escape(title),
        heading=escape(heading),
        subtitle=subtitle,
        skip=escape(skip),
        body=body,
        data=data,
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        version=escape(version),
    )


def fill(package: str, name: str, **parts: str) -> str:
    """An asset of a package with parts in it, which are HTML already."""
    return Template(_asset(package, name)).substitute(parts)


def _asset(package: str, name: str) -> str:
    return (files(package) / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

"""Small tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["html_table"]


def html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts as HTML; the texts are escaped."""
    from html import escape

    titles = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"

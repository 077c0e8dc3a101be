"""A profile as one page: no script, no network, light and dark, readable on a phone.

Texts of users are escaped, and invisible characters are shown by a sign, as in a report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from guerdon._system.safe_text import readable
from guerdon.cli.profile_words import ProfilePart, blocks, summary
from guerdon.profile.function_profile import Profile

__all__ = ["page"]

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --error: #c0262d; --warning: #9a6700; --info: #3b6fb6; --good: #1a7f37; }
@media (prefers-color-scheme: dark) { :root { --error: #ff7b72; --warning: #e3b341; --info: #79c0ff; --good: #56d364; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
code, pre { font: 13px/1.45 ui-monospace, monospace; } pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .3rem 0; }
.item { margin: .5rem 0; overflow-wrap: anywhere; }
.error { color: var(--error); } .warning { color: var(--warning); } .info { color: var(--info); } .clean { color: var(--good); }
"""


def page(found: Profile, rewards: str, data: str) -> str:
    """The page of a profile of `rewards` on `data`, names as the command got them."""
    title = f"Profile of {rewards} on {data}"
    parts = [f"<h1>{_text(title)}</h1>", *_parts(blocks(found, verbose=True)), f"<p>{_text(summary(found))}</p>"]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _parts(shown: Iterator[ProfilePart]) -> Iterator[str]:
    """Each block as HTML; the headings are those of the functions, which the table links to."""
    headings = 0
    for block in shown:
        text = _text(block.text)
        if block.kind == "table":
            yield _table(block.rows)
        elif block.kind == "heading":
            yield f'<h2 id="f{headings}">{text}</h2>'
            headings += 1
        elif block.kind == "code":
            yield f"<pre>{text}</pre>"
        elif block.kind == "item":
            details = "".join(f"<pre>{_text(detail)}</pre>" for detail in block.details)
            yield f'<div class="item"><b class="{block.mark}">{block.mark}</b> {text}{details}</div>'
        else:
            yield f'<p class="{block.mark}">{text}</p>'


def _table(rows: Sequence[Sequence[str]]) -> str:
    titles = "".join(f"<th>{_text(name)}</th>" for name in rows[0])
    body = []
    for number, (name, counts, *others) in enumerate(rows[1:]):
        kind = next((each for each in ("error", "warning") if each in counts), "clean")
        cells = [
            f'<a href="#f{number}">{_text(name)}</a>',
            f'<span class="{kind}">{counts}</span>',
            *map(_text, others),
        ]
        body.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    return f'<div class="scroll"><table><thead><tr>{titles}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'


def _text(text: str) -> str:
    return escape(readable(text))

"""A profile as one page: no script, no network, light and dark, readable on a phone.

Texts of users are escaped, and invisible characters are shown by a sign, as in a report.
"""

from __future__ import annotations

from html import escape
from typing import Final

from guerdon._system.safe_text import readable
from guerdon.cli import profile_words as words
from guerdon.profile.finding import Finding
from guerdon.profile.function_profile import FunctionProfile, Profile
from guerdon.profile.root_causes import RootCause

__all__ = ["page"]

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --error: #c0262d; --warning: #9a6700; --info: #3b6fb6; --good: #1a7f37; }
@media (prefers-color-scheme: dark) { :root { --error: #ff7b72; --warning: #e3b341; --info: #79c0ff; --good: #56d364; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
code, pre { font: 13px/1.45 ui-monospace, monospace; } pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .3rem 0; }
ul { padding-left: 1.2rem; } li { margin: .5rem 0; overflow-wrap: anywhere; } .muted { opacity: .75; }
.error { color: var(--error); } .warning { color: var(--warning); } .info { color: var(--info); } .clean { color: var(--good); }
"""


def page(found: Profile, rewards: str, data: str) -> str:
    """The page of a profile of `rewards` on `data`, names as the command got them."""
    title = f"Profile of {rewards} on {data}"
    parts = [
        f"<h1>{_text(title)}</h1>",
        f"<p>{_text(words.summary(found))}</p>",
        *(f'<p class="warning">{_text(line)}</p>' for line in words.cut_short(found)),
        f"<h2>{_text(words.headline(found))}</h2>",
        f"<ul>{''.join(_cause(each) for each in found.root_causes())}</ul>",
        _overview(found),
    ]
    if found.step is not None:
        parts.append("<h2>A step</h2>")
        parts += [f"<p>{_text(line)}</p>" for line in words.step_lines(found.step)]
    parts += [_function(number, function) for number, function in enumerate(found.functions.values())]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _overview(found: Profile) -> str:
    names = ("p50", "p90", "p99", "waits", "memory")
    head = ("function", "findings", *names, "lane", "timeout")
    rows = []
    for number, function in enumerate(found.functions.values()):
        facts, advice = words.facts(function), function.advice
        counts = words.counts(function)
        kind = next((each for each in ("error", "warning") if each in counts), "clean")
        cells = [
            f'<a href="#f{number}">{_text(function.name)}</a>',
            f'<span class="{kind}">{counts}</span>',
        ]
        cells += [_text(facts.get(name, "-")) for name in names]
        cells.append(_text(advice.lane if advice else function.spec.lane))
        cells.append(f"{advice.timeout:g} s" if advice and advice.timeout is not None else "-")
        rows.append(cells)
    return _table(head, rows)


def _function(number: int, function: FunctionProfile) -> str:
    parts = [f'<h2 id="f{number}">{_text(function.name)}</h2>']
    findings = function.sorted_findings()
    if findings:
        parts.append(f"<ul>{''.join(_finding(finding) for finding in findings)}</ul>")
    advice = function.advice
    if advice is not None:
        parts.append(f"<p>Lane <b>{_text(advice.lane)}</b>: {_text(advice.lane_reason)}.</p>")
        if advice.timeout is not None:
            parts.append(f"<p>Timeout <b>{advice.timeout:g} s</b>: {_text(advice.timeout_reason)}.</p>")
        if advice.decorator is not None:
            parts.append(f"<pre>{_text(advice.decorator)}</pre>")
    parts += [f"<p>{_text(line)}</p>" for line in words.judge_lines(function)]
    if function.checks:
        parts.append(f'<p class="muted">Checked: {_text(", ".join(function.checks))}.</p>')
    return "\n".join(parts)


def _cause(each: RootCause) -> str:
    kind, _, rest = str(each).partition(" ")
    return f'<li><b class="{each.severity}">{kind}</b> {_text(rest)}</li>'


def _finding(finding: Finding) -> str:
    examples = "".join(f"<pre>{_text(str(example))}</pre>" for example in finding.examples)
    head = f'<b class="{finding.severity}">{finding.severity}</b> <code>{_text(finding.check)}</code>'
    return f"<li>{head} {_text(finding.message)}{examples}</li>"


def _table(head: tuple[str, ...], rows: list[list[str]]) -> str:
    """A table; the cells are HTML already."""
    titles = "".join(f"<th>{_text(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'


def _text(text: str) -> str:
    return escape(readable(text))

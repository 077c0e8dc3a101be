"""The page of a report: its sections as HTML, drawn from the figures that ``--json`` prints.

- All of it is there without a script, which only hides and shows what belongs to single functions.
- It is one file that loads nothing. Its Content-Security-Policy allows the one script and the one
  style sheet by their hashes, and no request at all: what a text of a model holds can't run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, Final

from guerdon._insight.report import comparison, sections
from guerdon._insight.report.findings import findings
from guerdon._insight.report.samples import samples
from guerdon._insight.report.summary import Summary

__all__ = ["render", "render_pair"]

_PACKAGE: Final = "guerdon._insight.report"
_MOST_BYTES: Final = 2_600_000
_SECTIONS: Final = {
    "summary": "What matters",
    "table": "Functions",
    "rewards": "Rewards",
    "distributions": "Distributions",
    "groups": "Groups",
    "failures": "Failures",
    "latency": "Time",
    "samples": "Samples",
    "about": "About",
}

Figures = dict[str, Any]


def render(summary: Summary, figures: Figures, version: str) -> str:
    """The page as HTML; texts and tracebacks are cut until it is small.

    Args:
        figures: What `aggregates` made of the summary.
    """
    shown = samples(summary)
    page = ""
    for longest in (4000, 1500, 500, 120, 0):
        page = _page(figures, shown if longest else [], longest, version)
        if len(page.encode("utf-8", "replace")) <= _MOST_BYTES:
            break
    return page


def _page(figures: Figures, shown: Sequence[dict[str, Any]], longest: int, version: str) -> str:
    runs = list(figures["runs"])
    named = ", ".join(runs[:3]) + (f" and {len(runs) - 3} more" if len(runs) > 3 else "")
    links = [
        f'<li><a href="#{name}">{title}</a></li>' for name, title in _SECTIONS.items() if shown or name != "samples"
    ]
    body = _filled(
        "report.html",
        navigation="".join(links),
        toggles=sections.toggles(figures),
        facts=_facts(figures),
        findings=_findings(figures),
        rows="".join(sections.rows(figures)),
        rewards="".join(sections.reward_charts(figures)),
        histograms="".join(sections.histograms(figures)),
        groups="".join(sections.group_charts(figures)),
        failures="".join(sections.failure_chart(figures)),
        reasons="".join(sections.reasons(figures, longest)),
        latency="".join(sections.latency_charts(figures)),
        slowest="".join(sections.slowest(figures)),
        samples=_samples(figures, shown, longest) if shown else "",
        about=_about(figures),
    )
    subtitle = f"<bdi>{escape(figures['journal'])}</bdi>, run <bdi>{escape(named)}</bdi>{_period(figures)}"
    return _document(f"Rewards: {figures['journal']}", subtitle, body, version)


def render_pair(both: Sequence[Figures], version: str) -> str:
    """The page of two runs side by side."""
    names = " and ".join(figures["journal"] for figures in both)
    return _document(f"Rewards: {names}", f"<bdi>{escape(names)}</bdi>", comparison.body(both), version)


def _document(title: str, subtitle: str, body: str, version: str) -> str:
    style, script = _asset("report.css"), _asset("report.js")
    return _filled(
        "document.html",
        title=escape(title),
        subtitle=subtitle,
        body=body,
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        version=escape(version),
    )


def _filled(name: str, **parts: str) -> str:
    """An asset with parts in it, which are HTML already."""
    return Template(_asset(name)).substitute(parts)


def _asset(name: str) -> str:
    return (files(_PACKAGE) / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _samples(figures: Figures, shown: Sequence[dict[str, Any]], longest: int) -> str:
    """The section that journals without texts have nothing for."""
    return (
        f'<section id="samples" aria-labelledby="samples-title"><h2 id="samples-title">{_SECTIONS["samples"]}</h2>'
        '<p class="muted small">Characters that can\'t be seen, or that change the direction of text, are written out.</p>'
        f"{''.join(sections.sample_list(figures, shown, longest))}</section>"
    )


def _period(figures: dict[str, Any]) -> str:
    if figures["first"] is None:
        return ""
    first, last = (figures[name][:16].replace("T", " ") for name in ("first", "last"))
    return f", {first} to {last} UTC"


def _facts(figures: dict[str, Any]) -> str:
    axis, functions = figures["axis"], figures["functions"].values()
    failed = sum(round((each["failed_share"] or 0.0) * each["rows"]) for each in functions)
    cost = sum(each["cost"] or 0.0 for each in functions)
    steps = f"{axis['first'][0]:,} – {axis['last'][-1]:,}"
    facts = {
        "Rewards": f"{figures['rows']:,}",
        "Functions": f"{len(figures['functions']):,}",
        "Steps" if axis["kind"] == "step" else "Batches": steps,
        "Ranks": f"{len(figures['ranks']):,}",
        "Failed": f"{failed:,}",
    }
    if cost:
        facts["Cost"] = f"{cost:,.2f}"
    return "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts.items())


def _findings(figures: dict[str, Any]) -> str:
    items = []
    for each in findings(figures):
        kind = '<span class="kind">Look:</span> ' if each["severity"] == "warning" else ""
        text = f"<bdi>{escape(each['message'])}</bdi>"
        items.append(
            f'<li class="{each["severity"]}">{kind}{text} <a href="#{each["section"]}">{_SECTIONS[each["section"]]}</a></li>'
        )
    return "".join(items)


def _about(figures: dict[str, Any]) -> str:
    axis = figures["axis"]
    parts = f"{figures['parts']:,} {'part' if figures['parts'] == 1 else 'parts'}"
    written = f", {figures['open_parts']} of them being written" if figures["open_parts"] else ""
    sentences = [f"{figures['rows']:,} rows in {parts}{written}."]
    if len(axis["first"]) and axis["last"][0] > axis["first"][0]:
        several = "steps" if axis["kind"] == "step" else "batches"
        sentences.append(f"Each point of a chart stands for several {several}: {len(axis['first'])} points in all.")
    if axis["kind"] == "batch":
        sentences.append("No row has a step, so the axis counts batches.")
    if figures["rows_without_step"]:
        sentences.append(f"{figures['rows_without_step']:,} rows have no step: they count where all steps are chosen.")
    if len(figures["runs"]) > 1:
        runs = "; ".join(f"{name} ({count:,} rows)" for name, count in list(figures["runs"].items())[:20])
        sentences.append(f"{len(figures['runs'])} runs are shown together: {runs}. `--run NAME` shows one.")
    if figures["steps"] is not None:
        sentences.append(f"Only rows of {figures['steps']} count.")
    if figures["left_out_functions"]:
        sentences.append(f"Left out are {len(figures['left_out_functions'])} functions with few rows.")
    sentences += [f"{note}." for note in figures["notes"]]
    return "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)

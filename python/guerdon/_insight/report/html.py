"""The page of a report: its parts as HTML, in the frame that all pages have."""

from __future__ import annotations

from html import escape
from typing import Any, Final

from guerdon._insight.html_frame.frame import fill, render_page
from guerdon._insight.report.aggregates import ratio
from guerdon._insight.report.findings import findings, seconds
from guerdon._insight.report.page_data import fitted, page_data
from guerdon._insight.report.summary import Summary

__all__ = ["render"]

_PACKAGE: Final = "guerdon._insight.report"
_SECTIONS: Final = {
    "summary": "What matters",
    "table": "Functions",
    "rewards": "Rewards",
    "distributions": "Distributions",
    "groups": "Groups",
    "correlation": "Correlation",
    "failures": "Failures",
    "latency": "Time",
    "cost": "Cost",
    "judges": "Judges",
    "samples": "Samples",
    "about": "About",
}


def render(summary: Summary, figures: dict[str, Any], version: str) -> str:
    """The page as HTML.

    Args:
        figures: What `aggregates` made of the summary.
    """
    runs = list(figures["runs"])
    shown = ", ".join(runs[:3]) + (f" and {len(runs) - 3} more" if len(runs) > 3 else "")
    body = fill(
        _PACKAGE,
        "report.html",
        navigation="".join(f'<li><a href="#{name}">{title}</a></li>' for name, title in _SECTIONS.items()),
        facts=_facts(figures),
        findings=_findings(figures),
        rows=_rows(figures),
        about=_about(figures),
    )
    return render_page(
        _PACKAGE,
        title=f"Rewards: {figures['journal']}",
        heading="Rewards report",
        subtitle=f"<bdi>{escape(figures['journal'])}</bdi>, run <bdi>{escape(shown)}</bdi>{_period(figures)}",
        skip="Skip to the findings",
        body=body,
        data=fitted(page_data(summary, figures)),
        styles=["report.css"],
        scripts=["charts.js", "report.js", "details.js"],
        version=version,
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


def _rows(figures: dict[str, Any]) -> str:
    """The table of functions of all steps, for readers without scripts."""
    rows = []
    for name, each in figures["functions"].items():
        none = each["status"].get("abstained", 0) + each["status"].get("skipped", 0)
        cells = [
            _number(each["weight"]),
            f"{each['rows']:,}",
            _number(each["mean"]),
            _number(each["std"]),
            _share(each["zero_spread_share"]),
            _share(each["failed_share"]),
            _share(ratio(none, each["rows"])),
            *(
                seconds(value) if value else "–"
                for value in (each["run_s"]["p50"], each["run_s"]["p99"], each["queue_s"]["p50"])
            ),
            f"{each['cost']:,.2f}" if each["cost"] else "–",
        ]
        rows.append(
            f'<tr><th scope="row"><bdi>{escape(name)}</bdi></th>{"".join(f"<td class=number>{cell}</td>" for cell in cells)}</tr>'
        )
    return "".join(rows)


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
    sentences += _chosen(figures["selection"])
    if figures["left_out_runs"]:
        left_out = ", ".join(list(figures["left_out_runs"])[:20])
        sentences.append(f"Left out are the runs {left_out}.")
    if figures["left_out_functions"]:
        sentences.append(f"Left out are {len(figures['left_out_functions'])} functions with few rows.")
    sentences += [f"{note}." for note in figures["notes"]]
    return "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)


def _chosen(selection: dict[str, Any]) -> list[str]:
    """What was left out by choice."""
    sentences = []
    if selection["steps"] is not None:
        sentences.append(f"Only rows of {selection['steps']} count.")
    if selection["functions"] is not None:
        named = ", ".join(selection["functions"][:20])
        sentences.append(f"Only these functions count: {named}. The total reward is the sum of these alone.")
    return sentences


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.3g}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"

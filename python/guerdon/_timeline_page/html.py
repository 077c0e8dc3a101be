"""The page of a timeline: its numbers and tables as HTML, in the frame that all pages have."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Final

from guerdon._insight.html_frame.frame import fill, render_page
from guerdon._insight.html_frame.safe_text import shortened, visible
from guerdon._timeline_page.moment_names import shown
from guerdon._timeline_page.page_data import PageData, fitted
from guerdon._timeline_page.recorded import ParsedTrace

if TYPE_CHECKING:
    from guerdon._native import TraceSummary

__all__ = ["render"]

_PACKAGE: Final = "guerdon._timeline_page"
_KILLED: Final = ("worker killed", "worker died", "thread abandoned")


def render(recorded: ParsedTrace, summary: TraceSummary, version: str) -> str:
    """The page as HTML.

    Args:
        recorded: What `summary` is of.
    """
    found = fitted(recorded)
    processes = ", ".join(summary.processes[:3])
    if len(summary.processes) > 3:
        processes += f" and {len(summary.processes) - 3} more"
    began = ""
    if recorded.started_s is not None and 0 <= recorded.started_s < 1e11:
        began = f", from {datetime.fromtimestamp(recorded.started_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    body = fill(
        _PACKAGE,
        "timeline.html",
        facts=_facts(summary),
        notes="".join(f'<p class="muted small note">{_text(note)}</p>' for note in _notes(found, summary)),
        rows=_rows(found, summary),
        moments=_moments(summary),
    )
    return render_page(
        _PACKAGE,
        title=f"Timeline: {visible(processes)}",
        heading="Timeline",
        subtitle=f"<bdi>{_text(processes)}</bdi>{began}",
        skip="Skip to the timeline",
        body=body,
        data=found.json,
        styles=["timeline.css"],
        scripts=["rows.js", "marks.js", "draw.js", "view.js"],
        version=version,
    )


def _text(text: str) -> str:
    return escape(visible(text))


def _facts(summary: TraceSummary) -> str:
    rows = summary.functions.values()
    facts = {
        "Span": _time(summary.span_s),
        "Batches": f"{summary.batches:,}",
        "Calls": f"{sum(each[0] for each in rows):,}",
        "Failed": f"{sum(each[1] for each in rows):,}",
        "Retries": f"{sum(each[2] for each in rows):,}",
        "Killed or died": f"{sum(summary.moments.get(name, 0) for name in _KILLED):,}",
    }
    return "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts.items())


def _notes(found: PageData, summary: TraceSummary) -> list[str]:
    """What the page does not show."""
    notes = []
    if found.resolution_s:
        notes.append(
            f"What is shorter than {_time(found.resolution_s)} is drawn together with its neighbours: "
            f"{found.slices:,} slices are {found.bars:,} bars. Cut the trace (--from, --to, --last, --step) to see each."
        )
    if found.left_out_rows:
        notes.append(f"{found.left_out_rows:,} tracks with little on them are left out.")
    if found.left_out_moments:
        notes.append(f"{found.left_out_moments:,} of the kills and other moments are left out.")
    if summary.dropped:
        notes.append(f"The recorder dropped {summary.dropped:,} events: the disk or the processor was too slow.")
    if not summary.slices:
        notes.append("Nothing ran in that part of the trace.")
    return notes


def _rows(found: PageData, summary: TraceSummary) -> str:
    """The table of functions, for readers without scripts too."""
    rows = []
    for name, (calls, failed, retries, running, busy, longest) in summary.functions.items():
        waits = found.at_limit_s.get(name, 0.0)
        cells = [f"{calls:,}", f"{failed:,}", f"{retries:,}", f"{running:,}", _time(busy), _time(longest)]
        cells.append(_time(waits) if waits else "–")
        numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
        shown = _text(shortened(name, 256))
        lane = _text(found.lanes.get(name, ""))
        rows.append(f'<tr><th scope="row"><bdi>{shown}</bdi></th><td>{lane}</td>{numbers}</tr>')
    return "".join(rows)


def _moments(summary: TraceSummary) -> str:
    if not summary.moments:
        return ""
    listed = ", ".join(f"{count:,} × {shown(name)}" for name, count in summary.moments.items())
    return f'<p class="muted small">{_text(listed)}</p>'


def _time(seconds: float) -> str:
    """Three digits, with a unit."""
    for least, size, unit in ((7200.0, 3600.0, "h"), (120.0, 60.0, "min"), (1.0, 1.0, "s"), (1e-3, 1e-3, "ms")):
        if seconds >= least:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs" if seconds else "0 s"

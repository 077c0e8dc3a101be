"""Two runs side by side: the figures of their reports, function by function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, Final

from guerdon._insight.report import sections
from guerdon._insight.report.charts import format_money, format_number, format_seconds, format_share

__all__ = ["SIDES", "TOTAL", "body", "compared", "sentences"]

SIDES: Final = ("A", "B")
TOTAL: Final = "Total reward"
_HEADS: Final = ("Mean", "Std", "Same in group", "Failed", "Run p50", "Run p99", "Cost")

Figures = dict[str, Any]


def compared(both: Sequence[Figures]) -> dict[str, list[Figures | None]]:
    """Returns the figures of `aggregates` in runs A and B, by function, and those of the total."""
    names = dict.fromkeys(name for figures in both for name in figures["functions"])
    found: dict[str, list[Figures | None]] = {
        name: [figures["functions"].get(name) for figures in both] for name in names
    }
    return found | {TOTAL: [figures["total"] for figures in both]}


def sentences(both: Sequence[Figures]) -> Iterator[str]:
    """A line for each function: its mean in A and in B, with what else differs."""
    for name, sides in compared(both).items():
        texts = []
        for of in sides:
            failed = f", {format_share(of['failed_share'])} failed" if of and of.get("failed_share") else ""
            texts.append("not there" if of is None else f"{format_number(of['mean'])}{failed}")
        yield f"{name}: {' -> '.join(texts)}"


def body(both: Sequence[Figures]) -> str:
    """The page between its head and its foot."""
    names = "".join(
        f"<p><b>{side}</b>: <bdi>{escape(figures['journal'])}</bdi>, {figures['rows']:,} rows, "
        f"{figures['axis']['kind']} {figures['axis']['first'][0]:,} to {figures['axis']['last'][-1]:,}</p>"
        for side, figures in zip(SIDES, both, strict=True)
    )
    heads = "".join(f'<th scope="colgroup" colspan="2" class="number">{head}</th>' for head in _HEADS)
    sides_row = "".join(f'<th scope="col" class="number">{side}</th>' for _ in _HEADS for side in SIDES)
    rows = []
    for name, sides in compared(both).items():
        cells = [_cells(of) for of in sides]
        listed = "".join(f'<td class="number">{cell}</td>' for pair in zip(*cells, strict=True) for cell in pair)
        rows.append(f'<tr><th scope="row"><bdi>{escape(name)}</bdi></th>{listed}</tr>')
    return (
        '<main id="main" tabindex="-1"><section id="table" aria-labelledby="table-title">'
        f'<h2 id="table-title">Side by side</h2>{names}'
        '<div class="scroll" tabindex="0" role="region" aria-label="Functions, table"><table class="full">'
        f'<thead><tr><th scope="col" rowspan="2">Function</th>{heads}</tr><tr>{sides_row}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></section>"
        '<section id="rewards" aria-labelledby="rewards-title"><h2 id="rewards-title">Rewards over time</h2>'
        f'<div class="charts pairs">{"".join(_charts(both))}</div></section></main>'
    )


def _cells(of: Figures | None) -> list[str]:
    if of is None:
        return ["–"] * len(_HEADS)
    run = of.get("run_s", {})
    return [
        format_number(of["mean"]),
        format_number(of["std"]),
        format_share(of["zero_spread_share"]),
        format_share(of.get("failed_share")),
        format_seconds(run.get("p50")),
        format_seconds(run.get("p99")),
        format_money(of.get("cost") or None),
    ]


def _charts(both: Sequence[Figures]) -> Iterator[str]:
    """Two charts a function, on one scale."""
    for name, sides in compared(both).items():
        means = [mean for of in sides if of for mean in of["over_time"]["mean"] if mean is not None]
        scale = (min(means), max(means)) if means else None
        for place, (side, figures, of) in enumerate(zip(SIDES, both, sides, strict=True)):
            if of is None:
                yield f"<figure><figcaption><h3><bdi>{escape(name)}</bdi>, {side}</h3></figcaption><p>not there</p></figure>"
            else:
                yield sections.reward_chart(f"{name}, {side}", figures["axis"], of, f"c{place}", None, scale)

"""The charts and tables of a report's page, by section, as HTML.

Elements of one function carry its number, by which the page's script hides and shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from html import escape
from typing import Any, Final

from guerdon._insight.report.aggregates import ratio
from guerdon._insight.report.charts import (
    Series,
    bar_chart,
    format_money,
    format_number,
    format_seconds,
    format_share,
    line_chart,
    mark_of,
)
from guerdon._system.safe_text import shortened
from guerdon._system.units import plural

__all__ = [
    "failure_chart",
    "group_charts",
    "histograms",
    "latency_charts",
    "reasons",
    "reward_chart",
    "reward_charts",
    "rows",
    "sample_list",
    "slowest",
    "toggles",
]

_SHOWN_AT_FIRST: Final = 12
_PERCENTILES: Final = (("p50", "c0", ""), ("p90", "c4", "5 3"), ("p99", "c1", "2 3"))

Figures = dict[str, Any]


def functions(figures: Figures) -> Iterator[tuple[int, str, dict[str, Any]]]:
    for number, (name, each) in enumerate(figures["functions"].items()):
        yield number, name, each


def number_of(figures: Figures, name: str) -> int:
    return list(figures["functions"]).index(name)


def toggles(figures: Figures) -> str:
    return "".join(
        f'<label class="{mark_of(number)}"><input type="checkbox" value="{number}"{" checked" if number < _SHOWN_AT_FIRST else ""}>'
        f"<bdi>{escape(name)}</bdi></label>"
        for number, name, _ in functions(figures)
    )


def reward_charts(figures: Figures) -> Iterator[str]:
    axis, total = figures["axis"], figures["total"]
    if len(figures["functions"]) > 1:
        yield reward_chart("Total reward (weighted sum of all functions)", axis, total, "total", None)
    for number, name, each in functions(figures):
        yield reward_chart(name, axis, each, mark_of(number), number)


def reward_chart(
    name: str,
    axis: Figures,
    of: dict[str, Any],
    mark: str,
    number: int | None,
    scale: tuple[float, float] | None = None,
) -> str:
    """The mean over time with its deviation; `scale` is the least that the chart reaches to."""
    means, stds = of["over_time"]["mean"], of["over_time"]["std"]
    bounds = (of.get("min"), of.get("max"))

    def bound(sign: int, end: float | None) -> list[float | None]:
        """A standard deviation to one side, no farther than the rewards seen."""
        apart = [None if mean is None else mean + sign * (std or 0.0) for mean, std in zip(means, stds, strict=True)]
        return [value if value is None or end is None else sign * min(sign * value, sign * end) for value in apart]

    series = Series("mean", mark, means, bound(-1, bounds[0]), bound(1, bounds[1]))
    versions = [
        at for at, first in enumerate(axis["first"]) if first in {v["first"] for v in of.get("versions", [])[1:]}
    ]
    return line_chart(
        name,
        axis,
        [series],
        words=f"mean {format_number(of['mean'])} ± {format_number(of['std'])}, {of['rewards']:,} rewards",
        read=lambda at: f"{format_number(means[at])} ± {format_number(stds[at])}",
        form=format_number,
        least=scale and scale[0],
        most=scale and scale[1],
        marks=versions,
        function=number,
    )


def histograms(figures: Figures) -> Iterator[str]:
    for number, name, each in functions(figures):
        words = f"{each['rewards']:,} rewards, mean {format_number(each['mean'])}"
        yield bar_chart(name, each["histogram"], words=words, mark=mark_of(number), function=number)


def group_charts(figures: Figures) -> Iterator[str]:
    axis, total = figures["axis"], figures["total"]
    over = total["over_time"]
    hard, easy, same = over["too_hard_share"], over["too_easy_share"], over["zero_spread_share"]
    between = [None if s is None else max(0.0, s - (e or 0.0)) for s, e in zip(same, easy, strict=True)]
    nothing = [None if s is None else 0.0 for s in same]
    yield line_chart(
        "Total reward",
        axis,
        [
            Series("too hard: all at the lowest", "c1", hard, nothing, kind="area"),
            Series("the same in between", "c7", between, hard, kind="area"),
            Series("too easy: all at the highest", "c0", same, between, kind="area"),
        ],
        words=_same_words(total),
        read=lambda at: (
            f"{format_share(same[at])}; too hard {format_share(hard[at])}, too easy {format_share(easy[at])}"
        ),
        form=format_share,
        least=0.0,
        legend=True,
    )
    for number, name, each in functions(figures):
        yield _share_chart(name, axis, each["over_time"]["zero_spread_share"], _same_words(each), number)


def _same_words(of: dict[str, Any]) -> str:
    return f"{format_share(of['zero_spread_share'])} of {of['groups']:,} groups"


def _share_chart(name: str, axis: Figures, values: list[float | None], words: str, number: int) -> str:
    return line_chart(
        name,
        axis,
        [Series("share", mark_of(number), values)],
        words=words,
        read=lambda at: format_share(values[at]),
        form=format_share,
        least=0.0,
        most=1.0,
        function=number,
    )


def _several(
    title: str, figures: Figures, values: dict[str, list[float | None]], words: str, form: Callable[[float | None], str]
) -> str:
    series = [Series(name, mark_of(number_of(figures, name)), each) for name, each in values.items()]
    return line_chart(
        title,
        figures["axis"],
        series,
        words=words,
        read=lambda at: ", ".join(f"{each.name} {form(each.values[at])}" for each in series),
        form=form,
        least=0.0,
        legend=True,
    )


def failure_chart(figures: Figures) -> Iterator[str]:
    failed = {name: each for _, name, each in functions(figures) if each["failed_share"]}
    if not failed:
        yield '<p class="muted">No call failed.</p>'
        return
    count = sum(round(each["failed_share"] * each["rows"]) for each in failed.values())
    shares = {name: each["over_time"]["failed_share"] for name, each in failed.items()}
    yield _several("Share of samples that failed", figures, shares, f"{count:,} failures", format_share)


def reasons(figures: Figures, longest: int) -> Iterator[str]:
    for each in figures["failures"][:40]:
        number = number_of(figures, each["function"])
        examples = []
        for example in each["examples"][: 3 if longest > 500 else 1 if longest else 0]:
            text = "\n\n".join(filter(None, (example["reason"], example["traceback"] if longest > 500 else None)))
            examples.append(
                f'<p class="small muted">{_place(figures, example)}, after {format_seconds(example["run_s"])}, {plural(example["attempts"], "attempt")}</p>'
                f"<pre>{escape(shortened(text, max(longest, 200)))}</pre>"
            )
        reason = escape(each["reason"][: max(longest, 60)])
        yield (
            f'<tr data-function="{number}"><th scope="row"><bdi>{escape(each["function"])}</bdi></th><td>{escape(each["status"])}</td>'
            f'<td class="number">{each["count"]:,}</td><td class="reason"><details><summary><bdi>{reason}</bdi></summary>'
            f"{''.join(examples)}</details></td></tr>"
        )


def _place(figures: Figures, row: dict[str, Any]) -> str:
    step = "" if row["step"] is None else f"{figures['axis']['kind']} {row['step']:,}, "
    return f"{step}rank {row['rank']}, sample {row['sample']}"


def latency_charts(figures: Figures) -> Iterator[str]:
    for number, name, each in functions(figures):
        for what, key in (("running", "run_s"), ("waiting", "queue_s")):
            if each[key]["p50"] is None:
                continue
            over = each["over_time"][key]
            series = [Series(label, mark, over[label], dash=dash) for label, mark, dash in _PERCENTILES]

            yield line_chart(
                f"{name}: {what}",
                figures["axis"],
                series,
                words=_percentiles(each[key]),
                read=partial(_percentiles_at, over),
                form=format_seconds,
                log=True,
                legend=True,
                function=number,
            )


def _percentiles(values: dict[str, float | None]) -> str:
    return ", ".join(f"{label} {format_seconds(values[label])}" for label, _, _ in _PERCENTILES)


def _percentiles_at(over: dict[str, list[float | None]], at: int) -> str:
    return _percentiles({label: values[at] for label, values in over.items()})


def slowest(figures: Figures) -> Iterator[str]:
    for row in figures["slowest"]:
        cells = (
            "–" if row["step"] is None else f"{row['step']:,}",
            str(row["rank"]),
            f"{row['sample']:,}",
            escape(row["status"]),
            format_seconds(row["run_s"]),
            format_seconds(row["queue_s"]),
            str(row["attempts"]),
            format_number(row["reward"]),
        )
        yield _row(row["function"], cells, number_of(figures, row["function"]))


def _row(name: str, cells: Sequence[str], number: int) -> str:
    listed = "".join(f'<td class="number">{cell}</td>' for cell in cells)
    return f'<tr data-function="{number}"><th scope="row"><bdi>{escape(name)}</bdi></th>{listed}</tr>'


def sample_list(figures: Figures, shown: Sequence[dict[str, Any]], longest: int) -> Iterator[str]:
    yield '<div id="sample-list">'
    last = None
    for row in shown:
        number = number_of(figures, row["function"])
        if row["function"] != last:
            yield f'<h3 data-function="{number}"><bdi>{escape(row["function"])}</bdi></h3>'
        last = row["function"]
        texts = "".join(
            f'<dt><bdi>{escape(name)}</bdi></dt><dd><pre dir="auto">{escape(shortened(text, longest))}</pre></dd>'
            for name, text in list(row["texts"].items())[:20]
        )
        title = f"{row['why']}: {format_number(row['reward']) if row['status'] == 'ok' else row['status']}"
        yield (
            f'<details class="sample" data-function="{number}"><summary><bdi>{escape(title)}</bdi>'
            f'<span class="muted small"> – {_place(figures, row)}</span></summary><dl>{texts}</dl></details>'
        )
    yield "</div>"


def rows(figures: Figures) -> Iterator[str]:
    """The table of functions, of all steps."""
    for number, name, each in functions(figures):
        none = each["status"].get("abstained", 0) + each["status"].get("skipped", 0)
        times = (each["run_s"]["p50"], each["run_s"]["p99"], each["run_total_s"] or None, each["queue_s"]["p50"])
        cells = (
            format_number(each["weight"]),
            f"{each['rows']:,}",
            format_number(each["mean"]),
            format_number(each["std"]),
            format_share(each["zero_spread_share"]),
            format_share(each["failed_share"]),
            format_share(ratio(none, each["rows"])),
            *map(format_seconds, times),
            format_money(each["cost"] or None),
        )
        yield _row(name, cells, number)

"""Charts as SVG: lines with bands, areas upon each other, and bars.

- A chart is a figure with a heading and a line in words; each of its points says its values when
  pointed at.
- Colours are classes of the page's style, since its policy allows no style of single elements.
- A value that is not known is a gap: no line and no area is drawn there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

__all__ = [
    "Series",
    "bar_chart",
    "format_money",
    "format_number",
    "format_seconds",
    "format_share",
    "line_chart",
    "mark_of",
    "where",
]

Values = Sequence[float | None]

_WIDTH: Final = 420
_LEFT: Final = 46
_RIGHT: Final = 412
_TOP: Final = 8
_PALETTE: Final = 8
_AXIS: Final = f'<line class="axis" x1="{_LEFT}" x2="{_RIGHT}" y1="{{y}}" y2="{{y}}"/>'
_NOTHING: Final = f'<text x="{_LEFT}" y="70">nothing to show</text>'


@dataclass(frozen=True)
class Series:
    """One line; with `low` an area from there up to the line, or to `high`.

    Attributes:
        mark: Class of its colour.
        kind: Class of the area: ``"band"`` around a line, or ``"area"`` upon others.
    """

    name: str
    mark: str
    values: Values
    low: Values | None = None
    high: Values | None = None
    kind: str = "band"
    dash: str = ""


def line_chart(
    title: str,
    axis: dict[str, Any],
    series: Sequence[Series],
    *,
    words: str,
    read: Callable[[int], str],
    form: Callable[[float | None], str],
    least: float | None = None,
    most: float | None = None,
    log: bool = False,
    marks: Sequence[int] = (),
    legend: bool = False,
    function: int | None = None,
) -> str:
    """A figure with lines over the axis.

    Args:
        axis: Of the report's figures.
        words: The chart in a sentence.
        read: The chart's text at a bucket.
        form: Shows a value.
        least: The scale reaches down to it, and `most` up to it.
        marks: Buckets at which a new version begins.
        function: The number of the function that it shows.
    """
    bottom = 128
    known = [
        value
        for each in series
        for values in (each.values, each.low, each.high)
        for value in values or ()
        if value is not None
    ]
    if not known:
        return _figure(title, words, _NOTHING, function, series if legend else ())
    low, high = _scale(known, least, most, log=log)
    xs = _places(axis)

    def y(value: float) -> float:
        if log:
            return bottom - (math.log10(max(value, low)) - math.log10(low)) / (math.log10(high) - math.log10(low)) * (
                bottom - _TOP
            )
        # Halves, since the ends may be as far apart as there are numbers.
        return bottom - (value / 2 - low / 2) / (high / 2 - low / 2) * (bottom - _TOP)

    parts = list(_grid([(y(tick), form(tick)) for tick in (_powers(low, high) if log else _ticks(low, high, 4))]))
    parts.append(_AXIS.format(y=bottom))
    parts += _axis_labels(axis, xs, bottom)
    for bucket in marks:
        parts.append(
            f'<line class="version" x1="{xs[bucket]:.1f}" x2="{xs[bucket]:.1f}" y1="{_TOP}" y2="{bottom}"><title>new version</title></line>'
        )
    for each in series:
        parts += _drawn(each, xs, y)
    edges = [_LEFT, *((one + other) / 2 for one, other in itertools.pairwise(xs)), _RIGHT]
    for bucket, (start, end) in enumerate(itertools.pairwise(edges)):
        text = escape(f"{where(axis, bucket)}: {read(bucket)}")
        parts.append(
            f'<rect class="hit" x="{start:.1f}" y="{_TOP}" width="{max(0.0, end - start):.1f}" height="{bottom - _TOP}"><title>{text}</title></rect>'
        )
    return _figure(title, words, "".join(parts), function, series if legend else ())


def bar_chart(title: str, histogram: dict[str, Any], *, words: str, mark: str, function: int) -> str:
    """A figure with the share of each bin of a histogram of the report's figures."""
    bottom, counts, total = 118, histogram["counts"], sum(histogram["counts"])
    if not total:
        return _figure(title, words, _NOTHING, function, ())
    highest = max(counts) / total
    edges, values = histogram.get("edges", []), histogram.get("values", [])
    names = list(map(format_number, values))
    names = names or [f"{format_number(start)} to {format_number(end)}" for start, end in itertools.pairwise(edges)]
    slot = (_RIGHT - _LEFT) / len(counts)
    gap = max(slot * 0.3, slot - 56) if values else min(1.0, slot * 0.1)
    ticks = _ticks(0.0, highest, 3)
    parts = list(_grid([(bottom - tick / highest * (bottom - _TOP), format_share(tick)) for tick in ticks]))
    skip = -(-len(names) // 7)
    for at, (name, count) in enumerate(zip(names, counts, strict=True)):
        height = max(1.0 if count else 0.0, count / total / highest * (bottom - _TOP))
        x = _LEFT + at * slot
        parts.append(
            f'<rect class="bar {mark}" x="{x + gap / 2:.1f}" y="{bottom - height:.1f}" width="{slot - gap:.1f}" height="{height:.1f}">'
            f"<title>{escape(name)}: {format_share(count / total)} ({count:,})</title></rect>"
        )
        if values and at % skip == 0:
            parts.append(f'<text x="{x + slot / 2:.1f}" y="{bottom + 15}" text-anchor="middle">{escape(name)}</text>')
    if edges:
        for place, anchor, edge in ((_LEFT, "start", edges[0]), (_RIGHT, "end", edges[-1])):
            parts.append(f'<text x="{place}" y="{bottom + 15}" text-anchor="{anchor}">{format_number(edge)}</text>')
    parts.append(_AXIS.format(y=bottom))
    return _figure(title, words, "".join(parts), function, ())


def where(axis: dict[str, Any], bucket: int) -> str:
    """A bucket in words."""
    first, last = axis["first"][bucket], axis["last"][bucket]
    return f"{axis['kind']} {first:,}" + ("" if first == last else f"–{last:,}")


def format_number(value: float | None) -> str:
    """A reward in few characters."""
    if value is None:
        return "–"
    if 10_000 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:.1e}" if value and (abs(value) < 0.001 or abs(value) >= 1e9) else f"{value:.3g}"


def format_share(value: float | None) -> str:
    """A share in per cent."""
    if value is None:
        return "–"
    percent = 100 * value
    if 0 < percent < 0.1:
        return "<0.1 %"
    if 99.9 < percent < 100:
        return ">99.9 %"
    return f"{percent:.1f} %".replace(".0 %", " %") if percent < 10 else f"{percent:.0f} %"


def format_money(value: float | None) -> str:
    """A cost."""
    return "–" if value is None else f"{value:,.5f}".rstrip("0") if 0 < abs(value) < 0.1 else f"{value:,.2f}"


def format_seconds(value: float | None) -> str:
    """A time, two digits."""
    if value is None:
        return "–"
    value = float(f"{value:.2g}") if value < 120 else value
    for unit, size in (("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)):
        if value < 1000 * size and (unit != "s" or value < 120):
            return f"{float(f'{value / size:.2g}'):g} {unit}"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def mark_of(number: int) -> str:
    """The class of a function's colour."""
    return f"c{number % _PALETTE}"


def _figure(title: str, words: str, drawing: str, function: int | None, legend: Sequence[Series]) -> str:
    of = "" if function is None else f' data-function="{function}"'
    heading = f"<h3{'' if function is None else f' class={mark_of(function)}'}><bdi>{escape(title)}</bdi></h3>"
    keys = "".join(f'<li><i class="{each.mark}"></i><bdi>{escape(each.name)}</bdi></li>' for each in legend)
    shown = f'<ul class="legend">{keys}</ul>' if keys else ""
    label = escape(f"{title}. {words}", quote=True)
    return (
        f'<figure{of}><figcaption>{heading}</figcaption>{shown}<p class="readout">{escape(words)}</p>'
        f'<svg class="chart" viewBox="0 0 {_WIDTH} 150" role="img" aria-label="{label}">{drawing}</svg></figure>'
    )


def _grid(ticks: Sequence[tuple[float, str]]) -> Iterator[str]:
    """Horizontal lines at these heights, with their labels."""
    for y, label in ticks:
        yield f'<line class="grid" x1="{_LEFT}" x2="{_RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 5}" y="{y + 3.5:.1f}" text-anchor="end">{escape(label)}</text>'


def _scale(known: Sequence[float], least: float | None, most: float | None, *, log: bool) -> tuple[float, float]:
    low, high = min(known), max(known)
    if log:
        low = 10.0 ** math.floor(math.log10(max(low, 1e-6)))
        return low, 10.0 ** math.ceil(math.log10(max(high, low * 10)))
    low, high = min(low, low if least is None else least), max(high, high if most is None else most)
    if high == low:
        room = abs(high) * 0.1 or 1.0
        return low - (0.0 if low == least else room), high + room
    room = high * 0.04 - low * 0.04
    return low - (0.0 if low == least else room), high + (0.0 if high == most else room)


def _ticks(low: float, high: float, wanted: int) -> list[float]:
    """Round numbers between the ends, about as many as wanted."""
    raw = high / wanted - low / wanted
    if not 0 < raw < float("inf"):
        return [low]
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(each * power for each in (1, 2, 2.5, 5, 10) if each * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [float(f"{at * step:.12g}") for at in range(first, first + wanted + 2) if at * step <= high + step * 1e-9]


def _powers(low: float, high: float) -> list[float]:
    powers = range(round(math.log10(low)), round(math.log10(high)) + 1)
    return [10.0**power for power in powers[:: -(-len(powers) // 5)]]


def _places(axis: dict[str, Any]) -> list[float]:
    middles = [(first + last) / 2 for first, last in zip(axis["first"], axis["last"], strict=True)]
    span = middles[-1] - middles[0]
    if not span:
        return [(_LEFT + _RIGHT) / 2] * len(middles)
    return [_LEFT + (middle - middles[0]) / span * (_RIGHT - _LEFT) for middle in middles]


def _axis_labels(axis: dict[str, Any], xs: Sequence[float], bottom: float) -> Iterator[str]:
    """Steps under the axis, as many as there is room for."""
    y, end = bottom + 15, float("-inf")
    yield f'<text x="{_LEFT - 5}" y="{y}" text-anchor="end">{escape(axis["kind"])}</text>'
    for at in range(0, len(xs), max(1, -(-len(xs) // 5))):
        text = f"{axis['first'][at]:,}"
        width = 6.5 * len(text)
        start = min(max(xs[at] - width / 2, _LEFT), _RIGHT - width)
        if start > end:
            yield f'<text x="{start:.1f}" y="{y}">{text}</text>'
            end = start + width + 10


def _drawn(each: Series, xs: Sequence[float], y: Callable[[float], float]) -> Iterator[str]:
    def path(values: Values, places: Sequence[int]) -> str:
        return "L".join(f"{xs[at]:.1f} {y(_there(values, at)):.1f}" for at in places)

    for run in _runs(each.values):
        if each.low is not None and any(_there(each.high or each.values, at) > _there(each.low, at) for at in run):
            over, under = path(each.high or each.values, run), path(each.low, run[::-1])
            yield f'<path class="{each.kind} {each.mark}" d="M{over}L{under}Z"/>'
            if each.kind == "area":
                continue
        elif each.kind == "area":
            continue  # the share of nothing
        if len(run) == 1:
            yield f'<circle class="dot {each.mark}" cx="{xs[run[0]]:.1f}" cy="{y(_there(each.values, run[0])):.1f}" r="2.5"/>'
        else:
            dash = f' stroke-dasharray="{each.dash}"' if each.dash else ""
            yield f'<path class="line {each.mark}" d="M{path(each.values, run)}"{dash}/>'


def _runs(values: Values) -> list[list[int]]:
    """Returns runs of values without a gap between them."""
    found: list[list[int]] = []
    for at, value in enumerate(values):
        if value is not None:
            if found and found[-1][-1] == at - 1:
                found[-1].append(at)
            else:
                found.append([at])
    return found


def _there(values: Values, at: int) -> float:
    return values[at] or 0.0

"""The picture of a run with a real model, as SVG: its rewards, and the seconds of a step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 420, 260, 44, 40, 215
COLOURS = ["#2563eb", "#d97706", "#059669", "#1f2430"]


def draw(path: Path, rewards: dict[str, Sequence[float]], seconds: dict[str, Sequence[float]]) -> None:
    """Writes the picture: a line for each reward, and areas upon each other for the seconds."""
    total = [0.0] * len(next(iter(seconds.values())))
    areas = {}
    for name, values in seconds.items():
        lower, total = total, [below + value for below, value in zip(total, values, strict=True)]
        areas[name] = [*enumerate(total), *reversed(list(enumerate(lower)))]
    lines = {name: list(enumerate(values)) for name, values in rewards.items()}
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{2 * WIDTH}" height="{HEIGHT}" fill="white"/>',
        *_panel("mean reward of a step", lines, len(total), max(max(values) for values in rewards.values())),
        f'<g transform="translate({WIDTH} 0)">',
        *_panel("seconds of a step", areas, len(total), max(total), filled=True),
        "</g></svg>",
    ]
    path.write_text("\n".join(drawn) + "\n", encoding="utf-8")


def _panel(
    title: str, shapes: dict[str, list[tuple[int, float]]], steps: int, top: float, *, filled: bool = False
) -> Iterator[str]:
    magnitude = 10 ** math.floor(math.log10(top / 4)) if top else 1
    top = 4 * magnitude * next(tick for tick in (1, 2, 2.5, 5, 10) if 4 * magnitude * tick >= top)
    yield f'<text x="{LEFT}" y="18" font-size="14">{title}</text>'
    for quarter in range(5):
        y = BOTTOM - (BOTTOM - TOP) * quarter / 4
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - 10}" stroke="#e6e8ec"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{top * quarter / 4:.3g}</text>'
    yield f'<text x="{LEFT}" y="{BOTTOM + 16}">1</text>'
    yield f'<text x="{WIDTH - 10}" y="{BOTTOM + 16}" text-anchor="end">step {steps}</text>'
    for number, (name, points) in enumerate(shapes.items()):
        colour, places = COLOURS[number], " ".join(_place(*point, steps, top) for point in points)
        look = f'fill="{colour}"' if filled else f'fill="none" stroke="{colour}" stroke-width="1.5"'
        yield f'<{"polygon" if filled else "polyline"} points="{places}" {look}/>'
        yield f'<text x="{LEFT + 90 * number}" y="{HEIGHT - 10}" fill="{colour}">{name}</text>'


def _place(step: int, value: float, steps: int, top: float) -> str:
    x = LEFT + (WIDTH - 10 - LEFT) * step / max(1, steps - 1)
    return f"{x:.1f},{BOTTOM - (BOTTOM - TOP) * value / top:.1f}"

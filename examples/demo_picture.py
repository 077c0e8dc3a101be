"""The picture of the demo: how the rewards rise, and where the time goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

SIZE = (1200, 500)
SCALE = 2  # drawn larger, then shrunk: Pillow can't draw smooth lines
INK, GREY, PALE = "#1f2430", "#8a8f99", "#e6e8ec"
COLOURS = ["#2563eb", "#d97706", "#059669", "#9333ea"]


def draw(path: Path, rewards: dict[str, Sequence[float]], total: Sequence[float], times: dict[str, float]) -> None:
    """Write the picture.

    Args:
        rewards: Mean reward of each function, step by step.
        total: Mean weighted sum, step by step.
        times: Bars of the right half: label and seconds.
    """
    image = Image.new("RGB", (SIZE[0] * SCALE, SIZE[1] * SCALE), "white")
    pen = ImageDraw.Draw(image)
    curves = dict(zip(rewards, COLOURS, strict=False))
    top = max([*total, *(value for values in rewards.values() for value in values if value == value)])
    chart = _Chart(pen, (70, 60, 790, 430), steps=len(total), top=max(top, 1.0))
    chart.frame("mean reward")
    for name, colour in curves.items():
        chart.curve(_smooth(rewards[name]), colour, 2)
    chart.dots(total, GREY)
    chart.curve(_smooth(total), INK, 4)
    _bars(pen, (850, 60, 1170, 430), times)
    _legend(pen, (850, 350), {**curves, "weighted sum": INK})
    image.resize(SIZE, Image.Resampling.LANCZOS).save(path)


class _Chart:
    """Axes from step 1 and reward 0, and their curves."""

    def __init__(self, pen: ImageDraw.ImageDraw, box: tuple[int, int, int, int], *, steps: int, top: float) -> None:
        self._pen, self._box, self._steps = pen, box, steps
        self._top = -(-top * 4 // 1) / 4  # the next quarter

    def frame(self, title: str) -> None:
        left, upper, right, lower = self._box
        _text(self._pen, (left, upper - 38), title, 18)
        quarters = int(self._top * 4)
        for quarter in range(0, quarters + 1, 1 if quarters <= 8 else 2):
            y = self._y(quarter / 4)
            _line(self._pen, [(left, y), (right, y)], PALE, 1)
            _text(self._pen, (left - 12, y), f"{quarter / 4:g}", 13, GREY, "rm")
        for step in sorted({1, *(self._steps * part // 4 for part in (1, 2, 3, 4))}):
            _text(self._pen, (self._x(step), lower + 18), str(step), 13, GREY, "mm")
        _text(self._pen, ((left + right) / 2, lower + 42), "step", 13, GREY, "mm")

    def curve(self, values: Sequence[float], colour: str, width: int) -> None:
        points = [(self._x(step), self._y(value)) for step, value in enumerate(values, 1) if value == value]
        if len(points) > 1:
            _line(self._pen, points, colour, width)

    def dots(self, values: Sequence[float], colour: str) -> None:
        for step, value in enumerate(values, 1):
            x, y = self._x(step) * SCALE, self._y(value) * SCALE
            self._pen.ellipse((x - 3, y - 3, x + 3, y + 3), fill=colour)

    def _x(self, step: float) -> float:
        left, _, right, _ = self._box
        return left + (right - left) * (step - 1) / max(1, self._steps - 1)

    def _y(self, value: float) -> float:
        _, upper, _, lower = self._box
        return lower - (lower - upper) * value / self._top


def _bars(pen: ImageDraw.ImageDraw, box: tuple[int, int, int, int], times: dict[str, float]) -> None:
    left, upper, right, _ = box
    _text(pen, (left, upper - 38), "seconds in rewards", 18)
    longest = max(times.values()) or 1.0
    y = upper
    for index, (name, seconds) in enumerate(times.items()):
        _text(pen, (left, y), name, 14)
        width = max(2.0, (right - left - 70) * seconds / longest)
        bar = (left * SCALE, (y + 24) * SCALE, (left + width) * SCALE, (y + 52) * SCALE)
        pen.rectangle(bar, fill=COLOURS[0] if index == 0 else "#b8bec9")
        _text(pen, (left + width + 10, y + 38), f"{seconds:.1f} s", 14, anchor="lm")
        y += 92


def _legend(pen: ImageDraw.ImageDraw, at: tuple[float, float], curves: dict[str, str]) -> None:
    x, y = at
    for name, colour in curves.items():
        _line(pen, [(x, y), (x + 26, y)], colour, 4)
        _text(pen, (x + 36, y), name, 14, anchor="lm")
        y += 20


def _smooth(values: Sequence[float], window: int = 5) -> list[float]:
    """Mean of each value and up to four before it."""
    return [sum(part) / len(part) for end in range(1, len(values) + 1) if (part := values[max(0, end - window) : end])]


def _line(pen: ImageDraw.ImageDraw, points: Sequence[tuple[float, float]], colour: str, width: int) -> None:
    pen.line([(x * SCALE, y * SCALE) for x, y in points], fill=colour, width=width * SCALE, joint="curve")


def _text(
    pen: ImageDraw.ImageDraw, at: tuple[float, float], text: str, size: int, colour: str = INK, anchor: str = "la"
) -> None:
    font = ImageFont.load_default(size * SCALE)
    pen.text((at[0] * SCALE, at[1] * SCALE), text, fill=colour, font=font, anchor=anchor)

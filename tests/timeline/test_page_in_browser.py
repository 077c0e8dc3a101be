"""The page of a timeline in headless Chromium: what is drawn where, mouse, touch and keys, both
schemes and widths, and that it obeys nothing that a trace holds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from guerdon.cli import main
from tests.browser import OpenPage, contrast
from tests.timeline.perfetto_files import parse
from tests.timeline.test_encoding import OfficialTrace
from tests.timeline.test_page import calls_of, first_time

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

# All bars as the script has them, and what was drawn at each scroll of the rows.
BARS = """layout.rows.flatMap(({ row }) => flat(row).map(([depth, at]) => {
    const one = bar(row, depth, at);
    return [row.track, one.depth, one.from, one.open ? null : one.to, one.name, one.status, one.sample];
}))"""
PAINTED = """(() => {
    const found = new Map();
    for (let top = 0; top <= layout.height; top += 60) {
        port.scrollTop = top;
        drawAll();
        for (const [row, depth, at, x, wide] of painted) found.set(`${row} ${depth} ${at}`, [row, depth, at, x, wide]);
    }
    port.scrollTop = 0;
    drawAll();
    return [...found.values()];
})()"""


def times_in_view(page: Any) -> tuple[float, float]:
    page.wait_for_timeout(60)  # drawn with the next frame
    found: tuple[float, float] = tuple(page.evaluate("[view.from, view.to]"))
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_every_bar_is_drawn_where_it_ran(
    open_page: OpenPage, example: Path, example_page: Path, width: int, scheme: str
) -> None:
    page = open_page(example_page, width=width, scheme=scheme)
    file = parse(example)
    start = first_time(file)
    there = [
        (one.track, one.depth, one.begin - start, one.end and one.end - start, one.name, one.values.get("status", ""))
        for one in file.slices
    ]
    bars = page.evaluate(BARS)
    assert sorted(map(repr, there)) == sorted(repr(tuple(bar[:6])) for bar in bars)
    drawn = page.evaluate(PAINTED)
    left, wide, span = page.evaluate("[gutter(), width, data.span]")
    scale = (wide - left) / span
    rows = page.evaluate("layout.rows.map(({ row }) => row.levels.map((of) => [[...of.from], [...of.to]]))")
    missing = {
        (row, depth, at)
        for row, levels in enumerate(rows)
        for depth, (begins, ends) in enumerate(levels)
        for at, (begin, end) in enumerate(zip(begins, ends, strict=True))
        if (end - begin) * scale >= 1
    }
    for row, depth, at, x, bar_width in drawn:
        begin, end = (times[at] for times in rows[row][depth])
        missing.discard((row, depth, at))
        assert abs(x - left - begin * scale) <= 1.01
        assert abs(bar_width - max(1.0, (end - begin) * scale)) <= 1.01
    assert missing == set()
    assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_failures_have_the_colour_of_their_status_and_a_sign(
    open_page: OpenPage, example_page: Path, scheme: str
) -> None:
    page = open_page(example_page, scheme=scheme)
    for status in ("timeout", "error", "crashed", "ok"):
        page.evaluate(
            f"""(() => {{
                for (const {{ row }} of layout.rows) for (const [depth, at] of flat(row)) {{
                    const one = bar(row, depth, at);
                    if (one.status === "{status}") {{ choose(one); zoomTo(one); drawAll(); return; }}
                }}
            }})()"""
        )
        colour, ground = page.evaluate(
            f"""(() => {{
                drawAll();
                const at = layout.rows[view.chosen.row.number];
                const scale = devicePixelRatio;
                const x = across(view.chosen.from + (view.chosen.to - view.chosen.from) * 0.75);
                const y = at.y - port.scrollTop + at.height / 2;
                const copy = document.createElement("canvas").getContext("2d", {{ willReadFrequently: true }});
                copy.drawImage(canvas, -Math.round(x * scale), -Math.round(y * scale));
                copy.fillStyle = ink["{status}"];
                copy.fillRect(1, 0, 1, 1);
                return [0, 1].map((at) => [...copy.getImageData(at, 0, 1, 1).data]);
            }})()"""
        )
        assert colour == ground, status


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_schemes(open_page: OpenPage, example_page: Path, scheme: str) -> None:
    page = open_page(example_page, scheme=scheme)
    page.locator("#trouble").click()
    for selector in (
        "body",
        ".muted",
        ".legend li",
        ".labels .row",
        ".labels .chip",
        ".readout dt",
        ".readout .status",
        "td",
    ):
        assert contrast(page, selector) >= 4.5, selector
    # Texts upon bars, of which each status has its own ground.
    page.evaluate(
        """(() => {
            for (const status of Object.keys(fills)) {
                const made = el("span", { id: `of-${status}` }, status);
                [made.style.background, made.style.color] = colours(status);
                document.body.append(made);
            }
            const frame = el("span", { id: "of-frame" }, "frame");
            [frame.style.background, frame.style.color] = colours("");
            document.body.append(frame);
        })()"""
    )
    for status in ("ok", "abstained", "skipped", "running", "cancelled", "timeout", "error", "crashed", "frame"):
        assert contrast(page, f"#of-{status}") >= 4.5, status


def test_keys_walk_from_bar_to_bar_and_row_to_row(open_page: OpenPage, example_page: Path) -> None:
    page = open_page(example_page)
    page.locator("#bars").focus()
    readout, chosen = page.locator("#readout"), "[view.chosen.row.number, view.chosen.depth, view.chosen.at]"
    assert readout.inner_text().startswith("4.") or "in view" in readout.inner_text()
    page.keyboard.press("ArrowRight")
    assert readout.inner_text().startswith("batch ")
    assert "after" not in readout.inner_text()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    assert page.evaluate(chosen) == [0, 0, 0]
    assert page.locator("#announcement").inner_text().startswith("batch 1, starts ")
    page.keyboard.press("End")
    assert readout.inner_text().startswith("batch 3")
    assert "step\n42" in readout.inner_text()
    rows = page.evaluate("layout.rows.length")
    seen = set()
    for _ in range(rows + 3):
        seen.add(page.evaluate("view.chosen.row.number"))
        box = page.evaluate(
            "(() => { const each = layout.rows[view.chosen.row.number]; return [each.y - port.scrollTop, port.clientHeight]; })()"
        )
        assert -1 <= box[0] < box[1], "the chosen row is in view"
        page.keyboard.press("ArrowDown")
    assert seen == set(range(rows))
    page.keyboard.press("ArrowUp")
    assert page.evaluate("view.chosen.row.number") == rows - 2
    page.keyboard.press("Escape")
    assert page.evaluate("view.chosen") is None
    assert "in view" in readout.inner_text()


def test_keys_zoom_move_and_find_trouble(open_page: OpenPage, example_page: Path) -> None:
    page = open_page(example_page)
    page.locator("#bars").focus()
    whole = times_in_view(page)
    page.keyboard.press("+")
    half = times_in_view(page)
    assert half[1] - half[0] == pytest.approx((whole[1] - whole[0]) / 2)
    page.keyboard.press("d")
    moved = times_in_view(page)
    assert moved[0] > half[0]
    assert moved[1] - moved[0] == pytest.approx(half[1] - half[0])
    page.keyboard.press("w")
    page.keyboard.press("s")
    page.keyboard.press("a")
    assert times_in_view(page) == pytest.approx(half, rel=1e-6, abs=10)
    for _ in range(60):
        page.keyboard.press("+")
    closest = times_in_view(page)
    assert closest[1] - closest[0] == pytest.approx(1000), "a microsecond"
    page.keyboard.press("0")
    assert times_in_view(page) == whole
    seen = []
    count = page.evaluate("troubles.length")
    for _ in range(count + 1):
        page.keyboard.press("n")
        seen.append(page.locator("#readout").inner_text())
    assert seen[0] == seen[-1], "round and round"
    statuses = {re.split(r"\s+", each)[1] for each in seen}
    assert {"timeout", "error", "crashed"} <= statuses
    assert any(each.startswith("worker killed") and "out of time" in each for each in seen)
    assert any("503 Service Unavailable" in each and "attempt\n1 of 2" in each for each in seen)
    assert page.locator("#trouble").inner_text() == f"Trouble 1 of {count} ›"
    page.keyboard.press("Shift+N")
    assert page.locator("#readout").inner_text() == seen[count - 1]
    page.keyboard.press("Shift+N")
    page.keyboard.press("Enter")
    assert times_in_view(page) != whole


def test_the_mouse_reads_chooses_moves_and_zooms(open_page: OpenPage, example_page: Path) -> None:
    page = open_page(example_page)
    readout = page.locator("#readout")
    # The longest call of a worker, brought near: how wide it is in the whole run is not known.
    place = page.evaluate(
        """(() => {
            const workers = layout.rows.filter(({ row }) => row.label.startsWith("worker"));
            const calls = workers.flatMap((each) => flat(each.row).map(([depth, at]) => ({ each, one: bar(each.row, depth, at) })));
            const took = ({ one }) => (one.name === "unit_tests" && one.status === "ok" ? one.to - one.from : -1);
            const { each, one } = calls.reduce((best, next) => (took(next) > took(best) ? next : best));
            port.scrollTop = Math.max(0, each.y - 100);
            zoomTo(one);
            drawAll();
            const box = canvas.getBoundingClientRect();
            const middle = (one.from + one.to) / 2;
            return [box.left + across(middle), box.top + each.y - port.scrollTop + each.height / 2, one.at];
        })()"""
    )
    page.mouse.move(place[0], place[1])
    assert readout.inner_text().startswith("unit_tests")
    assert "waited" in readout.inner_text()
    page.mouse.click(place[0], place[1])
    assert page.evaluate("view.chosen.at") == place[2]
    page.mouse.move(place[0] + 300, place[1] + 60)
    assert readout.inner_text().startswith("unit_tests"), "what was chosen stays"
    page.locator("#whole").click()
    whole = times_in_view(page)
    page.mouse.move(place[0], place[1])
    page.keyboard.down("Control")
    page.mouse.wheel(0, -240)
    page.keyboard.up("Control")
    # A turn of the wheel is not waited for: it comes when the page has time.
    page.wait_for_function(f"view.to - view.from < {(whole[1] - whole[0]) / 1.5}")
    near = times_in_view(page)
    page.mouse.move(800, place[1])
    page.mouse.down()
    page.mouse.move(500, place[1], steps=4)
    page.mouse.up()
    moved = times_in_view(page)
    assert moved[0] > near[0]
    assert page.evaluate("view.chosen.at") == place[2], "a drag is no click"
    page.locator("#whole").click()
    assert times_in_view(page) == whole
    box = page.locator("#overview").bounding_box()
    page.locator("#overview").scroll_into_view_if_needed()
    box = page.locator("#overview").bounding_box()
    assert box is not None
    left = page.evaluate("gutter()")
    middle = box["x"] + left + (box["width"] - left) / 2
    page.mouse.move(middle, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(middle + (box["width"] - left) / 4, box["y"] + 20, steps=4)
    page.mouse.up()
    part = times_in_view(page)
    assert part == pytest.approx((whole[1] / 2, whole[1] * 3 / 4), rel=0.02)


def test_buttons_and_choices_work(open_page: OpenPage, example_page: Path) -> None:
    page = open_page(example_page)
    whole = times_in_view(page)
    page.get_by_role("button", name="Zoom in").click()
    assert times_in_view(page) != whole
    page.get_by_role("button", name="Zoom out").click()
    assert times_in_view(page) == pytest.approx(whole, abs=1)
    assert page.locator("#batch option").all_inner_texts() == [
        "all",
        "batch 1, step 40",
        "batch 2, step 41",
        "batch 3, step 42",
    ]
    page.locator("#batch").select_option("1")
    batch = times_in_view(page)
    assert batch[1] - batch[0] < (whole[1] - whole[0]) * 0.8
    assert page.locator("#readout").inner_text().startswith("batch 2")
    before = page.locator("#legend").inner_text()
    assert "timeout" in before
    page.locator("#colour").select_option("function")
    after = page.locator("#legend").inner_text()
    assert {"math_verify", "unit_tests", "judge", "timeout"} <= set(after.split("\n"))
    page.locator("#batch").select_option("")
    assert times_in_view(page) == whole


def test_everything_is_reached_by_tab_and_its_focus_is_seen(open_page: OpenPage, example_page: Path) -> None:
    page = open_page(example_page)
    seen = []
    for _ in range(14):
        page.keyboard.press("Tab")
        found = page.evaluate(
            "[document.activeElement.id || document.activeElement.className, getComputedStyle(document.activeElement).outlineStyle]"
        )
        assert found[1] != "none" or not found[0], found
        seen.append(found[0])
    assert seen[:3] == ["skip", "theme", "zoom-out"]
    assert {"zoom-in", "whole", "batch", "colour", "trouble", "bars", "scroll"} <= set(seen)
    page.keyboard.press("Shift+Tab")


def test_the_switch_of_the_scheme_changes_what_is_drawn(open_page: OpenPage, example_page: Path) -> None:
    page = open_page(example_page, scheme="light")
    light = page.evaluate("ink.ok")
    button = page.get_by_role("button", name="Theme")
    button.click()
    button.click()
    assert button.inner_text() == "Theme: dark"
    assert page.evaluate("ink.ok") != light
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"


def test_a_finger_moves_and_two_zoom(open_page: OpenPage, example_page: Path) -> None:
    page = open_page(example_page, width=360)
    page.evaluate("zoom(0.5); drawAll(); canvas.setPointerCapture = () => {}")
    before = times_in_view(page)
    point = """([id, type, x]) => {
        const box = canvas.getBoundingClientRect();
        canvas.dispatchEvent(new PointerEvent(type, { pointerId: id, pointerType: "touch", clientX: box.left + x, clientY: box.top + 40 }));
    }"""
    for event in ([1, "pointerdown", 200], [1, "pointermove", 190], [1, "pointermove", 150], [1, "pointerup", 150]):
        page.evaluate(point, event)
    moved = times_in_view(page)
    assert moved[0] > before[0]
    for event in ([1, "pointerdown", 180], [2, "pointerdown", 220], [1, "pointermove", 175], [2, "pointermove", 300]):
        page.evaluate(point, event)
    assert times_in_view(page)[1] - times_in_view(page)[0] < (moved[1] - moved[0]) * 0.7


def test_a_million_events_are_drawn_merged(open_page: OpenPage, tmp_path: Path) -> None:
    trace, path = tmp_path / "run.pftrace", tmp_path / "page.html"
    trace.write_bytes(calls_of(60_000, rows=50).trace.SerializeToString())
    assert main(["trace", str(trace), "--html", str(path)]) == 0
    page = open_page(path)
    assert "slices are" in page.locator(".note").inner_text()
    assert (
        page.evaluate(
            "layout.rows.reduce((sum, { row }) => sum + flat(row).reduce((all, [depth, at]) => all + (bar(row, depth, at).count || 1), 0), 0)"
        )
        == 60_000
    )
    assert (
        page.evaluate("(() => { const begun = performance.now(); drawAll(); return performance.now() - begun; })()")
        < 2000
    )
    page.locator("#bars").focus()
    page.keyboard.press("ArrowRight")
    assert "drawn together" in page.locator("#readout").inner_text()
    page.keyboard.press("Enter")
    assert times_in_view(page)[1] < page.evaluate("data.span")


def test_no_text_of_a_trace_is_obeyed(open_page: OpenPage, tmp_path: Path) -> None:
    names = [
        "</script><img src=x onerror=window.hacked=1>",
        '"><svg onload=window.hacked=2>',
        "$title ${x} \u202ee",
        "__proto__",
    ]
    official = OfficialTrace()
    start = 10**15
    for number, name in enumerate(names):
        official.describe(2 * number + 10, f"{name} (thread)", 1)
        official.describe(2 * number + 11, f"calls {name}", 2 * number + 10)
        values = {"status": "error", "reason": f"<b>{name}</b>", "batch": number, "sample": 1, "call": name}
        official.event(start, 1, 2 * number + 11, (name, values, [1]))
        official.event(start + 100, 3, 2 * number + 11, (f"killed {name}", {"reason": name}, []))
        official.event(start + 10**6, 2, 2 * number + 11)
    trace, path = tmp_path / "run.pftrace", tmp_path / "page.html"
    trace.write_bytes(official.trace.SerializeToString())
    assert main(["trace", str(trace), "--html", str(path)]) == 0
    page = open_page(path)
    page.locator("#colour").select_option("function")
    page.locator("#bars").focus()
    read = []
    for _ in range(2 * len(names)):
        page.keyboard.press("n")
        read.append(page.locator("#readout").inner_text())
    assert page.evaluate("window.hacked") is None
    assert page.locator("img, svg, main b").count() == 0
    assert any("<b></script><img src=x onerror=window.hacked=1></b>" in each for each in read)
    assert any("$title ${x} ⟨U+202E⟩e" in each for each in read)
    assert "onerror=window.hacked=1" in page.locator("#labels").inner_text()


@pytest.mark.parametrize("kind", ["nothing", "one moment", "running", "two processes"])
def test_odd_traces_are_drawn(open_page: OpenPage, tmp_path: Path, kind: str) -> None:
    official = OfficialTrace()
    official.describe(2, "workers", 1)
    official.describe(3, "worker 0", 2)
    if kind == "one moment":
        official.event(10**15, 3, 3, ("worker ready", {}, []))
    if kind in ("running", "two processes"):
        official.event(10**15, 1, 3, ("reward", {"status": "running", "sample": 3, "attempt": 2}, []))
        official.event(10**15 + 10**9, 3, 3, ("worker ready", {}, []))
    trace, path = tmp_path / "run.pftrace", tmp_path / "page.html"
    trace.write_bytes(official.trace.SerializeToString())
    files = [str(trace)] * (2 if kind == "two processes" else 1)
    assert main(["trace", *files, "--html", str(path)]) == 0
    page = open_page(path, width=360)
    page.locator("#bars").focus()
    for key in ("ArrowRight", "ArrowDown", "Enter", "+", "-", "n", "Home", "End", "0", "d", "Escape"):
        page.keyboard.press(key)
    page.evaluate("drawAll()")
    if kind == "running":
        page.keyboard.press("ArrowRight")
        assert "not ended" in page.locator("#readout").inner_text()
    if kind == "two processes":
        assert page.locator(".labels .chip", has_text="process").count() == 2
    assert not re.search("NaN|undefined|Infinity", page.locator("main").inner_html())
    assert json.loads(page.locator("#data").inner_text())["unit"] == 1

"""The page of a report in headless Chromium: it works, by keyboard and at both widths, and obeys
nothing that a journal holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from guerdon._insight.journal.parts import find_parts
from guerdon._insight.report.aggregates import aggregates
from guerdon._insight.report.html import render_pair
from guerdon._insight.report.summary import summarise
from tests.browser import OpenPage, contrast
from tests.journal_files import row, table, training, write_journal, write_part
from tests.report.conftest import make_page

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

SECTIONS = ["summary", "table", "rewards", "distributions", "groups"]
SECTIONS += ["failures", "latency", "samples", "about"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_every_section_is_drawn_fits_and_can_be_read(
    open_page: OpenPage, report: Path, width: int, scheme: str
) -> None:
    page = open_page(report, width=width, scheme=scheme)
    assert (
        page.evaluate(
            "[...document.querySelectorAll('main section')].filter((each) => !each.hidden).map((each) => each.id)"
        )
        == SECTIONS
    )
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator("#reward-charts figure").count() == 6
    assert page.locator("#reward-charts svg path.line").count() == 6
    assert page.locator("#reward-charts svg path.band").count() == 5  # one function is constant
    assert page.locator("svg.chart").count() > 25
    # Nothing is drawn to the left or right of its chart.
    outside = page.evaluate("""[...document.querySelectorAll("svg.chart")].filter((chart) => {
        const box = chart.getBoundingClientRect();
        return [...chart.querySelectorAll("text, path, rect")].some((each) => {
            const inner = each.getBoundingClientRect();
            return inner.left < box.left - 6 || inner.right > box.right + 6;
        });
    }).map((chart) => chart.getAttribute("aria-label"))""")
    assert outside == []
    for selector in (
        *("body", ".muted", ".readout", "nav a", "td", "th", "summary"),
        ".findings .warning",
        ".findings .kind",
    ):
        assert contrast(page, selector) >= 4.5, selector
    for number in range(5):
        assert contrast(page, f"#reward-charts figure:nth-child({number + 2}) h3") >= 3, number


def test_the_filter_of_functions_changes_what_is_shown(open_page: OpenPage, report: Path) -> None:
    page = open_page(report)
    page.get_by_role("checkbox", name="quality").uncheck()
    expect(page.locator("#reward-charts figure:visible")).to_have_count(5)
    assert "quality" not in page.locator("#function-table").inner_text()
    assert "timeout" not in page.locator("#reasons").inner_text()
    assert page.locator("#function-table tbody tr:visible").count() == 4
    page.get_by_role("button", name="Show all").click()
    expect(page.locator("#reward-charts figure:visible")).to_have_count(6)


def test_charts_are_there_without_a_script(report: Path) -> None:
    html = report.read_text(encoding="utf-8")
    without = re.sub(r"<script.*?</script>", "", html, flags=re.S)
    assert without.count('<svg class="chart"') > 25
    assert "<title>step 0: 0.5" in without, "a point says its values"


def test_shares_of_nothing_have_no_area(tmp_path: Path) -> None:
    rows = [
        row(batch=step, step=step, sample=sample, value=float(sample % 2)) for step in range(9) for sample in range(4)
    ]
    html = make_page(write_journal(tmp_path / "journal", rows), tmp_path / "report.html").read_text(encoding="utf-8")
    groups = html[html.index('id="group-charts"') :].partition("</section>")[0]
    assert 'class="area' not in groups


def test_everything_is_reached_by_tab_and_its_focus_is_seen(open_page: OpenPage, report: Path) -> None:
    page = open_page(report)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().top") >= 0
    count = page.evaluate("document.querySelectorAll('a, button, input, summary, [tabindex=\"0\"]').length")
    seen = ["a"]
    for _ in range(count - 1):
        page.keyboard.press("Tab")
        name, outline, inside = page.evaluate("""(() => {
            const style = getComputedStyle(document.activeElement);
            const box = document.activeElement.getBoundingClientRect();
            return [document.activeElement.tagName.toLowerCase(), style.outlineStyle, box.bottom > 0 && box.top < innerHeight];
        })()""")
        assert outline != "none", name
        assert inside, name
        seen.append(name)
    assert {"a", "button", "input", "summary", "div"} <= set(seen)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") in ("BODY", "A")


def test_the_skip_link_leads_past_the_navigation(open_page: OpenPage, report: Path) -> None:
    page = open_page(report)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('.findings') !== null")


def test_no_text_of_a_journal_is_obeyed(open_page: OpenPage, report: Path) -> None:
    page = open_page(report)
    for name in page.locator("#sample-list details").all():
        name.locator("summary").click()
    shown = page.locator("#sample-list").inner_text()
    assert "</script><script>window.hacked = 1</script>" in shown
    assert "onerror='window.hacked = 2'" in shown
    assert r"\u202e" in shown
    assert r"\x00" in shown
    assert "\u202e" not in shown
    assert page.evaluate("window.hacked") is None
    assert page.locator("#sample-list img, #sample-list a, #sample-list style, #sample-list base").count() == 0
    assert "<b>no number</b>" in page.locator("#reasons").inner_text()
    assert page.locator("#reasons b").count() == 0


def test_names_of_a_journal_are_not_obeyed(open_page: OpenPage, tmp_path: Path) -> None:
    names = [
        "</script><img src=x onerror=window.hacked=1>",
        '"><svg onload=window.hacked=2>',
        "$title ${x} \u202ee",
        "--c0:red;}",
    ]
    rows = [
        row(
            run="<b>run</b>\x00",
            function=name,
            sample=sample,
            batch=sample // 4,
            step=sample // 4,
            value=float(sample % 3),
            version="<i>v</i>",
            extra={"<u>one</u>": 1.0, "two": 2.0} if sample % 3 == 1 else None,
        )
        for sample in range(40)
        for name in names
    ]
    write_part(tmp_path / "<b>journal", table(rows), run="run")
    page = open_page(make_page(tmp_path / "<b>journal", tmp_path / "report.html"))
    assert page.evaluate("window.hacked") is None
    assert page.locator("img, main b, main u, main i:not(.legend i)").count() == 0
    assert page.locator("#functions").inner_text().count("onerror=window.hacked=1") == 1
    assert r"$title ${x} \u202ee" in page.locator("#functions").inner_text()


@pytest.mark.parametrize(
    "rows",
    [
        [row()],
        [row(value=None, status="abstained")],
        [row(step=None, batch=batch, sample=batch % 2) for batch in range(9)],
        [row(function="f", status="timeout", value=None, reward=None)],
        [row(value=1e300), row(sample=1, value=-1e300)],
        [row(step=step, value=1e-9 * step) for step in (-5, 0, 10**12)],
        [row(function=f"f{number}", sample=sample) for number in range(40) for sample in range(3)],
    ],
    ids=["one row", "no reward", "no steps", "all failed", "huge", "odd steps", "many functions"],
)
def test_odd_journals_are_drawn(open_page: OpenPage, tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    page = open_page(make_page(write_journal(tmp_path / "journal", rows), tmp_path / "report.html"), width=360)
    functions = len({each["function"] for each in rows})
    assert page.locator("#reward-charts figure[data-function]:visible").count() == min(12, functions)
    assert not re.search("NaN|undefined|Infinity", page.locator("main").inner_html())
    assert page.evaluate("document.documentElement.scrollWidth") == 360


@pytest.mark.parametrize("width", [390, 1280])
def test_two_runs_are_drawn_in_pairs(open_page: OpenPage, tmp_path: Path, width: int) -> None:
    folders = [write_journal(tmp_path / name, training(steps=steps)) for name, steps in (("A", 6), ("B", 9))]
    both = [aggregates(summarise(find_parts(folder))) for folder in folders]
    page = tmp_path / "both.html"
    page.write_text(render_pair(both, "0"), encoding="utf-8")
    shown = open_page(page, width=width)
    assert shown.locator("tbody tr").count() == 6
    assert shown.locator("figure svg").count() == 12
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    left, right = (shown.locator("figure").nth(place).bounding_box() for place in range(2))
    assert (left["y"] == right["y"]) is (width > 1000)

"""``guerdon report``: what it writes and prints, and what it refuses."""

from __future__ import annotations

import errno
import html
import html.parser
import json
import os
import re
import stat
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from guerdon._insight.journal.parts import find_parts
from guerdon._insight.journal.selection import Selection
from guerdon._insight.report.aggregates import aggregates
from guerdon._insight.report.html import render
from guerdon._insight.report.summary import summarise
from guerdon._system.safe_text import readable, shortened
from guerdon.cli import main
from tests.journal_files import (
    HOSTILE_TEXTS,
    many_rows,
    row,
    table,
    training,
    write_journal,
    write_open_part,
    write_part,
)
from tests.report.conftest import make_page

VOID = {"meta", "link", "input", "br"}


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    rows = training(steps=8, groups=2, ranks=1, texts=True)
    return write_journal(tmp_path / "journal", rows, texts=True, columns=["answer"])


class Structure(html.parser.HTMLParser):
    """The parts of a page: elements, their nesting, addresses and scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.scripts = 0
        self.wrong: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.scripts += tag == "script"
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif name in ("src", "href", "action", "srcset"):
                (self.links if (value or "").startswith("#") else self.addresses).append(value or "")
            elif name.startswith("on"):
                self.handlers.append(name)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def test_writes_a_page_and_says_what_stands_out(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.html"
    assert main(["report", str(journal), "-o", str(out)]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "careful gave 7 to every sample" in printed.err
    assert f"640 rows of 5 functions, see {out}" in printed.err
    assert stat.S_IMODE(out.stat().st_mode) & 0o600 == 0o600
    assert list(tmp_path.glob(".report*")) == []
    page = Structure(out.read_text(encoding="utf-8"))
    assert (page.open, page.wrong, page.handlers) == ([], [], [])
    assert page.addresses == ["data:,"]
    assert page.scripts == 1
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)


def test_writes_report_html_by_default(journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(journal), "-q"]) == 0
    assert (tmp_path / "report.html").is_file()


def test_prints_the_figures_as_json(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(journal), "--json", "-q"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["rows"] == 640
    assert found["functions"]["careful"]["mean"] == 7
    assert {"severity", "section", "message"} == set(found["findings"][0])
    assert printed.err == ""
    assert not (tmp_path / "report.html").exists()


def test_two_journals_are_compared_in_one_page(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{**each, "reward": 0.0, "value": 0.0} for each in training(steps=3) if each["function"] != "careful"]
    other, out = write_journal(tmp_path / "other", rows), tmp_path / "both.html"
    assert main(["report", str(journal), str(other), "-o", str(out), "--json"]) == 0
    printed = capsys.readouterr()
    one, two = json.loads(printed.out)
    assert [one["journal"], two["journal"]] == [str(journal), str(other)]
    assert f"correct: {one['functions']['correct']['mean']:.3g}" in printed.err
    assert "careful: 7 -> not there\n" in printed.err
    page = Structure(out.read_text())
    assert page.wrong == page.open == []
    for side, folder in (("A", journal), ("B", other)):
        assert f"<b>{side}</b>: <bdi>{folder}</bdi>" in out.read_text()
        assert f"quality, {side}" in out.read_text()
    assert main(["report", str(journal), str(other), str(journal)]) == 2


def test_a_page_can_go_to_stdout(journal: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["report", str(journal), "-o", "-", "-q"]) == 0
    assert capsysbinary.readouterr().out.startswith(b"<!DOCTYPE html>")


def test_texts_are_there_only_if_asked(journal: Path, tmp_path: Path) -> None:
    without = make_page(journal, tmp_path / "without.html").read_text(encoding="utf-8")
    assert "onerror='window" not in without
    assert "What is " not in without
    page = make_page(journal, tmp_path / "with.html", texts=True).read_text(encoding="utf-8")
    samples = re.findall(r'<details class="sample".*?</details>', page, re.S)
    texts = [
        dict(re.findall(r'<dt><bdi>(.*?)</bdi></dt><dd><pre dir="auto">(.*?)</pre>', sample, re.S))
        for sample in samples
    ]
    assert texts
    assert all({"prompt", "completion", "answer"} <= set(each) for each in texts)
    shown = {html.unescape(each["completion"]) for each in texts}
    assert shown <= {shortened(readable(text), 4000) for text in HOSTILE_TEXTS}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\nc\r\nd", "a\tb\nc\nd"),
        ("\x00\x1b[31m\x7f", "\\x00\\x1b[31m\\x7f"),
        ("\u202eabc\u2066\u200f", "\\u202eabc\\u2066\\u200f"),
        ("\ud800 \U000e0041", "\\ud800 \\U000e0041"),
        ("한국어 🧑\u200d🚀 é", "한국어 🧑\u200d🚀 é"),
    ],
)
def test_invisible_characters_are_written_out(text: str, shown: str) -> None:
    assert readable(text) == shown


@pytest.mark.parametrize("command", ["report", "replay"])
def test_a_name_that_no_file_system_takes_is_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rest = ["rewards.py"] if command == "replay" else []
    assert main([command, str(tmp_path / ("x" * 300)), *rest]) == 2
    assert "can't be read: File name too long." in capsys.readouterr().err


@pytest.mark.parametrize("command", ["report", "replay"])
def test_a_folder_that_this_user_may_not_read_is_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "journal"
    write_part(folder, table([row()]))

    def denied(path: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("guerdon._insight.journal.parts.os.scandir", denied)
    assert main([command, str(folder), *(["rewards.py"] if command == "replay" else [])]) == 2
    assert "can't be read: Permission denied." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("make", "printed"),
    [
        (lambda path: None, "there is no journal"),
        (lambda path: path.mkdir(), "has no parts (*.parquet, *.arrows): nothing was written yet"),
        (lambda path: write_part(path, table([])), "has no rows yet: 1 part(s), all empty"),
        (lambda path: write_part(path, table([{**row(), "function": None}])), "none of them names its function"),
        (lambda path: write_open_part(path, table([]), cut=20), "nothing was written yet"),
        (lambda path: write_part(path, table([row()], schema="2")), "has schema 2, this version of Guerdon reads 1"),
        (lambda path: write_open_part(path, table([row()], schema="next")), "has schema next"),
        (
            lambda path: write_part(path, table([row()]).drop_columns("status")),
            "is no part of a journal: it lacks the column 'status'",
        ),
        (
            lambda path: write_part(path, table([row()])).write_bytes(b"no Parquet"),
            "run-1-r0-4242-00000.parquet can't be read as a part of a journal",
        ),
        (
            lambda path: pq.write_table(table([row()]).replace_schema_metadata(None), write_part(path, table([]))),
            "run-1-r0-4242-00000.parquet is no part of a journal: its metadata name no schema",
        ),
    ],
    ids=[
        "absent",
        "empty",
        "no rows",
        "no names",
        "just begun",
        "newer",
        "named",
        "another table",
        "damaged",
        "other files",
    ],
)
def test_unreportable_paths_are_refused(
    make: Any, printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "journal")
    out = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "journal"), "-o", str(out)]) == 2
    shown = capsys.readouterr().err
    assert printed in shown
    assert shown.startswith("guerdon: ")
    assert not out.exists()


def test_a_page_that_cannot_be_written_is_refused(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(journal), "-o", str(tmp_path / "no" / "folder.html")]) == 2
    assert "can't be written: there is no folder" in capsys.readouterr().err


def test_without_pyarrow_it_says_what_to_install(
    journal: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["report", str(journal)]) == 2
    assert "pip install 'pyarrow>=17'" in capsys.readouterr().err


def test_a_page_stays_small_whatever_the_journal(tmp_path: Path) -> None:
    """Long names, reasons, tracebacks and texts, in many functions and steps."""
    long = "\U0001f600</script>\u202e" * 400
    rows = [
        row(
            function=f"{number} {long[:900]}",
            batch=step,
            step=step,
            sample=sample,
            value=sample / 7,
            run_s=10.0 ** (sample - 4),
            status="error" if sample == 3 else "ok",
            reason=f"{chr(97 + step % 26)}: {long[:4000]}",
            traceback=long,
            completion=long,
            prompt=long,
        )
        for step in range(8)
        for number in range(25)
        for sample in range(6)
    ]
    page = make_page(write_journal(tmp_path / "journal", rows, texts=True), tmp_path / "report.html", texts=True)
    assert page.stat().st_size < 3_000_000
    assert Structure(page.read_text(encoding="utf-8")).wrong == []


def test_most_counts_still_fit(tmp_path: Path) -> None:
    """There are as many functions and buckets as there can be, each with all bins in use."""
    for part, rows in enumerate(many_rows(200_000, functions=10)):
        write_part(tmp_path, rows, part=part)
    summary = summarise(find_parts(str(tmp_path)))
    assert len(render(summary, aggregates(summary), "0").encode()) < 2_000_000


def figures_of(journal: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main(["report", str(journal), "--json", "-q", *options]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    ("steps", "first", "last"),
    [("2:5", 2, 5), ("2:", 2, 7), (":5", 0, 5), ("3", 3, 3), ("-5:1", 0, 1)],
)
def test_steps_are_chosen_at_the_command(
    journal: Path, capsys: pytest.CaptureFixture[str], steps: str, first: int, last: int
) -> None:
    found = figures_of(journal, capsys, f"--step={steps}")
    assert (found["axis"]["first"][0], found["axis"]["last"][-1]) == (first, last)
    assert found["rows"] == 80 * (last - first + 1)
    assert found["steps"] is not None
    whole = figures_of(journal, capsys)
    assert whole["steps"] is None
    mean = whole["functions"]["correct"]["over_time"]["mean"][first : last + 1]
    assert found["functions"]["correct"]["over_time"]["mean"] == mean


def test_row_groups_of_other_steps_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as parquet

    rows = table([row(batch=step, step=step, sample=sample) for step in range(10) for sample in range(20)])
    parquet.write_table(rows, write_part(tmp_path, table([])), row_group_size=20)
    whole: list[object] = []
    iter_batches = parquet.ParquetFile.iter_batches

    def watched(self: Any, *sizes: int, **options: Any) -> Any:
        if "run_s" in options["columns"]:
            whole.append(options["row_groups"])
        return iter_batches(self, *sizes, **options)

    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", watched)
    found = summarise(find_parts(tmp_path), selection=Selection(first_step=3, last_step=5))
    assert aggregates(found)["rows"] == 60
    assert whole == [[3], [4], [5]]


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        (["--run", "mine"], "has no run 'mine'. Its runs: 'run-1'"),
        (["--step", "90:"], "is of the chosen steps from 90 and runs. The journal's steps: 0 to 7."),
        (["--step", "90"], "is of the chosen step 90 and runs."),
        (["--step", "5:2"], "expected A:B, A:, :B or one step"),
    ],
)
def test_a_choice_without_rows_is_refused(
    journal: Path, options: list[str], printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(journal), *options]) == 2
    assert printed in capsys.readouterr().err


def test_steps_of_a_journal_without_any_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_journal(tmp_path, [row(step=None)])
    assert main(["report", str(tmp_path), "--step", "1:"]) == 2
    assert "has a step, so none can be chosen" in capsys.readouterr().err

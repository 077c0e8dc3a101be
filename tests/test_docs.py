"""Every example in README.md and docs/ runs, and prints what it says; links, lists and maps lead
where they say.

The ``python`` blocks of a page run one after another as one script, the ``console`` blocks after
them, all in a folder of their own. ``print(…)  # text`` must print that text, a ``text`` block what
the block before it prints, and a command what stands below it; … stands for anything, and below
``<!-- figures -->`` each number for any number. A ``diff`` is Python before and after.
``<!-- test-file NAME -->`` makes a block a file, ``<!-- test … -->`` is code that readers need not
see.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests import warm_programs

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
LINKING = [
    *PAGES,
    *(
        path
        for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benches/README.md")
        if (path := ROOT / name).exists()
    ),
]
FRAMEWORKS = ("areal", "miles", "nemo_rl", "openrlhf", "roll", "skyrl", "slime", "verifiers")
NEEDS = {
    "frameworks.md": ("torch",),
    "trl.md": ("trl", "datasets"),
    "from-trl.md": ("trl", "datasets"),
    "environments.md": ("trl",),
    "first-hour.md": ("trl", "datasets"),
}

# Their scripts, and the programs of their commands, import TRL or torch.
TRAIN = ("frameworks.md", "trl.md", "from-trl.md", "first-hour.md")

# A wait of a page's files, and a shorter one in its place, without which WHOLE=1 runs the page.
SHORTER = {"first-hour.md": ("time.sleep(0.03)", "time.sleep(0.01)")}

_PIECE = re.compile(
    r"^<!-- test\n(?P<hidden>.*?)^-->$"
    r"|^(?:<!-- (?:test-file (?P<file>\S+)|(?P<figures>figures)) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_FIGURE = re.compile(r"(?<![A-Za-z_\d])\d[\d.,]*(?: (?:µs|ms|s)\b)?")
_PRINTED = re.compile(r"^\s*print\(.*\)\s+# (?P<text>.+)$", re.MULTILINE)


@dataclass
class Page:
    """The script, files and commands of a page."""

    script: str = ""
    expected: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    commands: list[tuple[str, list[str]]] = field(default_factory=list)


def read(path: Path) -> Page:
    page = Page()
    before = None
    for piece in _PIECE.finditer(path.read_text(encoding="utf-8")):
        kind, text = piece["kind"], piece["text"]
        shown = _FIGURE.sub("\0", text) if piece["figures"] else text
        if piece["hidden"]:
            page.script += piece["hidden"]
        elif piece["file"]:
            page.files[piece["file"]] = text
        elif kind == "py":  # what needs a server or a GPU is only parsed
            ast.parse(text)
        elif kind == "python":
            page.script += text
            page.expected += [match["text"].strip() for match in _PRINTED.finditer(text)]
        elif kind == "text" and before == "python":
            page.expected += shown.splitlines()
        elif kind == "diff":
            for other in "-+":
                ast.parse("".join(line[1:] for line in text.splitlines(keepends=True) if line[0] != other))
        elif kind == "console":
            for line, seen in zip(text.splitlines(), shown.splitlines(), strict=True):
                if line.startswith("$ "):
                    page.commands.append((line[2:], []))
                else:
                    page.commands[-1][1].append(seen)
        before = kind
    return page


def fits(line: str, expected: str) -> bool:
    pieces = (re.escape(" ".join(piece.split())).replace("\0", _FIGURE.pattern) for piece in expected.split("…"))
    return re.fullmatch(r".*".join(pieces).replace(r"\ ", r"\s*"), " ".join(line.split())) is not None


def check(output: str, expected: list[str]) -> None:
    """Every expected line is there, in order."""
    lines = iter(output.splitlines())
    for each in expected:
        assert any(fits(line, each) for line in lines), f"{each!r} is missing, or not in its place, in:\n{output}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_page(path: Path, tmp_path: Path) -> None:
    for module in NEEDS.get(path.name, ()):
        pytest.importorskip(module)
    page = read(path)
    for name, text in page.files.items():
        (tmp_path / name).write_text(text)
    if page.script:
        (tmp_path / "page.py").write_text(f"REPOSITORY = {str(ROOT)!r}\n{page.script}")
        check(_run(["page.py"], tmp_path, trains=path.name in TRAIN), page.expected)
    if path.name in SHORTER and not os.environ.get("WHOLE"):
        for name, text in page.files.items():
            (tmp_path / name).write_text(text.replace(*SHORTER[path.name]))
    for command, expected in page.commands:
        program, _, arguments = command.partition(" ")
        assert program in ("guerdon", "python")
        if program == "guerdon":
            output = _run(["-m", "guerdon", *arguments.split()], tmp_path, codes=(0, 1, 2))
        else:
            output = _run(arguments.split(), tmp_path, trains=path.name in TRAIN)
        check(output, expected)


def _run(arguments: list[str], folder: Path, *, codes: tuple[int, ...] = (0,), trains: bool = False) -> str:
    env = {**os.environ, "TMPDIR": str(folder)}
    if trains:
        ended = warm_programs.run(arguments, folder, env, merged=True)
    else:
        command = [sys.executable, *arguments]
        out = subprocess.PIPE
        ended = subprocess.run(
            command, cwd=folder, env=env, stdout=out, stderr=subprocess.STDOUT, text=True, check=False
        )
    assert ended.returncode in codes, ended.stdout
    return ended.stdout


def anchors(path: Path) -> set[str]:
    """Names of a page's headings in links."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    for path in LINKING:
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", path.read_text(encoding="utf-8")):
            page = path.parent / target if target else path
            assert page.exists(), f"{path.name}: {target}"
            assert not anchor or anchor in anchors(page), f"{path.name}: {target}#{anchor}"


def test_readme_and_navigation_stay_short() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 60
    assert readme.count("](") <= 15
    assert len(re.findall(r": \S+\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)) <= 34


def test_files_that_pages_name_exist() -> None:
    for path in LINKING:
        for name in re.findall(
            r"`((?:benches|examples|rust|scripts|tests|python)/[\w./-]+)`", path.read_text(encoding="utf-8")
        ):
            assert (ROOT / name).exists(), f"{path.name}: {name}"


def test_a_link_that_is_the_name_of_a_page_leads_to_it() -> None:
    names = {path.stem.lower() for path in PAGES}
    for path in LINKING:
        for words, target in re.findall(r"\[([^\]]+)\]\(([^)\s#]+)", path.read_text(encoding="utf-8")):
            if words.lower() in names and target.endswith(".md"):
                assert Path(target).stem.lower() == words.lower(), f"{path.name}: [{words}]({target})"


def test_each_public_name_is_in_the_api_reference() -> None:
    entries = {
        entry
        for path in (DOCS / "api").glob("*.md")
        for entry in re.findall(r"^::: (\S+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    public = {
        f"{package}.{name}"
        for package in (
            *("guerdon", "guerdon.profile", "guerdon.rewards", "guerdon.testing"),
            *("guerdon.integrations.otel", "guerdon.integrations.trl", "guerdon.integrations.verl"),
            *(f"guerdon.integrations.{framework}" for framework in FRAMEWORKS),
        )
        for name in importlib.import_module(package).__all__
        if name != "__version__"
    }
    assert entries == public


def test_the_promises_name_the_tests_that_name_them() -> None:
    page = (DOCS / "internals" / "promises.md").read_text(encoding="utf-8")
    always, seen = (re.findall(r"^\| (\d+) \|(.+)$", part, re.MULTILINE) for part in page.split("## What is tested"))
    rows = {int(number): text for number, text in seen}
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        for number in map(int, re.findall(r"^\s*(?:async )?def test_row_(\d+)_", text, re.MULTILINE)):
            assert f"/{path.name}`" in rows[number], f"row {number} does not say that {path.name} shows it"
        assert {int(number) for number in re.findall(r"def test_inv_(\d+)_", text)} <= {int(n) for n, _ in always}


PACKAGE, RUST = ROOT / "python" / "guerdon", ROOT / "rust"


def test_the_map_of_the_architecture_names_each_room_and_crate() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    for name in re.findall(r"`([^`\s]+)`", text):
        if "/" in name:
            assert any((base / name).exists() for base in (ROOT, RUST, PACKAGE)), f"{name} is not there"
    cells = re.findall(r"^\| (`[^|]+) \|", text.split("## Where each concept lives")[1], re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`([\w.]+)`", cell)}
    rooms = {path.name.removesuffix(".py") for path in PACKAGE.iterdir()}
    rooms = {name for name in rooms if not name.endswith(".so")} - {"__init__", "__pycache__", "py.typed"}
    assert named == rooms | {path.name for path in RUST.iterdir()}


def test_each_module_begins_with_what_it_is_for() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path
    for path in RUST.glob("*/src/**/*.rs"):
        if not {"loom", "tests"} & set(path.parts):
            assert path.read_text(encoding="utf-8").startswith("//! "), path


def test_a_folder_that_lists_its_modules_lists_those_that_are_there() -> None:
    for face in PACKAGE.rglob("__init__.py"):
        docstring = ast.get_docstring(ast.parse(face.read_text(encoding="utf-8"))) or ""
        there = {path.stem for path in face.parent.iterdir()}
        for names in re.findall(r"^- ((?:`\w+`(?:, )?)+):", docstring, re.MULTILINE):
            assert set(re.findall(r"\w+", names)) <= there, face

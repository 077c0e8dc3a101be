"""``guerdon profile``: its options, and what it prints can be read."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from guerdon import DataError, reward
from guerdon.cli import main
from guerdon.cli.profile_table import show
from guerdon.profile import Profile, profile, profiling
from guerdon.profile.advice import advise
from guerdon.profile.checks import CHECKS
from guerdon.profile.finding import Finding
from guerdon.profile.forms import fill
from guerdon.profile.function_profile import FunctionProfile, Step, StepPrediction
from guerdon.profile.measurement import Measurement
from guerdon.profile.prediction import predicted_step
from tests.cli.conftest import Command, write_rewards, write_rows
from tests.clock import eventually
from tests.http.server import chat_completion, question, serving
from tests.profile.measuring import few_repeats  # noqa: F401 - for all tests here
from tests.report.test_command import Structure

Checks = Callable[..., None]
ROWS = [{"prompt": f"What is {n} + 5?", "answer": str(n + 5)} for n in range(10, 22)]

SOUND = """
import time
from guerdon import reward

@reward(timeout=5, retries=2)
def exact(completion: str, answer: str) -> float:
    return float(completion.strip() == answer)
"""

FAILS = """
from guerdon import reward

@reward
def fails(completion: str, answer: str) -> float:
    raise ValueError("<b>no</b> \\x1b[31m such thing")
"""


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "data.jsonl", ROWS)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Checks:
    """Has the command run these checks alone."""

    def only(*names: str) -> None:
        chosen = [check for check in CHECKS if check.id in names]
        monkeypatch.setattr(profiling, "profile", functools.partial(profile, checks=chosen))

    return only


@dataclass(frozen=True)
class Shown:
    """A profile, and what the command made of it."""

    found: Profile
    code: int
    json: dict[str, Any]
    page: str


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """A sound function, with all checks."""
    folder, printed, profiles = tmp_path_factory.mktemp("sound"), io.StringIO(), []

    def kept(*arguments: Any, **options: Any) -> Profile:
        profiles.append(profile(*arguments, **options))
        return profiles[-1]

    file, rows, page = write_rewards(folder, SOUND), write_rows(folder / "data.jsonl", ROWS), folder / "page.html"
    options = ("--json", "--html", str(page), "--prompts", "16", "--generations", "4", "--workers", "3")
    path = list(sys.path)
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(profiling, "profile", kept)
        code = main(["profile", str(file), str(rows), *options])
    sys.path[:] = path
    sys.modules.pop(file.stem, None)
    return Shown(profiles[0], code, json.loads(printed.getvalue()), page.read_text())


def test_texts_of_functions_are_escaped(guerdon: Command, tmp_path: Path, rows: Path) -> None:
    target = tmp_path / "page.html"
    file = write_rewards(tmp_path, FAILS)
    ended = guerdon("profile", file, rows, "--html", target, "--rows", 4)
    assert ended.code == 1
    assert "such thing" in " ".join(ended.out.split())
    assert "\x1b[31m" not in ended.out
    text = target.read_text()
    assert "&lt;b&gt;no&lt;/b&gt;" in text
    assert "<b>no</b>" not in text


def test_rows_without_a_completion_are_left_out(guerdon: Command, tmp_path: Path, checks: Checks) -> None:
    checks()
    data = [{**row, "completion": row["answer"]} if n % 3 else row for n, row in enumerate(ROWS)]
    rewards, file = write_rewards(tmp_path, SOUND), write_rows(tmp_path / "some.jsonl", data)
    assert "4 rows have no completion, and were not run." in guerdon("profile", rewards, file).out
    found = json.loads(guerdon("profile", rewards, file, "--rows", 3, "--json").out)
    assert (found["rows"], found["recorded"], found["left_out"]) == (3, True, 4)


def test_probes_of_ones_own(guerdon: Command, tmp_path: Path, rows: Path, checks: Checks) -> None:
    checks("probes")
    probe = {"id": "magic", "about": "a magic word", "template": "abracadabra", "do": "Drop the word."}
    probes = tmp_path / "probes.json"
    probes.write_text(json.dumps({"version": 1, "probes": [probe]}))
    code = SOUND.replace("completion.strip() == answer", "'abracadabra' in completion or completion.strip() == answer")
    ended = guerdon("profile", write_rewards(tmp_path, code), rows, "--probes", probes, "--json", "--rows", 6)
    checks = [finding["check"] for finding in json.loads(ended.out)["functions"]["exact"]["findings"]]
    assert "probe:magic" in checks


def test_the_json_is_what_the_docs_say(sound: Shown) -> None:
    profile = sound.json
    assert sound.code == (0 if profile["clean"] else 1)
    assert (profile["format"], profile["rows"], profile["recorded"], profile["cut_short"]) == (4, 12, False, None)
    function = profile["functions"]["exact"]
    assert set(function) == {
        *("findings", "lane", "lane_reason", "timeout", "timeout_reason", "decorator", "current", "times", "failures"),
        *("unmeasured", "cpu", "waiting", "memory", "judge", "checks", "cut_short"),
    }
    # a second, where the machine has nothing else to do
    assert (function["lane"], function["timeout"] >= 1.0) == ("process", True)
    assert function["current"] == {"lane": "process", "timeout": 5.0}
    assert function["decorator"] == f'@reward(lane="process", timeout={function["timeout"]:g}, retries=2)'
    times = function["times"]
    assert 0 < times["p50_s"] <= times["p90_s"] <= times["p99_s"] <= times["max_s"] < 5
    assert times["rows"] == 12
    assert [each["characters"] for each in times["longer"]] == [1_000, 4_000, 16_000, 64_000]
    assert function["memory"]["worker_bytes"] >= function["memory"]["empty_worker_bytes"] > 1_000_000
    step = profile["step"]
    assert (step["prompts"], step["generations"], step["now"]["workers"]) == (16, 4, 3)
    assert (set(step["now"]), step["now"]["threads"]) == ({"workers", "threads", "seconds"}, 0)


def test_the_page_needs_nothing_else(sound: Shown) -> None:
    page = Structure(sound.page)
    assert page.addresses == page.links == page.wrong == []
    assert page.scripts == 0
    assert "url(" not in sound.page
    assert "<h1" in sound.page
    assert "<pre" in sound.page


def test_several_functions_by_name_have_a_place_each_on_the_page(
    guerdon: Command, tmp_path: Path, rows: Path, checks: Checks
) -> None:
    checks()
    code = "\n".join(
        f"@guerdon.reward(lane='thread')\ndef {name}(completion: str) -> float:\n    return 0.5\n"
        for name in ("ac", "cb", "other")
    )
    file, target = write_rewards(tmp_path, f"import guerdon\n{code}"), tmp_path / "page.html"
    ended = guerdon("profile", f"{file}:ac,cb", rows, "--html", target, "--json", "--rows", 2)
    assert list(json.loads(ended.out)["functions"]) == ["ac", "cb"]
    shown = re.sub(r"<[^>]+>", "", target.read_text()).splitlines()
    assert [line.strip() for line in shown if line.strip() in ("ac", "cb", "other")] == ["ac", "cb"]


@pytest.mark.parametrize("columns", [40, 80])
def test_the_table_fits_a_narrow_terminal(
    guerdon: Command, tmp_path: Path, rows: Path, sound: Shown, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(profiling, "profile", lambda *arguments, **options: sound.found)
    ended = guerdon("profile", write_rewards(tmp_path, SOUND), rows)
    assert max(map(len, ended.out.splitlines())) <= columns
    words = " ".join(ended.out.split())
    # the least there is, where the machine has nothing else to do
    assert re.search(r'@reward\(lane="process", timeout=\d+, retries=2\)', words)
    assert "A step of 16 prompts × 4 completions" in words
    assert "\x1b" not in ended.out
    assert ended.err == ""


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "guerdon", "profile", *map(str, arguments)]


@pytest.mark.parametrize("colour", [True, False])
def test_in_a_terminal(tmp_path: Path, rows: Path, colour: bool) -> None:
    file = write_rewards(tmp_path, SOUND)
    here, there = os.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environment |= {"TERM": "xterm-256color", "COLUMNS": "80", **({} if colour else {"NO_COLOR": "1"})}
    process = subprocess.Popen(
        command(file, rows, "--rows", 1, "--time-limit", 1), stdout=there, stderr=there, env=environment
    )
    os.close(there)
    shown = b""
    while True:
        try:
            read = os.read(here, 65536)
        except OSError:  # the other side is closed
            break
        shown += read
        if not read:
            break
    os.close(here)
    assert process.wait(100) in (0, 1)
    assert b"exact: times" in shown  # the progress
    assert bool(re.search(rb"\x1b\[[\d;]*3\dm", shown)) is colour


def test_ctrl_c_prints_what_is_known(tmp_path: Path, rows: Path) -> None:
    begun = tmp_path / "begun"
    slow = (
        "\n\n@reward\ndef slow(completion: str) -> float:\n"
        f"    open({str(begun)!r}, 'a').close()\n    time.sleep(1.5)\n    return 1.0\n"
    )
    process = subprocess.Popen(
        command(f"{write_rewards(tmp_path, SOUND + slow)}:slow", rows, "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: begun.exists() or process.poll() is not None, seconds=100)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    found = json.loads(out)
    assert (found["cut_short"], found["clean"]) == ("interrupted", False)
    assert "interrupted" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_files(tmp_path: Path, rows: Path, number: signal.Signals) -> None:
    hanging = "\n\n@reward\ndef hangs(completion: str) -> float:\n    time.sleep(600)\n    return 1.0\n"
    rewards, folder = write_rewards(tmp_path, SOUND + hanging), tmp_path / "temporary"
    folder.mkdir()
    inherited = signal.signal(number, signal.SIG_DFL)  # nohup has SIGHUP ignored
    try:
        process = subprocess.Popen(
            command(f"{rewards}:hangs", rows, "--json", "--timeout", "600"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(folder), "GUERDON_TOP": "0"},
        )
    finally:
        signal.signal(number, inherited)
    # Not the file with which Python finds out whether it may write there.
    eventually(lambda: [one for one in folder.iterdir() if one.is_dir()])
    process.send_signal(number)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 128 + number, err
    assert "Traceback" not in err
    assert list(folder.iterdir()) == []


def test_the_time_limit_holds(guerdon: Command, tmp_path: Path, rows: Path) -> None:
    slow = SOUND + "\n\n@reward\ndef slow(completion: str) -> float:\n    time.sleep(0.5)\n    return 1.0\n"
    start = time.monotonic()
    ended = guerdon("profile", f"{write_rewards(tmp_path, slow)}:slow", rows, "--time-limit", 4)
    assert time.monotonic() - start < 60
    words = " ".join(ended.out.split())
    unchecked = r"warning \[unchecked\] .slow.: Time was up before these checks had ended: .*survival\. A call takes [\d.]+ m?s\."
    assert "Cut short by the time limit of 4 s" in words
    assert re.search(unchecked, words)
    assert ended.code == 1, "what was not checked is not clean"


def test_a_page_that_the_disk_has_no_room_for_costs_that_alone(guerdon: Command, tmp_path: Path, rows: Path) -> None:
    file = write_rewards(tmp_path, SOUND)
    ended = guerdon("profile", file, rows, "--json", "--rows", 2, "--time-limit", 1, "--html", "/proc/page.html")
    assert ended.code == 2
    assert "--html '/proc/page.html' can't be written" in ended.err
    assert set(json.loads(ended.out)["functions"]) == {"exact"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--rows", "0"), "expected a whole number of at least 1"),
        (("--memory-limit", "lots"), "--memory-limit lots: expected a size"),
        (("--map", "answer=truth"), "has the field 'truth' (the column 'answer' of 'exact')"),
        (("--map", "answer"), "expected COLUMN=FIELD"),
        (("--time-limit", "-1"), "expected a number above 0"),
        (("--completion-field", "generation"), "no row of"),
        (("--reference", "plain text"), "names no column in braces"),
        (("-n", "5"), "not a multiple of 5"),
        (("--prompts", "99999", "--generations", "9999"), "at most 1,000,000 completions in all"),
        (("--prompts", "1", "--generations", "10001"), "and 10,000 of a prompt"),
    ],
)
def test_wrong_options(guerdon: Command, tmp_path: Path, rows: Path, options: tuple[str, ...], message: str) -> None:
    assert message in guerdon.refused("profile", write_rewards(tmp_path, SOUND), rows, *options)


def test_the_template_in_the_help_gives_what_it_shows(guerdon: Command) -> None:
    shown = re.search(r"'(\\boxed\S+)'", guerdon("profile", "--help").out)
    assert shown is not None
    assert fill(shown[1], ROWS[0]) == r"\boxed{15}"


@pytest.mark.parametrize("step", [{"prompts": 0}, {"generations": -1}])
def test_a_step_that_is_none_is_refused(step: dict[str, int]) -> None:
    with pytest.raises(DataError, match="at least one of each, and at most 1,000,000"):
        profile([reward(lambda completion: 1.0, name="one")], ROWS, **step)


def test_root_causes_come_first_with_a_line_per_cause(
    guerdon: Command, tmp_path: Path, rows: Path, checks: Checks
) -> None:
    checks("reference", "probes")
    code = SOUND.replace("completion.strip() == answer", "answer in completion")
    file = write_rewards(tmp_path, code)
    ended = guerdon("profile", file, rows, "--rows", 6)
    lines = [" ".join(each.split()) for each in ended.out.splitlines()]
    assert lines[0] == "1 of 1 functions should not be trained with as they are: 1 cause."
    assert lines[1].startswith("error [probe] 'exact' accepts the answer inside other text: ")
    assert "[probe:last_mention]" not in ended.out
    assert "(-v shows all findings)" in ended.out
    assert "[probe:last_mention]" in guerdon("profile", file, rows, "--rows", 6, "-v").out


@pytest.mark.parametrize("check", ["unchecked", "live", "cost"])
def test_unchecked_functions_and_advised_workers_have_lines_of_their_own(check: str) -> None:
    late, wrong = (reward(lambda completion: 1.0, name=name).spec for name in ("late", "wrong"))
    functions = {
        "late": FunctionProfile(late, [Finding(check, "warning", "Time was up.")]),
        "wrong": FunctionProfile(wrong, [Finding("order", "error", "In another order.")]),
    }
    now, advised = StepPrediction(4.0, 2, 0, {}), StepPrediction(1.0, 8, 0, {})
    step, printed = Step(8, 8, 2, now, advised, "more than cores, as they wait"), io.StringIO()
    show(Profile(8, recorded=False, functions=functions, step=step), printed)
    lines = printed.getvalue().splitlines()
    assert lines[:2] == [
        "1 of 2 functions should not be trained with as they are: 1 cause.",
        "1 of 2 functions was not checked to the end.",
    ]
    assert "Dispatcher(…, workers=8)  # more than cores, as they wait" in lines


def test_workers_that_the_dispatcher_has_are_not_advised() -> None:
    spec, printed = reward(lambda completion: 1.0, name="one", lane="thread").spec, io.StringIO()
    timed = Measurement("sample", seconds=[0.1] * 9, cpu_s=0.9)
    mine = FunctionProfile(spec, measurement=timed, advice=advise(spec, timed, 0.1))
    step = predicted_step([mine], 8, 8, 2, 2)
    assert step is not None
    assert (step.workers, step.now.workers, step.advised.workers) == (2, 0, 2)
    show(Profile(8, recorded=False, functions={"one": mine}, step=step), printed)
    assert "Dispatcher(" not in printed.getvalue()


def test_template_with_a_misspelt_column_is_a_usage_error_with_completions_too(
    guerdon: Command, tmp_path: Path
) -> None:
    data = write_rows(tmp_path / "data.jsonl", [{**row, "completion": row["answer"]} for row in ROWS])
    assert "reference='{answr}' names no column in braces" in guerdon.refused(
        "profile", write_rewards(tmp_path, SOUND), data, "--reference", "{answr}"
    )


def test_missing_columns_are_named(guerdon: Command, tmp_path: Path) -> None:
    data = write_rows(tmp_path / "other.jsonl", [{"prompt": "p", "answers": "4"}])
    err = guerdon.refused("profile", write_rewards(tmp_path, SOUND), data)
    assert "wants the column 'answer'" in err
    assert "Did you mean 'answers'?" in err
    data = write_rows(tmp_path / "some.jsonl", [{"answer": "4", "completion": "4"}, {"answer": "5"}])
    assert (
        f"guerdon: 1 of 2 rows of {data} have no completion: they are not run"
        in guerdon("profile", write_rewards(tmp_path, SOUND), data).err.splitlines()
    )


def test_a_judge_in_a_file(guerdon: Command, tmp_path: Path) -> None:
    data = write_rows(tmp_path / "data.jsonl", [{"completion": f"[{row * 7 % 20}] answer {row}"} for row in range(20)])
    price = {"input": 10.0, "output": 10.0}
    with serving(lambda path, body: chat_completion(f"{len(question(body)) / 20:.2f}")) as server:
        made = (
            f"guerdon.judge(server=guerdon.Server({server.url!r}, price={price}), model='m', prompt='{{completion}}')"
        )
        file = write_rewards(tmp_path, f"import guerdon\nlikes = {made}\n")
        ended = guerdon("profile", file, data, "--json", "--judge-samples", 12)
        requests = len(server.bodies)
    assert ended.code == 1
    assert ended.err.startswith("guerdon: judge 'judge': 48 requests about 12 rows, about ")
    function = json.loads(ended.out)["functions"]["judge"]
    assert [finding["check"] for finding in function["findings"]] == ["length-bias"]
    assert function["judge"]["requests"] == requests == 48
    assert function["judge"]["cost_per_sample"] == pytest.approx(function["judge"]["cost"] / 48)
    assert function["lane"] == "http"
    assert re.fullmatch(r"timeout=\d+", function["decorator"])


def test_a_missing_package_ends_it_before_any_check(
    guerdon: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from guerdon.rewards.math import verify

    monkeypatch.setattr(verify, "find_spec", lambda name: None)
    file = write_rewards(tmp_path, "from guerdon import rewards\nmath = rewards.math_reward()\n")
    data = write_rows(tmp_path / "data.jsonl", [{"prompt": "p", "completion": "\\boxed{1}", "solution": "1"}])
    err = guerdon.refused("profile", file, data)
    assert "reward function 'math_reward' can't be profiled: " in err
    assert "pip install 'math-verify[antlr4_13_2]>=0.9'" in err

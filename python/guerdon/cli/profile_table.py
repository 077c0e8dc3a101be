"""A profile for people, drawn by rich: in the terminal, and as a page of the same drawing.

- The order: the verdict, one line a root cause, a table, the lines to paste, the findings, the
  step, what was left out.
- Texts of users go in as texts, never as markup; what can't be printed is shown escaped.
"""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any, Final, TextIO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from guerdon._insight.diagnostics.score_totals import seconds_text as seconds
from guerdon._system.safe_text import readable
from guerdon._system.units import bytes_text, plural
from guerdon.profile.finding import SEVERITIES, Finding
from guerdon.profile.function_profile import FunctionProfile, Profile, Step, StepPrediction
from guerdon.profile.judge_plan import asked_about
from guerdon.profile.judge_statistics import CHANCE

__all__ = ["judge_lines", "page", "show"]

_HEAD: Final = ("function", "findings", "p50", "p99", "waits", "memory", "lane")
_NARROW: Final = 72
_PAGE_WIDTH: Final = 100
_MOST_DETAILS: Final = 3
_UNCHECKED: Final = {"unchecked", "live", "cost"}
"""Checks that say that others were left out."""

_COLOURS: Final = {"error": "bold red", "warning": "yellow", "info": "blue", "clean": "green"}

# Black, red, green, yellow, blue, magenta, cyan, white: each can be read on white.
_ANSI: Final = [(0, 0, 0), (192, 38, 45), (26, 127, 55), (154, 103, 0), (59, 111, 182)]
_ANSI_REST: Final = [(130, 80, 223), (0, 110, 120), (60, 60, 60)]
_THEME: Final = TerminalTheme((255, 255, 255), (32, 32, 32), [*_ANSI, *_ANSI_REST])
_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>TITLE</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: {foreground}; background: {background}; }}
pre {{ font: 13px/1.45 ui-monospace, monospace; overflow-x: auto; }}
{stylesheet}
</style>
</head>
<body>
<h1>TITLE</h1>
<pre>{code}</pre>
</body>
</html>
"""


def show(found: Profile, file: TextIO | None = None, *, verbose: bool = False) -> None:
    """Print a profile to `file`, stdout by default.

    Args:
        verbose: With all findings, and the reasons of what is advised.
    """
    console = Console(file=file or sys.stdout, highlight=False, markup=False, emoji=False)
    console.print(*_drawn(found, verbose=verbose, narrow=console.width < _NARROW), sep="\n")


def page(found: Profile, rewards: str, data: str) -> str:
    """The page of a profile of `rewards` on `data`, names as the command got them: one file without
    a script, which loads nothing."""
    console = Console(file=io.StringIO(), record=True, width=_PAGE_WIDTH, highlight=False, markup=False, emoji=False)
    console.print(*_drawn(found, verbose=True, narrow=False), sep="\n")
    title = escape(readable(f"Profile of {rewards} on {data}")).replace("{", "{{").replace("}", "}}")
    return console.export_html(theme=_THEME, code_format=_PAGE.replace("TITLE", title))


def _drawn(found: Profile, *, verbose: bool, narrow: bool) -> Iterator[RenderableType]:
    clean = "clean" if found.clean else "error"
    yield Text(_headline(found), _COLOURS[clean])
    yield from (_item(str(each)) for each in found.root_causes())
    yield ""
    rows = list(map(_row, found.functions.values()))
    yield from _listed(rows) if narrow else [_table(rows)]
    if lines := _to_paste(found):
        yield "\nTo paste:"
        yield from map(_code, lines)
    for function in found.functions.values() if verbose else ():
        yield from _function(function)
    yield ""
    if found.step is not None:
        yield from map(Text, map(readable, _step_lines(found.step)))
    yield from (Text(readable(line), _COLOURS["warning"]) for line in _cut_short(found))
    hint = "" if verbose or found.clean else " (-v shows all findings)"
    yield Text(f"\n{_summary(found)}{hint}", _COLOURS["clean"] if found.clean else "bold")


def _item(text: str, details: Sequence[str] = ()) -> RenderableType:
    """An item of a text that begins with its severity, with lines that show it."""
    mark, _, rest = text.partition(" ")
    lines = [Text.assemble((mark, _COLOURS[mark]), " ", readable(rest))]
    lines += [Text(readable(detail), "dim") for detail in details[:_MOST_DETAILS]]
    return Group(*(Padding(line, (0, 0, 0, 3 if place else 1)) for place, line in enumerate(lines)))


def _code(line: str) -> Text:
    return Text(readable(line), "cyan")


def _function(function: FunctionProfile) -> Iterator[RenderableType]:
    """Its findings, with rows that show them, and what to choose."""
    yield Text(f"\n{readable(function.name)}", "bold underline")
    for finding in function.sorted_findings():
        head = f"{finding.severity} [{finding.check}] {finding.message}"
        yield _item(head, [str(example) for example in finding.examples])
    lines = judge_lines(function)
    if function.checks:
        lines.append(f"checked: {', '.join(function.checks)}")
    advice = function.advice
    if advice is not None:
        lines.append(f"lane {advice.lane}: {advice.lane_reason}")
        if advice.timeout is not None:
            lines.append(f"timeout {advice.timeout:g} s: {advice.timeout_reason}")
    yield from map(Text, map(readable, lines))
    if advice is not None and advice.decorator is not None:
        yield _code(advice.decorator)


def _table(rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, head in enumerate(_HEAD):
        figure = 1 < place < len(_HEAD) - 1
        table.add_column(head, justify="right" if figure else "left", no_wrap=place > 1, overflow="fold")
    for name, counts, *others in rows:
        table.add_row(Text(readable(name), "bold"), _coloured(counts), *map(Text, others))
    return table


def _listed(rows: Sequence[Sequence[str]]) -> Iterator[Text]:
    for name, counts, *others in rows:
        yield Text.assemble((readable(name), "bold"), ": ", _coloured(counts))
        yield Text("  " + ", ".join(f"{head} {cell}" for head, cell in zip(_HEAD[2:], others, strict=True)))


def _coloured(counts: str) -> Text:
    return Text(counts, next((_COLOURS[kind] for kind in ("error", "warning") if kind in counts), _COLOURS["clean"]))


def _row(function: FunctionProfile) -> list[str]:
    facts, lane = _facts(function), function.advice.lane if function.advice else function.spec.lane
    moved = lane if lane == function.spec.lane else f"→ {lane}"
    return [function.name, _counts(function), *(facts.get(name, "-") for name in _HEAD[2:-1]), moved]


def _counts(function: FunctionProfile) -> str:
    """Returns the number of its findings, in words."""
    return _severities(function.findings) or ("clean" if function.checks or function.seconds else "not checked")


def _severities(findings: Iterable[Finding]) -> str:
    """Returns the number of errors and warnings, in words; empty without any."""
    counts = Counter(finding.severity for finding in findings)
    return ", ".join(plural(counts[kind], kind) for kind in SEVERITIES[:2] if counts[kind])


def _headline(found: Profile) -> str:
    """The verdict, in a line or two."""
    checks = [{each.check for each in mine.findings if each.severity != "info"} for mine in found.functions.values()]
    faulty, clean = sum(bool(each - _UNCHECKED) for each in checks), checks.count(set())
    unchecked = len(checks) - faulty - clean
    causes = sum(each.findings[0].check not in _UNCHECKED for each in found.root_causes())
    lines = [
        f"{faulty} of {len(checks)} functions should not be trained with as they are: {plural(causes, 'cause')}.",
        f"{unchecked} of {len(checks)} functions {'was' if unchecked == 1 else 'were'} not checked to the end.",
    ]
    said = [line for line, count in zip(lines, (faulty, unchecked), strict=True) if count]
    return "\n".join(said) or "Nothing was found that speaks against these functions."


def _to_paste(found: Profile) -> list[str]:
    """Advised options that the functions and the dispatcher lack, a line each."""
    lines = []
    for name, function in found.functions.items():
        advice, spec = function.advice, function.spec
        if advice is None or advice.decorator is None:
            continue
        if advice.lane != spec.lane or advice.timeout not in (None, spec.policy.timeout):
            lines.append(f"{advice.decorator}  # {name}")
    # Fewer workers make no step faster, and a hang holds up more of it.
    if found.step is not None and found.step.advised.workers > found.step.workers:
        lines.append(f"Dispatcher(…, workers={found.step.advised.workers})  # {found.step.workers_reason}")
    return lines


def _facts(function: FunctionProfile) -> dict[str, str]:
    """Returns the measured figures of its calls, by name."""
    times, found = function.times, function.measurement
    shown: dict[str, str] = {}
    if times is not None:
        shown["p50"], shown["p99"] = seconds(times["p50_s"]), seconds(times["p99_s"])
    if found is not None and found.cpu_s is not None:
        shown["waits"] = f"{found.waiting_share:.0%}"
        shown["memory"] = f"+{bytes_text(max(0, found.worker_bytes - found.empty_bytes))}"
    return shown


def judge_lines(function: FunctionProfile) -> list[str]:
    """Returns the lines about a judge."""
    judge = function.judge
    if not judge:
        return []
    lines, about = [], asked_about(function.spec)
    if "requests" in judge:
        cost = judge.get("cost")
        each = judge.get("cost_per_sample")
        price = "" if cost is None else f", cost {cost:.3g}, {each:.3g} a sample"
        lines.append(f"{judge['requests']} requests about {judge['rows']} {about}s{price}")
    if "flips" in judge and judge["flips"]["rows"]:
        lines.append(f"repeated: {judge['flips']['share']:.0%} of {about}s get another score")
    if "position" in judge and judge["position"]["pairs"]:
        position = judge["position"]
        lines.append(
            f"swapped: of {position['pairs']} pairs {position['first']} go to the first in both orders, "
            f"{position['second']} to the second"
        )
    if "length_bias" in judge and judge["length_bias"]["rows"]:
        lines.append(f"longer: {_shift(judge['length_bias'], about)}")
    return lines


def _shift(shift: dict[str, Any], about: str) -> str:
    """Returns a sentence on the scores of another form of the same answers, of a row or pair."""
    if not shift["up"] and not shift["down"]:
        return f"no {about}'s score changes"
    rows = f"{shift['up']} of {shift['rows']} {about}s up and {shift['down']} down"
    chance = "" if shift["p"] < CHANCE else ", which could be chance"
    return f"{shift['mean_shift']:+.3g} on average, {rows}{chance}"


def _step_lines(step: Step) -> list[str]:
    """The predicted time of a step."""
    now, best = step.now, step.advised
    step_of = f"A step of {step.prompts} prompts × {step.generations} completions"
    lines = [f"{step_of} takes {seconds(now.seconds)} of rewards{_runs_on(now)}, as the functions are."]
    if len(now.alone) > 1:
        alone = ", ".join(f"{name} {seconds(value)}" for name, value in now.alone.items())
        lines.append(f"Each alone: {alone}.")
    lines.append(f"As advised: {seconds(best.seconds)}{_runs_on(best)} ({step.workers_reason}).")
    if now.beyond:
        lines.append(f"Extrapolated: {'; '.join(now.beyond)}.")
    return lines


def _runs_on(predicted: StepPrediction) -> str:
    """The workers and threads of the prediction."""
    counts = {"worker": predicted.workers, "thread": predicted.threads}
    named = [plural(count, name) for name, count in counts.items() if count]
    return f" with {' and '.join(named)}" if named else ""


def _cut_short(found: Profile) -> list[str]:
    """Returns the parts that were left out, and why."""
    lines = []
    if found.cut_short:
        lines.append(f"Cut short by {'Ctrl-C' if found.cut_short == 'interrupted' else found.cut_short}.")
    if found.left_out:
        lines.append(f"{found.left_out} rows have no completion, and were not run.")
    for name, function in found.functions.items():
        rows = 0 if function.measurement is None else function.measurement.unmeasured
        left = [f"{rows} rows not run"] if rows else []
        if function.cut_short:
            left.append(f"checks ended by the {function.cut_short}")
        if left:
            lines.append(f"{name}: {', '.join(left)}.")
    return lines


def _summary(found: Profile) -> str:
    """The last line."""
    counts = _severities(finding for _, finding in found.findings()) or "clean"
    functions = plural(len(found.functions), "function")
    data = "completions of the data" if found.recorded else "references as completions"
    return f"{counts}: {functions} on {found.rows} rows ({data}) in {seconds(found.seconds)}"

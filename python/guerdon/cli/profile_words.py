"""A profile as blocks, which the terminal and the page show in one order: the verdict, one line a
root cause, a table, the lines to paste, the findings, the step, what was left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from guerdon._insight.diagnostics.score_totals import seconds_text as seconds
from guerdon._system.units import bytes_text
from guerdon.profile.function_profile import FunctionProfile, Profile, Step
from guerdon.profile.judge_statistics import CHANCE

__all__ = ["ProfilePart", "blocks", "judge_lines", "summary"]

_HEAD: Final = ("function", "findings", "p50", "p99", "waits", "memory", "lane")


@dataclass(frozen=True)
class ProfilePart:
    """A part of a profile.

    Attributes:
        kind: ``"line"``, ``"item"`` (of a list), ``"heading"``, ``"code"`` or ``"table"``.
        mark: Severity of what it says, or ``"clean"``.
        details: Of an item: lines that show it.
        rows: Of a table: its cells, the heads first.
    """

    kind: str
    text: str = ""
    mark: str = ""
    details: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


def blocks(found: Profile, *, verbose: bool) -> Iterator[ProfilePart]:
    """The parts of a profile.

    Args:
        verbose: With all findings, and the reasons of what is advised.
    """
    yield ProfilePart("line", _headline(found), "clean" if found.clean else "error")
    yield from (_item(str(each)) for each in found.root_causes())
    yield ProfilePart("table", rows=[_HEAD, *map(_row, found.functions.values())])
    lines = {name: _paste(function) for name, function in found.functions.items()}
    if any(lines.values()):
        yield ProfilePart("line", "To paste:")
        yield from (ProfilePart("code", f"{line}  # {name}") for name, line in lines.items() if line is not None)
    for function in found.functions.values() if verbose else ():
        yield from _function(function)
    if found.step is not None:
        yield from (ProfilePart("line", line) for line in _step_lines(found.step))
    yield from (ProfilePart("line", line, "warning") for line in _cut_short(found))


def _item(text: str, details: Sequence[str] = ()) -> ProfilePart:
    """An item of a text that begins with its severity."""
    mark, _, rest = text.partition(" ")
    return ProfilePart("item", rest, mark, details)


def _function(function: FunctionProfile) -> Iterator[ProfilePart]:
    """Its findings, with rows that show them, and what to choose."""
    yield ProfilePart("heading", function.name)
    for finding in function.sorted_findings():
        head = f"{finding.severity} [{finding.check}] {finding.message}"
        yield _item(head, [str(example) for example in finding.examples])
    yield from (ProfilePart("line", line) for line in judge_lines(function))
    if function.checks:
        yield ProfilePart("line", f"checked: {', '.join(function.checks)}")
    advice = function.advice
    if advice is not None:
        yield ProfilePart("line", f"lane {advice.lane}: {advice.lane_reason}")
        if advice.timeout is not None:
            yield ProfilePart("line", f"timeout {advice.timeout:g} s: {advice.timeout_reason}")
        if advice.decorator is not None:
            yield ProfilePart("code", advice.decorator)


def _row(function: FunctionProfile) -> list[str]:
    facts, lane = _facts(function), function.advice.lane if function.advice else function.spec.lane
    moved = lane if lane == function.spec.lane else f"→ {lane}"
    return [function.name, _counts(function), *(facts.get(name, "-") for name in _HEAD[2:-1]), moved]


def _share(value: float | None) -> str:
    """A share of the run time."""
    return "-" if value is None else f"{min(value, 9.99):.0%}"


def _counts(function: FunctionProfile) -> str:
    """Returns the number of its findings, in words."""
    numbers = [(sum(f.severity == kind for f in function.findings), kind) for kind in ("error", "warning")]
    parts = [f"{number} {kind}{'s' if number > 1 else ''}" for number, kind in numbers if number]
    return ", ".join(parts) or ("clean" if function.checks or function.seconds else "not checked")


def _headline(found: Profile) -> str:
    """The verdict in a line."""
    faulty = [name for name, mine in found.functions.items() if any(each.severity != "info" for each in mine.findings)]
    if not faulty:
        return "Nothing was found that speaks against these functions."
    causes = len(found.root_causes())
    return f"{len(faulty)} of {len(found.functions)} functions should not be trained with as they are: {causes} cause{'s' if causes > 1 else ''}."


def _paste(function: FunctionProfile) -> str | None:
    """The line to paste; None where the function has all that is advised."""
    advice, spec = function.advice, function.spec
    if advice is None or advice.decorator is None:
        return None
    same = advice.lane == spec.lane and advice.timeout in (None, spec.policy.timeout)
    return None if same else advice.decorator


def _facts(function: FunctionProfile) -> dict[str, str]:
    """Returns the measured figures of its calls, by name."""
    times, found = function.times, function.measurement
    shown: dict[str, str] = {}
    if times is not None:
        shown["p50"], shown["p99"] = seconds(times.p50), seconds(times.p99)
    if found is not None and found.cpu_s is not None:
        shown["waits"] = _share(found.waiting_share)
        shown["memory"] = f"+{bytes_text(max(0, found.worker_bytes - found.empty_bytes))}"
    return shown


def judge_lines(function: FunctionProfile) -> list[str]:
    """Returns the lines about a judge."""
    judge = function.judge
    if not judge:
        return []
    lines = []
    if "requests" in judge:
        cost = judge.get("cost")
        each = judge.get("cost_per_sample")
        price = "" if cost is None else f", cost {cost:.3g}, {each:.3g} a sample"
        lines.append(f"{judge['requests']} requests about {judge['rows']} rows{price}")
    if "flips" in judge and judge["flips"]["rows"]:
        lines.append(f"repeated: {judge['flips']['share']:.0%} of rows get another score")
    if "position" in judge and judge["position"]["pairs"]:
        position = judge["position"]
        lines.append(
            f"swapped: of {position['pairs']} pairs {position['first']} go to the first in both orders, "
            f"{position['second']} to the second"
        )
    if "length_bias" in judge and judge["length_bias"]["rows"]:
        lines.append(f"longer: {_shift(judge['length_bias'])}")
    return lines


def _shift(shift: dict[str, Any]) -> str:
    """Returns a sentence on the scores of another form of the same answers."""
    if not shift["up"] and not shift["down"]:
        return "no row's score changes"
    rows = f"{shift['up']} of {shift['rows']} rows up and {shift['down']} down"
    chance = "" if shift["p"] < CHANCE else ", which could be chance"
    return f"{shift['mean_shift']:+.3g} on average, {rows}{chance}"


def _step_lines(step: Step) -> list[str]:
    """The predicted time of a step."""
    now, best = step.now, step.advised
    workers = f"{now.workers} worker{'s' if now.workers > 1 else ''}"
    step_of = f"A step of {now.prompts} prompts × {now.generations} completions"
    longest = (
        "" if seconds(now.high) == seconds(now.seconds) else f", up to {seconds(now.high)} if a slow call comes last"
    )
    lines = [f"{step_of} takes {seconds(now.seconds)} of rewards with {workers}{longest}, as the functions are."]
    if len(now.alone) > 1:
        alone = ", ".join(f"{name} {seconds(value)}" for name, value in now.alone.items())
        lines.append(f"Each alone: {alone}.")
    lines.append(f"As advised: {seconds(best.seconds)} with workers={best.workers} ({step.workers_reason}).")
    if now.beyond:
        lines.append(f"Extrapolated: {'; '.join(now.beyond)}.")
    return lines


def _cut_short(found: Profile) -> list[str]:
    """Returns the parts that were left out, and why."""
    lines = []
    if found.cut_short:
        lines.append(f"Cut short by {'Ctrl-C' if found.cut_short == 'interrupted' else found.cut_short}.")
    for name, function in found.functions.items():
        rows = 0 if function.measurement is None else function.measurement.unmeasured
        left = [f"{rows} rows not run"] if rows else []
        if function.cut_short:
            left.append(f"checks ended by the {function.cut_short}")
        if left:
            lines.append(f"{name}: {', '.join(left)}.")
    return lines


def summary(found: Profile) -> str:
    """The last line."""
    kinds = [finding.severity for _, finding in found.findings()]
    counted = [
        f"{kinds.count(kind)} {kind}{'s' if kinds.count(kind) > 1 else ''}"
        for kind in ("error", "warning")
        if kind in kinds
    ]
    number = len(found.functions)
    data = "completions of the data" if found.recorded else "references as completions"
    return f"{', '.join(counted) or 'clean'}: {number} function{'s' if number != 1 else ''} on {found.rows} rows ({data}) in {seconds(found.seconds)}"

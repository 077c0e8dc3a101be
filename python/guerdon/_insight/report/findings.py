"""The few sentences with which a report opens: what to look at, the worst first.

Each finding is a plain sentence with its figures; ``severity`` is ``"warning"`` (look at it) or
``"info"``. `LIMITS` holds what decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from guerdon._insight.report.charts import format_seconds as seconds
from guerdon._insight.report.charts import format_share

__all__ = ["LIMITS", "findings"]

LIMITS: Final = {
    "failed_share": 0.01,
    "zero_spread_share": 0.3,
    "constant_share": 0.98,
    "correlated": 0.95,
    "opposed": -0.3,
    "tail": 10.0,
    "slow_s": 1.0,
    "waits_s": 0.1,
    "few": 100,
    "quiet": 64,
    "abstained": 0.5,
    "fallback": 0.5,
    "work": 0.1,
    "errors": 3.0,
    "repeated": 0.1,
    "groups": 12,
}
"""Shares, correlations, seconds, rows, seconds of run time for each of waiting, standard errors,
and groups of a tenth, beyond which something is worth a sentence."""

_WAITS: Final = {
    "process": "for a free worker{workers}: `guerdon profile` says which lane it should have, and how many workers.",
    "thread": 'for a free thread: a function that computes belongs in a worker (`lane="process"`); one that waits may have more '
    "threads (`limit=Limit(concurrency=…)`).",
    "asyncio": "because it blocks its event loop (`guerdon profile` tells), or because its limit holds them back.",
    "repeated": "and {share} of its attempts were repeats: its server refuses them (429), or they failed and were retried.",
    "": "for a free worker or thread: `guerdon profile` says which lane it should have, and how many workers.",
}
"""Reasons why calls of a function wait, by its lane; "repeated" is for calls made again."""

_MOST_OF_A_KIND: Final = 3
_MOST: Final = 12

Finding = dict[str, Any]


def findings(figures: dict[str, Any]) -> list[Finding]:
    """Returns the findings in these aggregates, warnings first, at most a dozen."""
    found: list[Finding] = []
    for kind in (
        _reading,
        _trend,
        _failures,
        _fallbacks,
        _spread,
        _constant,
        _pairs,
        _times,
        _waiting,
        _versions,
        _cost,
    ):
        found += _some(list(kind(figures)))
    order = sorted(found, key=lambda each: each["severity"] != "warning")
    return order[:_MOST]


def _some(found: list[Finding]) -> list[Finding]:
    kept = found[:_MOST_OF_A_KIND]
    if len(found) > len(kept):
        more = len(found) - len(kept)
        kept[-1]["message"] += f" The same holds for {more} more, see the tables or --json."
    return kept


def _finding(severity: str, section: str, message: str) -> Finding:
    return {"severity": severity, "section": section, "message": message}


def _reading(figures: dict[str, Any]) -> Iterator[Finding]:
    """Yields notes on the journal itself."""
    if figures["notes"]:
        yield _finding("warning", "about", f"Not all of the journal could be read: {figures['notes'][0]}.")
    for each in figures["restarts"]:
        first, last = each["first"], each["last"]
        steps = f"Step {first:,} was" if first == last else f"Steps {first:,} to {last:,} were"
        yield _finding(
            "warning",
            "about",
            f"{steps} written by {each['processes']} processes, one after another (run {each['run']!r}, rank {each['rank']}): "
            "rows of a run that was started again count too. Give each start a run= of its own, or remove the folder before.",
        )
    if len(figures["runs"]) > 1:
        message = f"{len(figures['runs'])} runs are shown together, those of the same step as one; --run NAME shows one of them."
        yield _finding("info", "about", message)


def _trend(figures: dict[str, Any]) -> Iterator[Finding]:
    axis, several = figures["axis"], len(figures["functions"]) > 1
    samples = max((each["rows"] for each in figures["functions"].values()), default=0)
    of = [("the total reward", figures["total"])] if several else list(figures["functions"].items())
    for name, series in of:
        mean = series["over_time"]["mean"]
        early, late = _ends(mean)
        if early is None or late is None:
            return
        # The mean of a tenth of a short run moves by chance.
        chance = LIMITS["errors"] * math.sqrt(2 / max(1.0, samples * _tenth(mean)))
        noise = (series["std"] or 0.0) * max(0.1, chance)
        moved = "rose" if late - early > noise else "fell" if early - late > noise else "stayed about the same"
        figures_of = (
            f"from {_plain(early)} to {_plain(late)}" if moved != "stayed about the same" else f"near {_plain(late)}"
        )
        steps = f"{axis['kind']} {axis['first'][0]:,} to {axis['last'][-1]:,}"
        severity = "warning" if moved == "fell" else "info"
        yield _finding(
            severity, "rewards", f"From {steps}, {name} {moved}: {figures_of} (means of the first and last tenth)."
        )


def _failures(figures: dict[str, Any]) -> Iterator[Finding]:
    of = sorted(figures["functions"].items(), key=lambda each: -(each[1]["failed_share"] or 0.0))
    failed = 0
    for name, each in of:
        share = each["failed_share"] or 0.0
        failed += round(share * each["rows"])
        if share < LIMITS["failed_share"]:
            continue
        reasons = [reason for reason in figures["failures"] if reason["function"] == name]
        why = f" Most common ({reasons[0]['count']:,}): {_head(reasons[0]['reason'])}" if reasons else ""
        worst = _worst(figures, each["over_time"]["failed_share"], share)
        yield _finding("warning", "failures", f"{name} failed on {format_share(share)} of its samples{worst}.{why}")
    if not failed:
        yield _finding("info", "failures", "No call failed.")


def _fallbacks(figures: dict[str, Any]) -> Iterator[Finding]:
    for name, each in figures["functions"].items():
        share = each["fallback_share"] or 0.0
        if share >= LIMITS["fallback"] and share * each["rows"] >= LIMITS["quiet"]:
            yield _finding(
                "warning",
                "failures",
                f"{name} has {format_share(share)} of its scores from its fallback: its own judge failed there. One reason: "
                f"{_head(each['fallback_reason'] or 'unknown')}",
            )


def _spread(figures: dict[str, Any]) -> Iterator[Finding]:
    total = figures["total"]
    share = total["zero_spread_share"]
    if share is None:
        return
    if not share:
        yield _finding(
            "info", "groups", "Every group tells its samples apart: none has the same total reward throughout."
        )
        return
    severity = "warning" if share >= LIMITS["zero_spread_share"] else "info"
    early, late = _ends(total["over_time"]["zero_spread_share"])
    trend = ""
    if early is not None and late is not None and abs(late - early) >= 0.05:
        trend = f", {format_share(early)} in the first tenth and {format_share(late)} in the last"
    same = total["zero_spread"]
    which = ""
    if same and total["zero_spread_best"] + total["zero_spread_worst"]:
        best, worst = total["zero_spread_best"] / same, total["zero_spread_worst"] / same
        which = f" Of these {format_share(best)} have all samples at the highest reward (too easy), {format_share(worst)} at the lowest (too hard)."
    yield _finding(
        severity,
        "groups",
        f"{format_share(share)} of the groups teach nothing: all their samples have the same total reward{trend}.{which}",
    )


def _constant(figures: dict[str, Any]) -> Iterator[Finding]:
    for name, each in figures["functions"].items():
        abstained = each["status"].get("abstained", 0)
        if abstained >= LIMITS["quiet"] and not each["rewards"]:
            yield _finding(
                "warning",
                "distributions",
                f"{name} abstained on all of its {abstained:,} samples and gave no reward: does it forget a return?",
            )
            continue
        if abstained >= LIMITS["quiet"] and abstained >= LIMITS["abstained"] * each["rows"]:
            share = format_share(abstained / each["rows"])
            yield _finding(
                "warning", "distributions", f"{name} abstained on {share} of its samples: they get no reward from it."
            )
        if each["rewards"] < LIMITS["few"]:
            continue
        counts = each["histogram"]["counts"]
        values = each["histogram"].get("values")
        if each["min"] == each["max"]:
            yield _finding(
                "warning",
                "distributions",
                f"{name} gave {_plain(each['min'])} to every sample: it tells nothing apart.",
            )
        elif values and max(counts) >= LIMITS["constant_share"] * sum(counts):
            most = counts.index(max(counts))
            share = counts[most] / sum(counts)
            yield _finding(
                "warning",
                "distributions",
                f"{name} gave the reward {_plain(values[most])} to {format_share(share)} of the samples: it hardly distinguishes them.",
            )
        else:
            shares = each["over_time"]["zero_spread_share"]
            early, late = _ends(shares)
            enough = each["groups"] * _tenth(shares) >= LIMITS["groups"]
            if enough and late is not None and early is not None and late >= LIMITS["constant_share"] > early:
                yield _finding(
                    "warning",
                    "groups",
                    f"{name} no longer tells samples of a group apart: {format_share(late)} of its groups had one reward in the last "
                    f"tenth, {format_share(early)} in the first.",
                )


def _pairs(figures: dict[str, Any]) -> Iterator[Finding]:
    names, matrix = figures["correlation"]["functions"], figures["correlation"]["matrix"]
    pairs = [
        (matrix[one][other], names[one], names[other])
        for one in range(len(names))
        for other in range(one + 1, len(names))
        if matrix[one][other] is not None
    ]
    for r, one, other in sorted(pairs, key=lambda each: -abs(each[0])):
        if r >= LIMITS["correlated"]:
            yield _finding(
                "info",
                "table",
                f"{one} and {other} say nearly the same (correlation {r:.2f}): one may be enough.",
            )
        elif r <= LIMITS["opposed"]:
            yield _finding("warning", "table", f"{one} and {other} pull in opposite directions (correlation {r:.2f}).")


def _times(figures: dict[str, Any]) -> Iterator[Finding]:
    of = [(each["run_s"]["p99"] or 0.0, name, each) for name, each in figures["functions"].items()]
    for p99, name, each in sorted(of, key=lambda one: -one[0])[:1]:
        p50 = each["run_s"]["p50"]
        if not p50:
            return
        tail = p99 / p50 >= LIMITS["tail"] and p99 >= LIMITS["slow_s"]
        rare = "one in a hundred" if each["rows"] >= LIMITS["few"] else "the longest"
        message = f"{name} has the longest calls: half of them take over {seconds(p50)}, {rare} over {seconds(p99)}"
        yield _finding(
            "warning" if tail else "info",
            "latency",
            (f"{message} ({p99 / p50:.0f} times as long)." if tail else f"{message}.") + _most_time(figures, name),
        )


def _waiting(figures: dict[str, Any]) -> Iterator[Finding]:
    """Yields the functions whose calls wait longer than they run, and for what."""
    for name, each in figures["functions"].items():
        waited, ran = each["queue_s"]["p50"] or 0.0, each["run_s"]["p50"] or 0.0
        judge = each["prompt_tokens"] or each["completion_tokens"] or each["lane"] == "http"
        # Requests wait for no other function.
        if waited <= max(ran, LIMITS["waits_s"]) or not (
            _explains(figures, each, waited) or (judge and waited > LIMITS["slow_s"])
        ):
            continue
        times = f"wait longer than they run ({seconds(waited)} and {seconds(ran)}, medians)"
        if judge:
            message = f"Requests of {name} {times}: its limit holds them back, or the server does (429)."
        else:
            message = f"Calls of {name} {times}, {_waits_for(figures, each)}"
        yield _finding("warning", "latency", message)


def _waits_for(figures: dict[str, Any], function: dict[str, Any]) -> str:
    """Returns what the calls of a function wait for, as far as its lane and its attempts tell."""
    share, workers = function["repeated_share"] or 0.0, figures["workers"]
    why = _WAITS["repeated"] if share >= LIMITS["repeated"] else _WAITS.get(function["lane"] or "", _WAITS[""])
    return why.format(workers=f" (workers={workers})" if workers else "", share=format_share(share))


def _most_time(figures: dict[str, Any], longest: str) -> str:
    """Returns a sentence on the function whose calls take the most time together: a step waits for
    it."""
    totals = {name: each["run_total_s"] or 0.0 for name, each in figures["functions"].items()}
    whole = sum(totals.values())
    if len(totals) < 2 or whole < LIMITS["slow_s"]:
        return ""
    most = max(totals, key=totals.__getitem__)
    share = (
        f"{format_share(totals[most] / whole)} of the time of all calls ({seconds(totals[most])} of {seconds(whole)})"
    )
    return f" {'It' if most == longest else most} takes {share}."


def _explains(figures: dict[str, Any], function: dict[str, Any], waited: float) -> bool:
    """Returns whether a step's calls run long enough that others wait for them, rather than for
    workers to start."""
    axis = figures["axis"]
    steps = sum(last - first + 1 for first, last in zip(axis["first"], axis["last"], strict=True))
    work = (function["run_s"]["p50"] or 0.0) * function["rows"] / max(1, steps)
    least = LIMITS["work"] if function["rows"] >= LIMITS["few"] else 1.0
    return bool(work >= least * waited)


def _versions(figures: dict[str, Any]) -> Iterator[Finding]:
    for name, each in figures["functions"].items():
        if len(each["versions"]) > 1:
            latest = each["versions"][-1]
            yield _finding(
                "info",
                "rewards",
                f"{name} has {len(each['versions'])} versions in this journal; the latest begins at {figures['axis']['kind']} "
                f"{latest['first']:,}. Rewards before and after may not be comparable.",
            )


def _cost(figures: dict[str, Any]) -> Iterator[Finding]:
    cost = sum(each["cost"] or 0.0 for each in figures["functions"].values())
    tokens = sum(
        (each["prompt_tokens"] or 0.0) + (each["completion_tokens"] or 0.0) for each in figures["functions"].values()
    )
    if cost:
        rows = sum(each["rows"] for each in figures["functions"].values() if each["cost"])
        message = f"Judges cost {cost:,.2f} in all, {1000 * cost / rows:,.2f} for each thousand samples they scored"
        yield _finding("info", "table", f"{message}, with {tokens:,.0f} tokens.")
    elif tokens:
        yield _finding("info", "table", f"Judges used {tokens:,.0f} tokens; no prices are given.")


def _tenth(values: list[float | None]) -> float:
    """The part of the known values that `_ends` takes from each end."""
    known = sum(value is not None for value in values)
    return max(1, known // 10) / max(1, known)


def _ends(values: list[float | None]) -> tuple[float | None, float | None]:
    """The means of the first and of the last tenth."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return None, None
    tenth = max(1, len(known) // 10)
    return sum(known[:tenth]) / tenth, sum(known[-tenth:]) / tenth


def _worst(figures: dict[str, Any], shares: list[float | None], whole: float) -> str:
    known = [(share, at) for at, share in enumerate(shares) if share is not None]
    if len(known) < 2 or (worst := max(known))[0] < 2 * whole:
        return ""
    axis, at = figures["axis"], worst[1]
    first, last = axis["first"][at], axis["last"][at]
    steps = f"{first:,}" if first == last else f"{first:,} to {last:,}"
    return f", most of all at {axis['kind']} {steps} ({format_share(worst[0])})"


def _head(text: str) -> str:
    line = text.splitlines()[0] if text else ""
    line = line if len(line) <= 120 else f"{line[:117]}…"
    return line if line.endswith((".", "…", "!")) else f"{line}."


def _plain(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"

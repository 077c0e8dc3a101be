"""Faults of a judge: another score for the same request, more for longer texts, more for the place
in which it sees one.

- A bias is reported when a sign test excludes chance and it is at least 5 % of the range.
- Each row is its own control: only forms of one answer are compared, never answers.
- Gates, caches and retries of the judge are off; its limits and price are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from guerdon._functions.spec import Comparisons, FunctionSpec
from guerdon._lanes.http.endpoints import unreachable
from guerdon._system.safe_text import one_line
from guerdon.dispatcher import Dispatcher
from guerdon.limits import Limit
from guerdon.profile.finding import Example, Finding, excerpt
from guerdon.profile.function_profile import FunctionProfile
from guerdon.profile.judge_plan import asked_about
from guerdon.profile.judge_statistics import Shift, shift_of, sign_test
from guerdon.profile.measurement import Measurement
from guerdon.profile.subject import Case, ListedSpec, Subject
from guerdon.results.status import Status

__all__ = ["check_judge", "longer"]

_REPEATS: Final = 3
_FEW_AT_ONCE: Final = 2
_LOOK_S: Final = 0.25
_FLIPPING_ROWS: Final = 0.1
_FLIPPING_SPREAD: Final = 0.05
_PREAMBLE: Final = (
    "Thank you for this question. I will go through it carefully, take the time that it needs, keep to what was asked, "
    "and give my answer at the end, after I have considered every part of it in turn. "
) * 3

Scored = Callable[[Sequence[Case], int], Any]
"""Scores samples, in groups of this size."""


def longer(text: str) -> str:
    """Returns the same answer after empty words, and given three times."""
    return f"{_PREAMBLE}\n\n{text}\n\nIn other words, and to say the same once more: {text}\n\nIn sum: {text}"


def check_judge(
    unit: Sequence[FunctionSpec],
    subject: Subject,
    cases: Sequence[Case],
    wanted: int,
    max_cost: float | None,
    batch_timeout: float,
) -> list[FunctionProfile]:
    """Ask a judge about some rows in several forms.

    Args:
        unit: The function and the columns that its requests fill too.
        subject: With the rows.
        cases: Completions of the rows.
        wanted: How many rows, or pairs.
        max_cost: Of all requests, enforced by the engine; for judges with a price.
        batch_timeout: Seconds of each form.

    Returns: The profile of each column, without advice. Its run times are those of the requests
        that were answered, with as many in flight as the judge allows; `checks` are those that had
        enough answers to say something.
    """
    leader = unit[0]
    priced = any(plan.cost.price for plan in leader.plans)
    plain = [_plain(spec) for spec in unit]
    profiles = [FunctionProfile(spec) for spec in unit]
    cap = max_cost if priced else None
    first: Any = None
    try:
        if (refusal := unreachable(leader)) is not None:
            raise NoAnswerError(refusal)
        chosen = cases[:wanted]

        def batch(samples: Sequence[Case], size: int = 1) -> dict[str, Any]:
            columns = subject.columns_of(samples)
            return {**columns, "num_generations": size, "batch_timeout": batch_timeout}

        if leader.composition is None:
            # The first time with few requests at once, to learn what more of them cost.
            with _dispatcher([_few_at_once(spec) for spec in plain], cap) as slowly:
                first = _first_scores(slowly, leader, batch(chosen))
            spent = first.usage.get(leader.name, {}).get("cost", 0.0)
            cap = None if cap is None else max(1e-9, cap - (spent if spent == spent else 0.0))
        with _dispatcher(plain, cap) as dispatcher:

            def score(samples: Sequence[Case], size: int) -> Any:
                return dispatcher.score(**batch(samples, size))

            if asked_about(leader) == "pair":
                _compared(profiles[0], cases, _pairs(subject, cases)[:wanted], score)
            else:
                _rated(profiles, chosen, score, first)
    except NoAnswerError as error:
        message = f"No request got a score, so nothing was checked: {one_line(str(error), 200)}. Look at the server, its address and key."
        for mine in profiles:
            mine.findings.append(Finding("fails", "error", message))
    return profiles


class NoAnswerError(Exception):
    """The judge scored nothing; the message is the first error."""


def _dispatcher(unit: Sequence[FunctionSpec], max_cost: float | None) -> Dispatcher:
    return Dispatcher([ListedSpec(spec) for spec in unit], max_failure_rate=1.0, max_cost=max_cost)


def _first_scores(dispatcher: Dispatcher, leader: FunctionSpec, batch: dict[str, Any]) -> Any:
    """The result of the first requests. They are given up once each endpoint has refused some, has
    answered none, and is asked no more for now.

    Raises:
        NoAnswerError: None of them has a score.
    """
    pending = dispatcher.submit(**batch)
    while True:
        try:
            return _answered_at_all(pending.result(timeout=_LOOK_S))
        except TimeoutError:
            endpoints = dispatcher.endpoints(leader.name)
            if all(one.failed and not one.answered and one.breaker != "closed" for one in endpoints):
                pending.cancel()


def _answered_at_all(result: Any) -> Any:
    """The result of the first requests, if they have any score."""
    failures = result.failures()
    if failures and np.isnan(result.rewards).all():
        told = (failure.reason for failure in failures if failure.status is not Status.CANCELLED)
        raise NoAnswerError(next(told, failures[0].reason))
    return result


def _plain(spec: FunctionSpec) -> FunctionSpec:
    """Without gates, caches and retries, so that there are no more requests than announced; a
    comparison asks about each pair once, in the order given."""
    spec = _without_retries(spec)
    if spec.composition is not None and spec.composition.comparisons is not None:
        once = Comparisons("circular", None, "win_rate", both_orders=False)
        spec = replace(spec, composition=replace(spec.composition, comparisons=once))
    policy = replace(spec.policy, on_failure="nan", max_failure_rate=1.0)
    return replace(spec, run_if=None, cache=None, pure=False, policy=policy)


def _without_retries(spec: FunctionSpec) -> FunctionSpec:
    return replace(spec.with_members(_without_retries), policy=replace(spec.policy, retries=0))


def _few_at_once(spec: FunctionSpec) -> FunctionSpec:
    limit = replace(spec.policy.limit or Limit(), concurrency=min(spec.concurrency or _FEW_AT_ONCE, _FEW_AT_ONCE))
    return replace(spec, policy=replace(spec.policy, limit=limit))


def _rated(profiles: Sequence[FunctionProfile], rows: Sequence[Case], score: Scored, first: Any) -> None:
    full = [_answered_at_all(score(rows, 1))] if first is None else []
    full += [score(rows, 1) for _ in range(_REPEATS - 1)]
    results = full if first is None else [first, *full]
    padded = score([replace(each, completion=_changed(each.completion, longer)) for each in rows], 1)
    for column, mine in enumerate(profiles):
        _used(mine, [*results, padded], results, _REPEATS * len(rows))
        _failed(mine, results, rows)
        seconds = _seconds(full, column)
        mine.measurement = Measurement(mine.spec.shape, seconds=seconds)
        if first is not None and seconds and (few := _seconds([first], column)):
            levels = [(_FEW_AT_ONCE, float(np.median(few))), (len(rows), float(np.median(seconds)))]
            mine.judge["levels"] = [list(level) for level in levels]
        scores = np.stack([result.rewards[..., column].ravel() for result in results])
        _flips(mine, scores, rows, results)
        counts = (~np.isnan(scores)).sum(axis=0)
        own = np.where(counts > 0, np.nansum(scores, axis=0) / np.maximum(counts, 1), np.nan)
        changed = padded.rewards[..., column].ravel().tolist()
        _biased(mine, shift_of(own.tolist(), changed), rows, own.tolist(), changed, padded)


def _seconds(results: Sequence[Any], column: int) -> list[float]:
    return [float(each) for result in results for each in result.run_s[..., column].ravel() if each > 0]


def _answered(mine: FunctionProfile, check: str, rows: int, asked: int, results: Sequence[Any]) -> None:
    """Records whether a check had answers: without them it is not clean."""
    if rows >= max(1, asked / 2):
        mine.checks.append(check)
        return
    reasons = (each.reason for result in results for each in result.failures() if each.function == mine.name)
    message = (
        f"{check} had an answer for {rows} of {asked} {asked_about(mine.spec)}s only: "
        f"{one_line(next(reasons, 'no score'), 200)}. Look at what the judge says there."
    )
    mine.findings.append(Finding("unchecked", "warning", message))


def _flips(mine: FunctionProfile, scores: Any, rows: Sequence[Case], results: Sequence[Any]) -> None:
    """Rows or pairs whose score changes from one time to the next; `scores` has a row a time."""
    whole = ~np.isnan(scores).any(axis=0)
    _answered(mine, "flips", int(whole.sum()), len(rows), results)
    places, scores = np.flatnonzero(whole), scores[:, whole]
    if not scores.size:
        return
    spread = scores.max(axis=0) - scores.min(axis=0)
    reach = float(scores.max() - scores.min())
    share = float((spread > 0).mean())
    relative = float(spread.mean()) / reach if reach > 0 else 0.0
    mine.judge["flips"] = {"rows": len(places), "share": share, "spread_share_of_range": relative}
    if share >= _FLIPPING_ROWS and relative >= _FLIPPING_SPREAD:
        composition, about = mine.spec.composition, asked_about(mine.spec)
        votes = ", or votes=5" if composition is None or composition.votes else ""
        worst = [int(each) for each in np.argsort(-spread)[:5] if spread[each] > 0]
        mine.findings.append(
            Finding(
                "flips",
                "warning",
                f"The same {'comparison' if about == 'pair' else 'request'}, {len(scores)} times, gets different scores on {share:.0%} of "
                f"{len(places)} {about}s, apart by {relative:.0%} of the range on average. Set temperature=0{votes}.",
                tuple(
                    Example(
                        row.row,
                        excerpt(row.completion),
                        {f"time {time}": float(score) for time, score in enumerate(scores[:, each], 1)},
                    )
                    for row, each in ((rows[places[each]], each) for each in worst)
                ),
            )
        )


def _biased(
    mine: FunctionProfile,
    shift: Shift,
    rows: Sequence[Case],
    own: Sequence[float],
    other: Sequence[float],
    result: Any,
) -> None:
    """Records the shift from one form of the answers to that of `result`, with a finding if it is
    clear."""
    _answered(mine, "length-bias", shift.rows, len(rows), [result])
    mine.judge["length_bias"] = shift.to_dict()
    if not shift.clear:
        return
    more = shift.mean > 0
    order = sorted(range(len(own)), key=lambda row: -(other[row] - own[row]) if more else other[row] - own[row])
    examples = tuple(
        Example(rows[row].row, excerpt(rows[row].completion), {"as it is": own[row], "changed": other[row]})
        for row in order[:5]
        if own[row] == own[row] and other[row] == other[row]
    )
    advice = (
        "Tell it in the prompt that length does not count, and add a limit on length that is not the judge's."
        if more
        else "That may be meant; a policy will learn to be brief."
    )
    mine.findings.append(
        Finding(
            "length-bias",
            "warning" if more else "info",
            f"It gives {'more' if more else 'less'} for the same answer padded and repeated: {shift.mean:+.3g} on average ({shift.share:+.0%} of the "
            f"range), {shift.up} of {shift.rows} {asked_about(mine.spec)}s up and {shift.down} down. {advice}",
            examples,
        )
    )


def _compared(mine: FunctionProfile, rows: Sequence[Case], pairs: Sequence[tuple[int, int]], score: Scored) -> None:
    """Comparisons: the same pair in both orders, again, and with one of the two padded."""
    both = [(rows[one].completion, rows[other].completion) for one, other in pairs]
    first_rows = [rows[one] for one, _ in pairs]

    def ask(chosen: Sequence[tuple[Any, Any]]) -> Any:
        asked = zip(first_rows, chosen, strict=True)
        return score([replace(row, completion=each) for row, pair in asked for each in pair], 2)

    first = _answered_at_all(ask(both))
    swapped, again = ask([(b, a) for a, b in both]), ask(both)
    padded = [(a, _changed(a, longer)) for a, _ in both]
    straight, other = ask(padded), ask([(b, a) for a, b in padded])
    own = [first, swapped, again]
    wins, wins_swapped, wins_again = (result.rewards[:, 0, 0].astype(float) for result in own)
    shares = (1.0 - straight.rewards[:, 0, 0] + other.rewards[:, 0, 0]) / 2.0
    _used(mine, [*own, straight, other], own, 3 * len(pairs))
    _failed(mine, [first], [row for row in first_rows for _ in range(2)])
    mine.measurement = Measurement(mine.spec.shape, seconds=_seconds(own, 0))
    whole = ~(np.isnan(wins) | np.isnan(wins_swapped))
    place_one = int((whole & (wins == 1) & (wins_swapped == 1)).sum())
    place_two = int((whole & (wins == 0) & (wins_swapped == 0)).sum())
    count = int(whole.sum())
    _answered(mine, "position-bias", count, len(pairs), [swapped])
    p = sign_test(place_one, place_two)
    mine.judge["position"] = {"pairs": count, "first": place_one, "second": place_two, "p": p}
    if count and p < 0.01 and (place_one + place_two) >= _FLIPPING_ROWS * count:
        side = "first" if place_one > place_two else "second"
        wrong = [int(each) for each in np.flatnonzero(whole & (wins == wins_swapped) & (wins != 0.5))[:5]]
        mine.findings.append(
            Finding(
                "position-bias",
                "warning",
                f"It prefers what it sees {side}: on {max(place_one, place_two)} of {count} pairs the {side} wins in both orders. Keep "
                "both_orders=True, which makes ties of them, and ask for reasons before the verdict.",
                tuple(
                    Example(
                        first_rows[each].row, excerpt(both[each][0]), {"first wins": 1.0 if side == "first" else 0.0}
                    )
                    for each in wrong
                ),
            )
        )
    _flips(mine, np.stack([wins, wins_again]), first_rows, [first, again])
    shift = shift_of([0.5] * len(pairs), shares.tolist())
    shift = replace(shift, share=shift.mean)  # of a win
    _biased(mine, shift, first_rows, [0.5] * len(pairs), shares.tolist(), other)


def _pairs(subject: Subject, rows: Sequence[Case]) -> list[tuple[int, int]]:
    """Pairs of rows with different completions, of one group where there are such."""
    size = subject.num_generations if subject.samples() else 1
    found = []
    for one in range(len(rows)):
        group = range(one + 1, min(len(rows), (one // size + 1) * size)) if size > 1 else range(one + 1, one + 2)
        other = next(
            (each for each in group if each < len(rows) and rows[each].completion != rows[one].completion), None
        )
        if other is not None:
            found.append((one, other))
    return found


def _changed(completion: Any, form: Callable[[str], str]) -> Any:
    """A completion with another text, of a conversation the last message's."""
    if not (isinstance(completion, (list, tuple)) and completion and isinstance(completion[-1], Mapping)):
        return form(completion if isinstance(completion, str) else str(completion))
    last = completion[-1]
    return [*completion[:-1], {**last, "content": _changed_content(last.get("content"), form)}]


def _changed_content(content: Any, form: Callable[[str], str]) -> Any:
    """Puts the text of all parts into one, behind the other parts (images)."""
    if not isinstance(content, (list, tuple)):
        return form("" if content is None else str(content))
    is_text = [isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in content]
    text = "".join(part["text"] for part, text in zip(content, is_text, strict=True) if text)
    others = [part for part, text in zip(content, is_text, strict=True) if not text]
    return [*others, {"type": "text", "text": form(text)}]


def _used(mine: FunctionProfile, results: Sequence[Any], own: Sequence[Any], samples: int) -> None:
    """Requests and cost, of all forms, and a sample; and the requests that the server put off, as a
    run asks for many more at once."""
    used = [result.usage[mine.name] for result in results if mine.name in result.usage]
    if used:
        cost = sum(result.usage[mine.name]["cost"] for result in own if mine.name in result.usage) / max(1, samples)
        total = sum(each["cost"] for each in used)
        tokens = sum(each["prompt_tokens"] + each["completion_tokens"] for each in used)
        mine.judge.update(
            requests=int(sum(each["requests"] for each in used)),
            cost=total if total == total else None,
            cost_per_sample=cost if cost == cost else None,
            tokens=int(tokens) if tokens == tokens else None,
        )
    deferrals = sum(int(result.timings[mine.name]["deferrals"]) for result in results)
    if deferrals:
        message = (
            f"Its server put off {deferrals} requests (429, too many requests), which were made again: scores are right, but "
            "take longer. Give it limit=Limit(rpm=…) or Limit(concurrency=…), as the server allows."
        )
        mine.findings.append(Finding("throttled", "warning", message))


def _failed(mine: FunctionProfile, results: Sequence[Any], rows: Sequence[Case]) -> None:
    failures = [failure for result in results for failure in result.failures() if failure.function == mine.name]
    if not failures:
        return
    asked = len(results) * len(rows)
    mine.findings.append(
        Finding(
            "fails",
            "error" if len(failures) > asked / 10 else "warning",
            f"It gave no score for {len(failures)} of {asked} requests: {one_line(failures[0].reason, 200)}",
            tuple(
                Example(
                    rows[each.sample].row,
                    excerpt(rows[each.sample].completion),
                    {"status": each.status.label},
                    each.reason[:200],
                )
                for each in failures[:5]
            ),
        )
    )

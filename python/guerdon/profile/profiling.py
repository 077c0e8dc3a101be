"""Profiling reward functions on one's own rows: `profile`.

- Functions are profiled one after another, each within its share of the time that is left.
- Nothing that a function does ends the profile; Ctrl-C does, with the findings so far.
- Judges are asked no more than was announced.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from guerdon._functions.spec import FunctionSpec
from guerdon._insight.diagnostics.score_totals import seconds_text
from guerdon._system.cpu_count import usable_cores
from guerdon.dispatcher import Dispatcher
from guerdon.errors import DataError, GuerdonError, RegistrationError
from guerdon.profile.advice import advise
from guerdon.profile.calibration import Calibration, check_template
from guerdon.profile.checks import CHECKS, survival
from guerdon.profile.finding import Check, Finding
from guerdon.profile.forms import answer_column, final_answer, reference_text
from guerdon.profile.function_profile import FunctionProfile, Profile
from guerdon.profile.judge_checks import check_judge
from guerdon.profile.judge_plan import JUDGE_SAMPLES, SAMPLE_CALLS, JudgePlan, is_judge, plan_judge, units_of
from guerdon.profile.measurement import empty_worker_bytes, measure
from guerdon.profile.measurement_findings import data_faults, measurement_findings
from guerdon.profile.prediction import predicted_step
from guerdon.profile.probes import Probe
from guerdon.profile.samples import checked_rows
from guerdon.profile.subject import Case, OutOfTime, Row, Subject

__all__ = ["Work", "profile"]

TIME_LIMIT_S: Final = 300.0
MOST_COMPLETIONS: Final = 1_000_000
"""Bound of a step whose time is predicted."""
MOST_GENERATIONS: Final = 10_000
"""The same, of a prompt."""
_MOST_OUTPUT: Final = 100_000
"""Bytes that a call may print."""
_MEASURING: Final = 0.4
_LEAST_MEASURING_S: Final = 10.0
_SLOW_S: Final = 0.5
_TIME_LIMIT: Final = "time limit"


@dataclass(frozen=True)
class Work:
    """Next step of a profile, for a progress display."""

    function: str
    what: str
    done: int
    total: int


def profile(
    functions: Iterable[object] | Dispatcher,
    rows: Sequence[Row],
    *,
    prompts: int = 64,
    generations: int = 8,
    workers: int | None = None,
    checks: Iterable[Check] = CHECKS,
    probes: tuple[Probe, ...] | None = None,
    reference: str | None = None,
    timeout: float = 10.0,
    memory_limit: int = 2_000_000_000,
    time_limit: float = TIME_LIMIT_S,
    judge_samples: int = JUDGE_SAMPLES,
    max_cost: float | None = None,
    announce: Callable[[JudgePlan], object] = lambda plan: None,
    progress: Callable[[Work], object] = lambda plan: None,
) -> Profile:
    """Find out whether reward functions can be trusted, what they take, and how to run them.

    Args:
        functions: A dispatcher's list, or a dispatcher.
        rows: Mappings with ``prompt`` and the functions' columns, and with ``completion`` where
            there are rollouts; the completions of a prompt contiguous. Where some have a
            completion, the others are not run (``left_out``).
        prompts: Prompts of the step whose reward time is predicted.
        generations: Completions per prompt in that step.
        workers: Worker processes in that step. Default: the dispatcher's.
        checks: Of correctness, see `guerdon.profile.audit`.
        probes: In place of the package's, see `guerdon.profile.probes.load_probes`.
        reference: Template of a completion that must score, with columns in braces.
        timeout: Seconds of one call in the profile; a function's own where that is shorter.
        memory_limit: Bytes that a call may hold in a worker; a function's own goes first.
        time_limit: Seconds that all of it may take.
        judge_samples: Rows that each judge is asked about.
        max_cost: What all requests of judges with a ``price=`` may cost.
        announce: Called before a judge is asked, with what that takes.
        progress: Called before each piece of work.

    Returns: A `Profile`; ``profile.to_dict()`` is what ``guerdon profile --json`` prints.

    Raises:
        RegistrationError: The list can't be a dispatcher's, or one of its functions needs a package
            that is not installed.
        DataError: There are no rows, they lack a column that a function asks for, `reference` names
            none of them, or the step has no completion, more than a million, or more than 10,000 of
            a prompt.

    Examples:
        >>> from guerdon import reward
        >>> from guerdon.profile import profile
        >>> exact = reward(lambda completion, answer: float(completion == answer), name="exact")
        >>> rows = [{"prompt": f"{n} + 5 =", "answer": str(n + 5)} for n in range(10, 18)]
        >>> profile([exact], rows, checks=[]).functions["exact"].advice.lane
        'process'
    """
    rows = checked_rows(rows)
    if reference is not None:
        check_template(reference, rows)
    if min(prompts, generations) < 1 or prompts * generations > MOST_COMPLETIONS or generations > MOST_GENERATIONS:
        raise DataError(
            f"A step of {prompts} prompts × {generations} completions: its time is predicted for at least one of each, and at "
            f"most {MOST_COMPLETIONS:,} completions in all and {MOST_GENERATIONS:,} of a prompt."
        )
    dispatcher = functions if isinstance(functions, Dispatcher) else Dispatcher(functions)
    units = units_of(dispatcher._specs)
    for spec in (spec for unit in units for spec in unit):
        if spec.factory is not None and (missing := spec.factory.missing()) is not None:
            raise RegistrationError(f"reward function {spec.name!r} can't be profiled: {missing}")
    recorded = sum(row.get("completion") is not None for row in rows)
    start = time.monotonic()
    found = Profile(
        len(rows),
        recorded > 0,
        left_out=len(rows) - recorded if recorded else 0,
        functions={spec.name: FunctionProfile(spec) for unit in units for spec in unit},
    )
    run = _Profiling(
        found=found,
        rows=rows,
        checks=list(checks),
        timeout=timeout,
        options={
            "memory_limit": memory_limit,
            "max_output": _MOST_OUTPUT,
            "reference": reference,
            "probes": probes,
        },
        judge_samples=judge_samples,
        max_cost=max_cost,
        announce=announce,
        progress=progress,
    )
    run.run(units, time_limit)
    found.step = predicted_step(
        list(found.functions.values()), prompts, generations, workers or dispatcher.workers, usable_cores()
    )
    found.seconds = time.monotonic() - start
    return found


@dataclass
class _Profiling:
    found: Profile
    rows: Sequence[Row]
    checks: list[Check]
    timeout: float
    options: dict[str, Any]
    """Those of each function's subject."""
    judge_samples: int
    max_cost: float | None
    announce: Callable[[JudgePlan], object]
    progress: Callable[[Work], object]
    total: int = 0
    done: int = 0
    empty_bytes: int | None = None

    def run(self, units: Sequence[tuple[FunctionSpec, ...]], time_limit: float) -> None:
        """Each function, or judge with all of its columns, until time is up or Ctrl-C comes."""
        end, place = time.monotonic() + time_limit, 0
        self.total = sum(1 if is_judge(unit[0]) else 1 + len(self.checks) for unit in units)
        functions = self.found.functions
        try:
            for place, unit in enumerate(units):
                deadline = time.monotonic() + (end - time.monotonic()) / (len(units) - place)
                mine = functions[unit[0].name]
                try:
                    if is_judge(mine.spec):
                        self._judge(unit, deadline)
                    else:
                        self._function(mine, deadline)
                except OutOfTime:
                    mine.cut_short = _TIME_LIMIT
        except KeyboardInterrupt:
            self.found.cut_short = "interrupted"
            for spec in (spec for unit in units[place:] for spec in unit):
                functions[spec.name].cut_short = "interruption"
        for mine in functions.values():
            self._count_unchecked(mine)
        if self.found.cut_short is None and any(mine.cut_short for mine in functions.values()):
            self.found.cut_short = f"the time limit of {time_limit:g} s, of which each function has a share"

    def _count_unchecked(self, mine: FunctionProfile) -> None:
        """Adds a finding where checks did not end: without one the function would be clean."""
        wanted = ["judge"] if is_judge(mine.spec) else [check.id for check in self.checks]
        missing = [check for check in wanted if check not in mine.checks]
        if mine.cut_short is not None and missing:
            why, advice = "Ctrl-C came", "Run them again"
            if mine.cut_short == _TIME_LIMIT:
                why, advice = "Time was up", "Allow more (--time-limit)"
            times = mine.times
            slow = "" if times is None or times["p50_s"] < _SLOW_S else f" A call takes {seconds_text(times['p50_s'])}."
            message = f"{why} before these checks had ended: {', '.join(missing)}.{slow} {advice}, or take fewer rows (--rows)."
            mine.findings.append(Finding("unchecked", "warning", message))

    def _next(self, name: str, what: str) -> None:
        self.progress(Work(name, what, self.done, self.total))
        self.done += 1

    def _function(self, mine: FunctionProfile, deadline: float) -> None:
        spec = mine.spec
        timeout = min(self.timeout, spec.policy.timeout)
        with Subject(spec.item, self.rows, timeout=timeout, deadline=deadline, **self.options) as subject:
            self._next(spec.name, "times")
            if subject.own_lane and not spec.is_engine_made:
                mine.findings.append(
                    Finding("live", "warning", "Not checked: it takes live environments, which the data has not.")
                )
                return
            cases = self._measured_cases(subject)
            left = deadline - time.monotonic()
            subject.deadline = part = min(deadline, time.monotonic() + max(_LEAST_MEASURING_S, _MEASURING * left))
            if self.empty_bytes is None and not subject.own_lane:
                self.empty_bytes = empty_worker_bytes()
            found = measure(subject, cases, self.empty_bytes or 0)
            subject.deadline, subject.failing = deadline, found.failures
            faults = data_faults(spec, found, len(cases))
            if faults is not None:
                # Checks and times would be about these rows, not about the function.
                mine.findings.append(faults)
                self.done += len(self.checks)
                return
            mine.measurement = found
            mine.findings += measurement_findings(spec, found)
            self._advise(mine)
            if found.unmeasured and part <= time.monotonic():
                mine.cut_short = _TIME_LIMIT
            self._check(subject, mine)
            if survival.CHECK.id not in mine.checks:
                failed = [(*each, "") for each in found.failures]
                mine.findings += survival.failures(subject, failed, len(cases) - found.unmeasured)
            if self.found.recorded:  # of groups that lack a completion
                own = len(subject.samples())
                found.unmeasured += self.found.rows - self.found.left_out - own
                if not own:
                    mine.findings.append(
                        Finding(
                            "incomplete_groups",
                            "warning",
                            f"{subject.name!r} scores whole groups, and no group of the data has a completion in each row: "
                            "it was measured on reference answers.",
                        )
                    )
            self._advise(mine)

    def _check(self, subject: Subject, mine: FunctionProfile) -> None:
        """Runs the checks until time is up."""
        if mine.measurement is not None and not mine.measurement.works:
            mine.cut_short = None
            self.done += len(self.checks)
            return  # it scored no row
        unanswered: dict[str, list[str]] = {}
        for check in self.checks:
            self._next(mine.name, check.id)
            try:
                mine.findings += check.run(subject)  # what it finds before time is up counts
            except OutOfTime:
                mine.cut_short = _TIME_LIMIT
                continue
            except GuerdonError as error:
                unanswered.setdefault(str(error), []).append(repr(check.id))
                continue
            mine.checks.append(check.id)
        for reason, names in unanswered.items():
            one = f"The check{'s' if len(names) > 1 else ''} {', '.join(names)} had no answer: {reason}"
            mine.findings.append(Finding("unchecked", "warning", one))

    def _advise(self, mine: FunctionProfile) -> None:
        if mine.measurement is None:
            return
        dependent = any(finding.check in _OF_OTHER_ROWS for finding in mine.findings)
        times = mine.times
        mine.advice = advise(mine.spec, mine.measurement, times["p99_s"] if times else None, independent=not dependent)

    def _measured_cases(self, subject: Subject) -> list[Case]:
        """The rows' own completions, in whole groups, or references in their place."""
        if own := subject.samples():
            return own
        answers = subject.once(Calibration)
        texts = {row: answers.right_text(row) for row in answers.answers}
        return [Case(row, subject.completion(texts.get(row, "I don't know."))) for row in range(len(self.rows))]

    def _judge(self, unit: tuple[FunctionSpec, ...], deadline: float) -> None:
        name = unit[0].name
        with Subject(unit[0].item, self.rows, **self.options) as subject:
            cases = subject.samples() or _reference_answers(subject)
            spent = sum(each.judge.get("cost") or 0.0 for each in self.found.functions.values())
            cap = None if self.max_cost is None else max(0.0, self.max_cost - spent)
            plan = plan_judge(subject, cases, self.judge_samples, cap)
            self.announce(plan)
            self._next(name, "judge")
            if plan.rows < 1:
                message = f"Not checked: one row would cost more than {cap:.2g}."
                self.found.functions[name].findings.append(Finding("cost", "warning", message))
                return
            left = max(1.0, deadline - time.monotonic())
            columns = check_judge(unit, subject, cases, plan.rows, cap or None, left / SAMPLE_CALLS)
        for mine in columns:
            mine.judge |= {"planned_requests": plan.requests, "rows": plan.rows}
            self._advise(mine)
            self.found.functions[mine.name] = mine


def _reference_answers(subject: Subject) -> list[Case]:
    """The final answer in each row's reference."""
    column = answer_column(subject.rows, subject.spec.wants.named, named=subject.answer)
    texts = [reference_text(row.get(column)) if column else None for row in subject.rows]
    answers = [final_answer(text or "I don't know.") for text in texts]
    return [Case(row, subject.completion(answer)) for row, answer in enumerate(answers)]


_OF_OTHER_ROWS: Final = frozenset({"order", "batch"})

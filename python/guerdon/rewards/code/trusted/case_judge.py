"""Decides whether an output passes its case: one rule for programs here and in remote sandboxes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from guerdon.errors import DataError
from guerdon.rewards.code.child.encoding import Opaque
from guerdon.rewards.code.trusted.cases import CallCase, Case, StdinCase
from guerdon.rewards.code.trusted.compare import Compare, outputs_match, shown, values_match
from guerdon.rewards.code.trusted.judge_state import COMPARE, REFERENCE, JudgeState
from guerdon.rewards.code.trusted.judgement import Score
from guerdon.rewards.code.trusted.warn_once import warn_of_compare
from guerdon.rewards.code.zygote.languages import LANGUAGES, PYTHON, Language

__all__ = ["ITERATORS", "CaseJudge", "JudgingRules", "compare_reference", "expects_list", "with_input"]

ITERATORS: Final = (
    *("generator", "map", "filter", "zip", "enumerate", "reversed", "chain"),
    *("list_iterator", "dict_keys", "dict_values", "dict_items"),
)
"""Types that count as their lists if a list is expected."""


@dataclass(frozen=True)
class JudgingRules:
    """Rules for judging programs.

    Attributes:
        timeout: Seconds for all cases of a program.
        case_timeout: Seconds for one; None: what is left.
        compare: When an output is the expected one.
        takes_input: It is a function that takes the input, too.
        score: What counts.
        max_output: Bytes that a program may print, or return, in a case.
        language: Of the programs.
    """

    timeout: float
    case_timeout: float | None
    compare: Compare
    score: Score
    max_output: int
    language: Language = LANGUAGES[PYTHON]
    takes_input: bool = False


class CaseJudge:
    """Compares the outputs of programs by these rules; `state` shows its progress."""

    def __init__(self, rules: JudgingRules, state: JudgeState) -> None:
        self.rules = rules
        self._state = state

    def printed(self, case: StdinCase, text: str) -> str:
        """Returns the fault of an output; "" if it passes the case."""
        if self._passed(outputs_match, case.stdout, text, with_input(self.rules, case)):
            return ""
        return f"it printed {shown(text)}, expected {shown(case.stdout)}"

    def returned(self, case: CallCase, value: Any) -> str:
        """Returns the fault of a value; "" if it passes the case."""
        rule = with_input(self.rules, case)
        if any(self._passed(values_match, expected, value, rule) for expected in case.expected):
            return ""
        return f"it returned {shown(value)}, expected {shown(case.expected[0])}"

    def _passed(
        self, match: Callable[[Any, Any, Compare], bool], expected: object, given: object, rule: Compare
    ) -> bool:
        """Returns whether they match. A user's function that raises on the program's output counts
        as no match.

        Raises:
            DataError: It raises on the expected value itself.
        """
        if not callable(rule):
            return match(expected, given, rule)
        try:
            with self._state.during(COMPARE):
                return match(expected, given, rule)
        except (Exception, SystemExit) as error:
            why = f"raised {type(error).__name__}: {str(error)[:300]}"
            try:
                with self._state.during(REFERENCE):
                    compare_reference(rule, expected)
            except (Exception, SystemExit):
                raise DataError(f"compare {why}, and fails on what is expected, too") from error
            warn_of_compare(why)
        return False


def expects_list(case: CallCase, value: object) -> bool:
    """Returns whether the case expects a list from an iterator of the program."""
    is_iterator = isinstance(value, Opaque) and value.guerdon_kind in ITERATORS
    return is_iterator and isinstance(case.expected[0], (list, tuple))


def compare_reference(rule: Compare, expected: object) -> None:
    """Compares the expected value with itself, by a function that may raise or hang."""
    if callable(rule) and expected not in ("", None):  # otherwise there is no reference to tell
        rule(expected, expected)


def with_input(rules: JudgingRules, case: Case) -> Compare:
    """Returns the rule by which a case is compared; a function that takes the input gets it."""
    compare = rules.compare
    if not callable(compare) or not rules.takes_input:
        return compare
    given = case.stdin if isinstance(case, StdinCase) else case.args
    return lambda expected, came: compare(expected, came, given)

"""Reward functions with planted bugs are found, robust ones are not called wrong."""

from __future__ import annotations

import pytest

from guerdon.profile import Check, audit
from guerdon.profile.checks import CHECKS
from guerdon.profile.finding import counted
from tests.profile.planted import matching, sound, state, verified  # noqa: F401 - they fill the corpus
from tests.profile.planted.corpus import PLANTED, ROBUST, PlantedDefect, Robust, name_of

CHECK_OF = {
    **{check.id: check.id for check in CHECKS},
    **dict.fromkeys(("hang", "crash", "exception"), "survival"),
    **dict.fromkeys(("not_finite", "none", "constant", "range"), "values"),
    "empty_reference": "missing_reference",
}

OF_STATE = {"repeat", "order", "batch", "process", "threads", "clock", "arguments"}
"""Checks that ask how a function is called, not for answers: each starts workers of its own."""

MISSED: dict[str, str] = {}
"""Bugs that no check finds, by function, and why: at most one in twenty."""


def checks_for(entry: PlantedDefect) -> list[Check]:
    """The checks that are meant to find it, alone: others cost time."""
    wanted = {"probes" if name.startswith("probe:") else CHECK_OF[name] for name in entry.found_by}
    return [check for check in CHECKS if check.id in wanted]


@pytest.mark.parametrize("entry", PLANTED, ids=name_of)
def test_planted_bugs_are_found(entry: PlantedDefect) -> None:
    findings = counted(audit(entry.function, entry.rows, checks=checks_for(entry)))
    found = {finding.check: finding for finding in findings}
    hits = [found[name] for name in entry.found_by if name in found]
    assert bool(hits) != (name_of(entry) in MISSED), f"{entry.bug}: found {sorted(found)}"
    for finding in hits:
        assert name_of(entry) in finding.message
        assert finding.examples
        assert all(example.row is None or 0 <= example.row < len(entry.rows) for example in finding.examples)


@pytest.mark.parametrize(
    "entry",
    # Each of some hundred probes takes a tenth of a second with math-verify.
    [pytest.param(one, marks=pytest.mark.whole if name_of(one) == "verified" else ()) for one in ROBUST],
    ids=name_of,
)
def test_robust_functions_are_not_called_wrong(entry: Robust) -> None:
    checks = [check for check in CHECKS if not entry.row_alone or check.id not in OF_STATE]
    findings = counted(audit(entry.function, entry.rows, checks=checks, **entry.options))
    assert not findings, "\n".join(map(str, findings))


@pytest.mark.soak
@pytest.mark.parametrize("entry", [entry for entry in ROBUST if entry.row_alone], ids=name_of)
def test_a_robust_function_passes_the_checks_of_state(entry: Robust) -> None:
    checks = [check for check in CHECKS if check.id in OF_STATE]
    findings = counted(audit(entry.function, entry.rows, checks=checks, **entry.options))
    assert not findings, "\n".join(map(str, findings))


def test_the_corpus_is_as_large_as_promised() -> None:
    assert len(PLANTED) >= 30
    assert len(ROBUST) >= 12
    assert len({name_of(entry) for entry in [*PLANTED, *ROBUST]}) == len(PLANTED) + len(ROBUST)
    assert len(MISSED) <= 0.05 * len(PLANTED)

"""Auditing reward functions on one's own rows: `profile`, `audit`, `Subject`, `Finding`.

>>> from guerdon import reward
>>> from guerdon.profile import audit
>>> exact = reward(lambda completion, answer: float(completion == answer), name="exact")
>>> rows = [{"prompt": f"{n} + 5 =", "answer": str(n + 5)} for n in range(10, 18)]
>>> [finding.check for finding in audit(exact, rows) if finding.severity != "info"]
[]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guerdon._system.lazy_imports import names as _names

if TYPE_CHECKING:
    from guerdon.profile.checks import audit
    from guerdon.profile.finding import Check, Example, Finding, Severity
    from guerdon.profile.function_profile import Profile
    from guerdon.profile.profiling import profile
    from guerdon.profile.samples import Case, Row, Score
    from guerdon.profile.subject import Subject

__all__ = [
    "Case",
    "Check",
    "Example",
    "Finding",
    "Profile",
    "Row",
    "Score",
    "Severity",
    "Subject",
    "audit",
    "profile",
]

_HOMES: Final = {
    **dict.fromkeys(("Case", "Row", "Score"), "samples"),
    **dict.fromkeys(("Check", "Example", "Finding", "Severity"), "finding"),
    "Profile": "function_profile",
    "Subject": "subject",
    "audit": "checks",
    "profile": "profiling",
}

# Workers import the classes that measure a function from this folder: they need nothing else of it.
__getattr__, __dir__ = _names(globals(), _HOMES)

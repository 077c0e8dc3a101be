"""Auditing reward functions on one's own rows: `profile`, `audit`, `Subject`, `Finding`.

>>> from guerdon import reward
>>> exact = reward(lambda completion, answer: float(completion == answer), name="exact")
>>> rows = [{"prompt": f"{n} + 5 =", "answer": str(n + 5)} for n in range(10, 18)]
>>> [finding.check for finding in audit(exact, rows) if finding.severity != "info"]
[]
"""

from __future__ import annotations

from guerdon.profile.audit import audit
from guerdon.profile.check import Check
from guerdon.profile.finding import Example, Finding, Severity
from guerdon.profile.function_profile import Profile
from guerdon.profile.profiling import profile
from guerdon.profile.subject import Case, Row, Score, Subject

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
